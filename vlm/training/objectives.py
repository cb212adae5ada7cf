"""The losses of each training stage, from a model and a batch.

The heads also have a score, `exact_match`: the share of questions answered exactly right.
"""

import torch.nn.functional as F
from torch import Tensor

from vlm.data.loading import UNKNOWN_ANSWER, CaptionBatch, QuestionBatch, to_floats
from vlm.losses import cosine_alignment_loss, lm_loss
from vlm.marks import PAD_ID
from vlm.model.vlm import DualEncoder
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.training.fit import Objective
from vlm.training.vision_language import VisionLanguageModel


def alignment(model: DualEncoder) -> Objective[CaptionBatch]:
    """The projected picture against the mean of its caption's embeddings."""

    def losses(batch: CaptionBatch) -> dict[str, Tensor]:
        pooled = model.encode_images(to_floats(batch.images)).pooled
        return {"cosine": cosine_alignment_loss(pooled, model.mean_embedding(batch.text_ids))}

    return Objective(losses, {"cosine": 1.0})


def pretraining(model: VisionLanguageModel, mask_equivalent: bool) -> Objective[CaptionBatch]:
    """InfoNCE, and next-token loss on the caption."""

    def losses(batch: CaptionBatch) -> dict[str, Tensor]:
        equivalent = batch.equivalent if mask_equivalent else None
        contrast, lm, _ = model(to_floats(batch.images), batch.text_ids, equivalent)
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
            # Where each next token is right after the true ones, greedy decoding gives the phrase.
            right = (logits.argmax(dim=-1) == targets) | (targets == PAD_ID)
            terms["exact_match"] = _share(right.all(dim=1))
        return terms

    return Objective(losses, {"phrase": 1.0}, ["exact_match"])


def _share(right: Tensor) -> Tensor:
    """The mean of (B,) bools; 0 of none."""
    return right.sum() / max(len(right), 1)
