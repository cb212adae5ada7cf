"""BLEU-4 against hand-made cases, NLTK and sacrebleu."""

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from vlm.evaluation.text_metrics import (
    bleu4,
    bleu_from_statistics,
    bleu_statistics,
    corpus_bleu,
    corpus_bleu4,
)

WORDS = st.sampled_from(["a", "b", "c", "The", "the"])
SENTENCES = st.lists(WORDS, min_size=1, max_size=9)
PAIRS = st.lists(st.tuples(st.lists(WORDS, max_size=9), SENTENCES, SENTENCES), min_size=1)


def words(sentence: str) -> list[str]:
    return sentence.split()


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        ("there are three shapes", "there are two shapes", 0.1880301546543197),
        ("two", "two", 1.0),
        ("there is a plus", "there is a plus in the image", 0.4723665527410147),
        ("", "there are two shapes", 0.0),
        ("yes", "no", 0.0),
    ],
)
def test_sentence_cases(candidate: str, reference: str, expected: float):
    assert bleu4(words(candidate), [words(reference)]) == pytest.approx(expected, abs=1e-12)


def test_without_smoothing_a_missing_order_is_zero():
    assert bleu4(words("there are three shapes"), [words("there are two shapes")], False) == 0.0
    assert bleu4([5, 6, 7], [[5, 6, 7]], smoothing=False) == 1.0


def test_short_candidate_is_scored_on_the_orders_it_has():
    assert bleu4(["a", "x"], [["a", "b"]]) == pytest.approx((1 / 2 * 0.1 / 1) ** 0.5)


def test_ids_in_arrays_and_tensors_are_tokens():
    assert bleu4(np.array([4, 5, 6, 7]), [np.array([4, 5, 6, 7])]) == 1.0
    assert bleu4(torch.tensor([4, 5, 6, 7]), [[4, 5, 6, 7], [1]]) == 1.0


def test_refuses_no_references_and_strings():
    with pytest.raises(ValueError, match="at least 1 reference"):
        bleu4(["a"], [])
    for candidate, references in [("a b", [["a"]]), (["a"], ["a b"]), (["a"], "a b")]:
        with pytest.raises(TypeError, match="split it first"):
            bleu4(candidate, references)
    with pytest.raises(TypeError):
        corpus_bleu4(["a b"], [[["a", "b"]]])
    with pytest.raises(ValueError, match="1 hypotheses but 2"):
        corpus_bleu4([["a"]], [[["a"]], [["b"]]])
    with pytest.raises(ValueError, match="at least 1 sentence"):
        corpus_bleu4([], [])


def test_corpus_pools_counts():
    pairs = [("yes", "yes"), ("there are two shapes", "there are two shapes"), ("no", "yes")]
    score = corpus_bleu([words(h) for h, _ in pairs], [[words(r)] for _, r in pairs])
    assert score.score == pytest.approx(0.9554427922043672, abs=1e-12)
    assert score.has_four_grams
    circle = words("a red circle is left of the square")
    figure = corpus_bleu4([circle, words("a b c d")], [[circle], [words("a b x d")]])
    assert figure == pytest.approx(0.822802, abs=5e-7)


def test_corpus_without_four_grams_is_flagged():
    score = corpus_bleu([["left", "right"]], [[["left", "right"]]])
    assert (score.score, score.has_four_grams) == (0.0, False)
    assert score.precisions == (1.0, 1.0, 0.0, 0.0)


def test_precision_is_clipped_by_the_reference():
    score = corpus_bleu([["the"] * 7], [[words("the cat is on the mat")]])
    assert score.precisions[0] == pytest.approx(2 / 7)
    assert corpus_bleu([[]], [[["a"]]]) == (0.0, (0.0, 0.0, 0.0, 0.0), 0.0, False)


def test_closest_reference_and_the_shorter_of_two_as_close():
    assert bleu_statistics(["a"] * 5, [["a"] * 7, ["a"] * 3, ["a"] * 9])[-2:].tolist() == [5, 3]


@given(st.lists(WORDS, min_size=4, max_size=9), st.lists(SENTENCES, min_size=1, max_size=3))
def test_sentence_agrees_with_nltk(candidate: list[str], references: list[list[str]]):
    method1 = SmoothingFunction(epsilon=0.1).method1
    expected = sentence_bleu(references, candidate, smoothing_function=method1)
    assert bleu4(candidate, references) == pytest.approx(expected, abs=1e-9)


@given(PAIRS)
def test_corpus_agrees_with_sacrebleu(pairs: list[tuple[list[str], list[str], list[str]]]):
    hypotheses = [hypothesis for hypothesis, _, _ in pairs]
    references = [[first, second] for _, first, second in pairs]
    oracle = sacrebleu.corpus_bleu(
        [" ".join(hypothesis) for hypothesis in hypotheses],
        [[" ".join(pair[i]) for pair in references] for i in range(2)],
        smooth_method="none",
        tokenize="none",
        force=True,
    )
    score = corpus_bleu(hypotheses, references)
    assert score.score == pytest.approx(oracle.score / 100, abs=1e-9)
    assert score.precisions == pytest.approx([p / 100 for p in oracle.precisions], abs=1e-9)
    assert score.brevity_penalty == pytest.approx(oracle.bp, abs=1e-9)


def test_statistics_score_many_resamples_at_once():
    rng = np.random.default_rng(0)
    sentences = [rng.choice(list("abc"), size=rng.integers(9)).tolist() for _ in range(12)]
    references = [[rng.choice(list("abc"), size=8).tolist()] for _ in range(12)]
    rows = np.stack([bleu_statistics(*pair) for pair in zip(sentences, references, strict=True)])
    drawn = rng.integers(12, size=(20, 12))
    counts = np.stack([np.bincount(draw, minlength=12) for draw in drawn])
    one_by_one = [
        corpus_bleu4([sentences[i] for i in draw], [references[i] for i in draw]) for draw in drawn
    ]
    assert bleu_from_statistics(counts @ rows) == pytest.approx(one_by_one, abs=1e-12)
