"""The losses of each training stage, from a model and a batch."""

import torch.nn.functional as F
from torch import Tensor

from vlm.data.loading import UNKNOWN_ANSWER, CaptionBatch, QuestionBatch, to_floats
from vlm.losses import cosine_alignment_loss, lm_loss
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
        return {"answer": total / max(batch.counts["answer"], 1)}

    return Objective(losses, {"answer": 1.0})


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
        return {"phrase": lm_loss(logits, batch.phrase_ids[:, 1:])}

    return Objective(losses, {"phrase": 1.0})
