"""Logits and probabilities, each question alone in a loop beside the batches."""

import math

import numpy as np
import pytest
import torch
from small_heads import ANSWERS, SPLIT, TOKENIZER, data_of, make_heads

from vlm.data.loading import to_floats
from vlm.evaluation.calibration import softmax
from vlm.evaluation.predicting import answer_logits, classify, phrase_confidence

HEADS = make_heads("multiply", "tokens")
QUESTIONS = SPLIT.questions


def image_of(row: int) -> torch.Tensor:
    return to_floats(torch.from_numpy(SPLIT.scenes.images[QUESTIONS.scene_index[row]][None]))


def test_logits_are_those_that_the_answers_come_from():
    logits = answer_logits(HEADS.classifier, data_of(SPLIT), 7)
    said = classify(HEADS.classifier, data_of(SPLIT), 7)
    assert logits.shape == (240, len(ANSWERS)) and logits.dtype == np.float64
    assert [ANSWERS[column] for column in logits.argmax(axis=1)] == said.answer.tolist()
    np.testing.assert_allclose(softmax(logits).max(axis=1), said.confidence, atol=1e-6)


@pytest.mark.parametrize("size", [1, 64])
def test_logits_of_each_question_alone(size: int):
    logits = answer_logits(HEADS.classifier, data_of(SPLIT), size)
    with torch.no_grad():
        for row in range(0, 240, 7):
            ids = TOKENIZER.encode([QUESTIONS.question[row]])
            alone = HEADS.classifier(image_of(row), ids)[0].numpy()
            np.testing.assert_allclose(logits[row], alone, atol=1e-5)


def test_a_phrase_is_as_likely_as_its_words_one_after_another():
    found, again = (phrase_confidence(HEADS.generator, data_of(SPLIT), n) for n in (1, 64))
    np.testing.assert_allclose(found, again, rtol=1e-4)
    with torch.no_grad():
        for row in range(0, 240, 9):
            ids = TOKENIZER.encode([QUESTIONS.question[row]])
            words = TOKENIZER.encode([QUESTIONS.phrase[row]])[0].tolist()
            chance = 1.0
            for place in range(1, len(words)):  # given those before, the end mark's chance too
                said = torch.tensor([words[:place]])
                logits = HEADS.generator(image_of(row), ids, said)[0, -1]
                chance *= math.exp(float(logits[words[place]] - logits.logsumexp(dim=-1)))
            assert found[row] == pytest.approx(chance, rel=1e-4)
    assert (found > 0).all() and (found < 1).all()
