"""Logits and probabilities, each question alone in a loop beside the batches."""

import math

import numpy as np
import pytest
import torch
from small_heads import ANSWERS, SPLIT, TOKENIZER, data_of, make_heads

from vlm.data.loading import to_floats
from vlm.evaluation.calibration import softmax
from vlm.evaluation.predicting import _probability, answer_logits, classify, phrase
from vlm.generation import generate
from vlm.marks import BOS_ID, EOS_ID, PAD_ID

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
    said, again = (phrase(HEADS.generator, data_of(SPLIT), TOKENIZER, n) for n in (1, 64))
    assert (said.answer == again.answer).all()
    np.testing.assert_allclose(said.confidence, again.confidence, rtol=1e-4)
    ended = []
    with torch.no_grad():
        for row in range(0, 240, 9):
            ids = TOKENIZER.encode([QUESTIONS.question[row]])
            words = generate(HEADS.generator, image_of(row), ids).tokens[0].tolist()
            ended.append(EOS_ID in words)
            words = [BOS_ID, *words[: words.index(EOS_ID) + 1 if ended[-1] else None]]
            chance = 1.0
            for place in range(1, len(words)):  # given those before, the end mark's chance too
                logits = HEADS.generator(image_of(row), ids, torch.tensor([words[:place]]))[0, -1]
                chance *= math.exp(float(logits[words[place]] - logits.logsumexp(dim=-1)))
            assert said.confidence[row] == pytest.approx(chance, rel=1e-4)
    assert (said.confidence > 0).all() and (said.confidence < 1).all()


def test_a_padding_mark_that_is_said_counts_and_one_after_the_end_does_not():
    logits = torch.zeros(2, 4, 8)  # each token has a chance of 1/8
    tokens = torch.tensor([[5, PAD_ID, EOS_ID, PAD_ID], [5, PAD_ID, PAD_ID, 6]])
    np.testing.assert_allclose(_probability(tokens, logits).numpy(), [8.0**-3, 8.0**-4], rtol=1e-6)
