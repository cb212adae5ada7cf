"""The pretraining model: a `ContrastiveCaptioner` whose forward pass gives its two losses."""

import torch
from torch import Tensor

from vlm.losses import LOG_SCALE_RANGE, info_nce_loss, lm_loss
from vlm.model.vlm import ContrastiveCaptioner
from vlm.training.distributed import ALONE, World


class VisionLanguageModel(ContrastiveCaptioner):
    """contrast, lm, stats = model(images, text_ids); the loss is contrast + lm_weight * lm."""

    def forward(
        self,
        images: Tensor,
        text_ids: Tensor,
        equivalent: Tensor | None = None,
        world: World = ALONE,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The two pretraining losses of a batch of pairs.

        Args:
            images: (B, C, H, W) floats.
            text_ids: (B, T) captions, padded with 0.
            equivalent: (B, B) bool, True where text j is right for picture i too; see
                `info_nce_loss`.
            world: the processes that share a batch of G pairs, of which this one has B; then
                `equivalent` and the similarity are (B, G).

        Returns:
            The contrastive loss, the next-token loss, and detached figures: `loss` (their
            weighted sum), `scale`, and `similarity` (B, B).
        """
        with torch.no_grad():  # past its bounds the scale would get no gradient, and stay there
            self.log_tau.clamp_(*LOG_SCALE_RANGE)
        features = self.encode_images(images)
        contrast, similarity = info_nce_loss(
            features.pooled,
            self.encode_text(text_ids),
            self.log_tau,
            equivalent,
            gather=world.gather if world.size > 1 else None,
            begin=world.begin(len(images)),
        )
        logits = self.decoder(text_ids[:, :-1], features.tokens)
        lm = lm_loss(logits, text_ids[:, 1:])
        stats = {
            "loss": (contrast + self.config.lm_weight * lm).detach(),
            "scale": self.log_tau.detach().exp(),
            "similarity": similarity.detach(),
        }
        return contrast, lm, stats
