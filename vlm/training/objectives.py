"""The losses of each training stage, from a model and a batch.

The heads also have a score, `exact_match`: the share of questions answered exactly right.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vlm.data.loading import UNKNOWN_ANSWER, CaptionBatch, QuestionBatch, chunks, to_floats
from vlm.data.windows import Rows
from vlm.losses import cosine_alignment_loss, lm_loss
from vlm.marks import PAD_ID, UNK_ID
from vlm.model.vit import VisionEncoder
from vlm.model.vlm import DualEncoder
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.training.distributed import ALONE, World
from vlm.training.execution import Execution
from vlm.training.terms import Objective
from vlm.training.vision_language import VisionLanguageModel

FROZEN_BATCH = 64  # pictures a pass of a frozen encoder


def alignment(model: DualEncoder) -> Objective[CaptionBatch]:
    """The projected picture against the mean of its caption's embeddings."""

    def losses(batch: CaptionBatch) -> dict[str, Tensor]:
        features = batch.features
        if features is None:
            features = model.vision(to_floats(batch.images))[1]
        pooled = model.projector(features)
        return {"cosine": cosine_alignment_loss(pooled, model.mean_embedding(batch.text_ids))}

    return Objective(losses, {"cosine": 1.0})


@torch.no_grad()
def frozen_features(vision: VisionEncoder, images: Rows, how: Execution) -> Tensor:
    """What a frozen encoder makes of uint8 pictures (N, C, H, W), once for all steps: (N, D).

    The processes share the work, in parts that are the same however many processes there are.
    """
    features = torch.zeros(len(images), vision.config.hidden, device=how.device)
    for index, part in enumerate(chunks(len(images), FROZEN_BATCH)):
        if index % how.world.size == how.world.rank:
            with how.autocast():
                pooled = vision(to_floats(images[part].to(how.device)))[1]
            features[part] = pooled.float()
    return how.world.add(features).cpu()


def pretraining(
    model: VisionLanguageModel, mask_equivalent: bool, world: World = ALONE
) -> Objective[CaptionBatch]:
    """InfoNCE, in training over all processes' pairs, and next-token loss on the caption."""

    def losses(batch: CaptionBatch) -> dict[str, Tensor]:
        sharing = world if model.training else ALONE  # a validation batch is of one process
        equivalent = None
        if mask_equivalent:
            equivalent = sharing.share(batch.keys)[:, None] == batch.keys[None]
        contrast, lm, _ = model(to_floats(batch.images), batch.text_ids, equivalent, sharing)
        return {"contrast": contrast, "lm": lm}

    return Objective(losses, {"contrast": 1.0, "lm": model.config.lm_weight})


def classification(model: AnswerClassifier) -> Objective[QuestionBatch]:
    """Cross-entropy over the closed set of answers; an answer outside it isn't learned from."""

    def losses(batch: QuestionBatch) -> dict[str, Tensor]:
        logits = model(
            to_floats(batch.images), batch.question_ids, batch.image_rows, batch.question_rows
        )
        total = F.cross_entropy(logits, batch.answers, ignore_index=UNKNOWN_ANSWER, reduction="sum")
        terms = {"answer": total / max(batch.counts["answer"], 1)}
        if not model.training:
            terms["exact_match"] = _share(logits.argmax(dim=-1) == batch.answers)
        return terms

    return Objective(losses, {"answer": 1.0}, ["exact_match"])


def generation(model: PhraseGenerator) -> Objective[QuestionBatch]:
    """Next-token loss on the phrase."""

    def losses(batch: QuestionBatch) -> dict[str, Tensor]:
        logits = model(
            to_floats(batch.images),
            batch.question_ids,
            batch.phrase_ids[:, :-1],
            batch.image_rows,
            batch.question_rows,
        )
        targets = batch.phrase_ids[:, 1:]
        terms = {"phrase": lm_loss(logits, targets)}
        if not model.training:
            # Where each next token is right after the true ones, greedy decoding gives the phrase;
            # who says "unknown" doesn't.
            said = (logits.argmax(dim=-1) == targets) & (targets != UNK_ID)
            right = said | (targets == PAD_ID)
            terms["exact_match"] = _share(right.all(dim=1))
        return terms

    return Objective(losses, {"phrase": 1.0}, ["exact_match"])


def _share(right: Tensor) -> Tensor:
    """The mean of (B,) bools; 0 of none."""
    return right.sum() / max(len(right), 1)
