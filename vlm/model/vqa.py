"""The two heads that answer questions.

Shapes: P pictures, U distinct questions, B rows (a picture and a question each), S image tokens,
T text tokens, D text width, A answers, V vocabulary.

Neither a picture nor a question is encoded twice: rows point into P pictures and U questions.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from vlm.marks import PAD_ID
from vlm.model.decoder import DecoderBlock, VisionLanguageDecoder
from vlm.model.memory import Memory, MemoryPart
from vlm.model.text import masked_mean
from vlm.model.vlm import DualEncoder, ImageFeatures, VLMConfig
from vlm.rules import check_choice

Fusion = Literal["multiply", "concat", "attention"]
MemoryKind = Literal["pooled", "tokens"]
Context = Literal["fused", "none"]


class QuestionCode(nn.Module):
    """Question vectors (..., D) to Fourier features (..., D) that tell near ones apart.

    "a circle left of a plus" and "a plus left of a circle" have nearly the same mean, so a head
    that reads it answers both alike for thousands of steps. Sines of random projections of it are
    nearly orthogonal, the more so the higher the frequency (Tancik et al. 2020, "Fourier features
    let networks learn high frequency functions"). The projections are learned too. A text encoder
    that learns under them shakes every code at each step: freeze it, or keep the frequency low.

    Args:
        hidden: D.
        frequency: standard deviation of the angles at the start; 0 leaves the vectors as they are.
    """

    def __init__(self, hidden: int, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency
        if frequency:
            self.norm = nn.LayerNorm(hidden)
            self.angles = nn.Linear(hidden, hidden)
            nn.init.normal_(self.angles.weight, std=frequency / hidden**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.angles(self.norm(x)).sin() if self.frequency else x


class AnswerClassifier(DualEncoder):
    """A picture and a question to logits over a closed set of answers.

    `multiply` and `concat` join the image's vector and the question's code. With `attention` the
    question's tokens attend to one another and to the image's tokens, `fusion_depth` times, and
    are then averaged.
    """

    def __init__(
        self,
        config: VLMConfig,
        answers: list[str],
        fusion: Fusion = "multiply",
        fusion_depth: int = 2,
        head_hidden: int = 128,
        question_frequency: float = 0.0,
    ) -> None:
        super().__init__(config)
        check_choice("fusion", fusion, Fusion)
        self.answers = answers
        self.fusion: Fusion = fusion
        self.fusion_depth = fusion_depth
        self.head_hidden = head_hidden
        width = config.text_hidden
        self.question_frequency = question_frequency
        if fusion == "attention":
            self.blocks = nn.ModuleList(DecoderBlock(config.decoder) for _ in range(fusion_depth))
        else:
            self.question_code = QuestionCode(width, question_frequency)
        fused = 2 * width if fusion == "concat" else width
        self.norm = nn.LayerNorm(fused)
        self.head = nn.Sequential(
            nn.Linear(fused, head_hidden),
            nn.GELU(),
            nn.Linear(head_hidden, len(answers)),
        )

    def forward(
        self,
        images: Tensor,
        question_ids: Tensor,
        image_rows: Tensor | None = None,
        question_rows: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, A).

        Args:
            images: (P, C, H, W) floats.
            question_ids: (U, T).
            image_rows: (B,) which picture each row is about; None for row b, picture b.
            question_rows: (B,) likewise for the question.
        """
        features = self.encode_images(images)
        return self.answer(features, question_ids, image_rows, question_rows)

    def answer(
        self,
        features: ImageFeatures,
        question_ids: Tensor,
        image_rows: Tensor | None = None,
        question_rows: Tensor | None = None,
    ) -> Tensor:
        """`forward` from pictures already encoded."""
        tokens, pooled = self.text(question_ids)
        picture = MemoryPart(features.tokens, image_rows)
        question = MemoryPart(tokens, question_rows)
        if self.fusion == "attention":
            real = question.take(question_ids != PAD_ID)
            x, seen = question.take(tokens), real[:, None, None].expand(-1, 1, real.shape[1], -1)
            for block in self.blocks:
                x = block(x, Memory([picture]), seen, None, is_causal=False, cache=None)
            fused = masked_mean(x, real)
        else:
            pair = picture.take(features.pooled), question.take(self.question_code(pooled))
            fused = torch.cat(pair, dim=-1) if self.fusion == "concat" else pair[0] * pair[1]
        return self.head(self.norm(fused))


class PhraseGenerator(DualEncoder):
    """A picture and a question to a phrase, word by word.

    The decoder's memory is `tokens` (all image and question tokens) or `pooled` (two: the image's
    vector and the question's code). With `context: fused` every word also starts from the product
    of those two vectors, so that the answer need not be gathered from many tokens first.
    """

    def __init__(
        self,
        config: VLMConfig,
        memory: MemoryKind = "tokens",
        context: Context = "none",
        question_frequency: float = 0.0,
    ) -> None:
        super().__init__(config)
        check_choice("memory", memory, MemoryKind)
        check_choice("context", context, Context)
        self.memory_kind: MemoryKind = memory
        self.context: Context = context
        self.question_frequency = question_frequency
        # Where nothing reads the code, weights in it would never learn.
        is_read = memory == "pooled" or context == "fused"
        self.question_code = QuestionCode(config.text_hidden, question_frequency * is_read)
        if context == "fused":
            self.fuse = nn.Sequential(
                nn.LayerNorm(config.text_hidden), nn.Linear(config.text_hidden, config.text_hidden)
            )
        self.decoder = VisionLanguageDecoder(config.decoder)

    def memory(
        self,
        features: ImageFeatures,
        question_ids: Tensor,
        image_rows: Tensor | None = None,
        question_rows: Tensor | None = None,
    ) -> Memory:
        """What the decoder reads about each of B rows; the arguments as in `forward`."""
        tokens, pooled = self.text(question_ids)
        code = self.question_code(pooled)
        if self.memory_kind == "pooled":
            picture = MemoryPart(features.pooled[:, None], image_rows)
            question = MemoryPart(code[:, None], question_rows)
        else:
            picture = MemoryPart(features.tokens, image_rows)
            question = MemoryPart(tokens, question_rows, question_ids != PAD_ID)
        context = None
        if self.context == "fused":
            context = self.fuse(picture.take(features.pooled) * question.take(code))
        return Memory([picture, question], context)

    def forward(
        self,
        images: Tensor,
        question_ids: Tensor,
        phrase_ids: Tensor,
        image_rows: Tensor | None = None,
        question_rows: Tensor | None = None,
    ) -> Tensor:
        """Next-token logits (B, T, V) for phrases (B, T), each begun with the begin mark.

        Args:
            images: (P, C, H, W) floats.
            question_ids: (U, T).
            phrase_ids: (B, T).
            image_rows: (B,) which picture each row is about; None for row b, picture b.
            question_rows: (B,) likewise for the question.
        """
        features = self.encode_images(images)
        return self.decoder(
            phrase_ids, self.memory(features, question_ids, image_rows, question_rows)
        )
