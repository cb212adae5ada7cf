"""1,000 random inputs each: our figures beside those of the packages in common use.

Where a convention differs, the docstring of ours says so, and the difference is held here too.
"""

import random
import warnings

import numpy as np
import pytest
import sacrebleu
import torch
from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu, sentence_bleu
from sacrebleu.metrics.bleu import BLEU
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, recall_score
from torchmetrics.functional.retrieval import retrieval_hit_rate, retrieval_reciprocal_rank

from vlm.evaluation.intervals import wilson
from vlm.evaluation.retrieval import first_hits
from vlm.evaluation.text_metrics import bleu4, corpus_bleu4
from vlm.evaluation.vqa_metrics import family_accuracy, macro_accuracy, vqa_exact_match

CASES = 1000
METHOD1 = SmoothingFunction(epsilon=0.1).method1


def drawn(rng: random.Random, shortest: int, longest: int = 12) -> list[str]:
    words = ["a", "b", "The", "the", "circle", "plus."][: rng.randint(1, 6)]
    return rng.choices(words, k=rng.randint(shortest, longest))


def test_corpus_bleu_is_sacrebleus():
    rng = random.Random(0)
    for _ in range(CASES):
        size, width = rng.randint(1, 6), rng.randint(1, 3)
        hypotheses = [drawn(rng, 0) for _ in range(size)]
        references = [[drawn(rng, 1) for _ in range(width)] for _ in range(size)]
        expected = sacrebleu.corpus_bleu(
            [" ".join(tokens) for tokens in hypotheses],
            [[" ".join(targets[i]) for targets in references] for i in range(width)],
            smooth_method="none",
            tokenize="none",
            force=True,
        ).score
        assert corpus_bleu4(hypotheses, references) == pytest.approx(expected / 100, abs=1e-9)


def test_smoothed_sentence_bleu_is_nltks_from_4_tokens_on():
    rng = random.Random(1)
    for _ in range(CASES):
        tokens, targets = drawn(rng, 4), [drawn(rng, 1) for _ in range(rng.randint(1, 3))]
        expected = sentence_bleu(targets, tokens, smoothing_function=METHOD1)
        assert bleu4(tokens, targets) == pytest.approx(expected, abs=1e-9)


def test_unsmoothed_sentence_bleu_is_sacrebleus():
    rng = random.Random(2)
    scorer = BLEU(smooth_method="none", tokenize="none", effective_order=True)
    for _ in range(CASES):
        tokens, targets = drawn(rng, 0), [drawn(rng, 1) for _ in range(rng.randint(1, 3))]
        joined = [" ".join(target) for target in targets]
        expected = scorer.sentence_score(" ".join(tokens), joined).score / 100
        assert bleu4(tokens, targets, smoothing=False) == pytest.approx(expected, abs=1e-9)


def test_where_nltk_differs_on_short_texts():
    right = sentence_bleu([["two"]], ["two"], smoothing_function=METHOD1)
    assert right == pytest.approx(0.1778279410038923)
    assert bleu4(["two"], [["two"]]) == 1.0
    texts = ["yes", "there are two shapes", "no"]
    wanted = [[["yes"]], [texts[1].split()], [["yes"]]]
    hypotheses = [text.split() for text in texts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert corpus_bleu(wanted, hypotheses) == pytest.approx(0.537284965911771)
    assert corpus_bleu4(hypotheses, wanted) == pytest.approx(0.9554427922043672)


def test_recall_and_reciprocal_rank_are_torchmetrics():
    rng = np.random.default_rng(3)
    for _ in range(CASES):
        size = int(rng.integers(1, 30))
        scores = (rng.permutation(size) + 1) / size  # nothing ties
        relevant = rng.random(size) < 0.2
        relevant[rng.integers(size)] = True
        hits = first_hits(scores[None], [1], relevant.astype(int))
        preds, target = torch.from_numpy(scores), torch.from_numpy(relevant)
        k = int(rng.integers(1, size + 1))
        assert hits.within(k)[0] == float(retrieval_hit_rate(preds, target, top_k=k))
        expected = float(retrieval_reciprocal_rank(preds, target))  # a float32
        # The rank is a whole number, so the float32 determines it.
        assert hits.reciprocal_rank()[0] == pytest.approx(1 / round(1 / expected), abs=1e-9)


def test_where_torchmetrics_differs_on_scores_that_are_not_positive():
    scores, relevant = torch.tensor([-0.2, -0.1, -0.3]), torch.tensor([True, False, False])
    assert float(retrieval_reciprocal_rank(scores, relevant)) == 0.0
    hits = first_hits(scores[None], [1], relevant.int())
    assert hits.reciprocal_rank().tolist() == [0.5]


def test_accuracy_and_its_macro_mean_are_scikit_learns():
    rng = np.random.default_rng(4)
    sizes = rng.integers(1, 40, size=CASES)
    case = np.repeat(np.arange(CASES), sizes)
    truth, guess = rng.integers(4, size=(2, len(case)))
    # A class of its own for each answer of each case: all the recalls in one call.
    classes, row = np.unique(4 * case + truth, return_inverse=True)
    recalls = np.asarray(
        recall_score(4 * case + truth, 4 * case + guess, labels=classes, average=None)
    )
    for number in range(CASES):
        own = case == number
        accuracy = accuracy_score(truth[own], guess[own])
        found = vqa_exact_match(guess[own].tolist(), truth[own].tolist())
        assert found == pytest.approx(accuracy, abs=1e-9)
        correct, names = guess[own] == truth[own], [f"family {answer}" for answer in truth[own]]
        expected = recalls[np.unique(row[own])]
        families = list(family_accuracy(correct, names).values())
        assert families == pytest.approx(expected, abs=1e-9)
        assert macro_accuracy(correct, names) == pytest.approx(np.mean(expected), abs=1e-9)


def test_wilson_is_scipys():
    rng = np.random.default_rng(5)
    for _ in range(CASES):
        n = int(rng.integers(1, 5000))
        successes = int(rng.integers(0, n + 1))
        confidence = float(rng.uniform(0.5, 0.999))
        expected = binomtest(successes, n).proportion_ci(confidence, method="wilson")
        low, high = wilson(successes, n, confidence)
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
