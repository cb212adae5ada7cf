"""ROUGE-L against a table filled cell by cell, both packages' figures, and torchmetrics."""

import random
import time

import numpy as np
import pytest
import torch
from torchmetrics.functional.text import rouge_score

from vlm.evaluation.rouge import rouge_l, rouge_l_coco

# Recorded from rouge-score 0.1.2 (`score_multi`) and pycocoevalcap 1.2 (`Rouge().calc_score`).
RECORDED = [
    ("yes there is", ["yes there is a circle"], 0.75, 0.7176470588235294),
    ("a c", ["d d d b a d a d"], 0.2, 0.1804733727810651),
    ("a d c b a c", ["a"], 0.2857142857142857, 0.3279569892473118),
    ("a d b d a b d d", ["c b b d", "a d a b c", "c d"], 0.6153846153846154, 0.6421052631578947),
    ("b c c d d a d b", ["d b c c a d a", "d c d", "d"], 0.6666666666666666, 0.8026315789473684),
    ("", ["b b b a b b d", "c c d c a d b b d"], 0.0, 0.0),
    ("a b b b a c a", ["a a", "a c b c a b c c", "b b"], 0.5333333333333333, 0.7648902821316614),
    ("b c c d", ["d d a a c d", "d b c a c b", "a b a d b a b"], 0.6, 0.5791139240506329),
    ("d b d b a d c", ["a c b b a c a", "c c", "d c b"], 0.5714285714285714, 0.6240409207161125),
    ("a", ["b b b"], 0.0, 0.0),
    ("c c c c", ["c b", "b a c a d a d b"], 0.3333333333333333, 0.3546511627906977),
    ("c a", ["a b a c c c a", "c a a c a a a d", "a b"], 0.5, 0.6288659793814433),
]


def lcs(first: list[str], second: list[str]) -> int:
    """The table of the textbook."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            longer = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else longer
    return table[-1][-1]


def drawn(rng: random.Random, shortest: int) -> list[str]:
    letters = "abcdefghij"[: rng.randint(1, 10)]
    return [rng.choice(letters) for _ in range(rng.randint(shortest, 20))]


@pytest.mark.parametrize(("candidate", "references", "f1", "coco"), RECORDED)
def test_both_packages_figures(candidate: str, references: list[str], f1: float, coco: float):
    tokens, wanted = candidate.split(), [reference.split() for reference in references]
    assert rouge_l(tokens, wanted) == pytest.approx(f1, abs=1e-12)
    assert rouge_l_coco(tokens, wanted) == pytest.approx(coco, abs=1e-12)


def test_agrees_with_the_table_on_1000_random_texts():
    rng = random.Random(0)
    for _ in range(1000):
        tokens = drawn(rng, 0)
        wanted = [drawn(rng, 0) for _ in range(rng.randint(1, 4))]
        common = [lcs(tokens, target) for target in wanted]
        f1 = max(2 * n / max(len(tokens) + len(w), 1) for n, w in zip(common, wanted, strict=True))
        assert rouge_l(tokens, wanted) == pytest.approx(f1, abs=1e-9)
        precision = max(common) / max(len(tokens), 1)
        recall = max(n / max(len(w), 1) for n, w in zip(common, wanted, strict=True))
        below = recall + 1.44 * precision
        coco = 2.44 * precision * recall / below if below else 0.0
        assert rouge_l_coco(tokens, wanted) == pytest.approx(coco, abs=1e-9)


def test_agrees_with_torchmetrics_on_1000_random_texts():
    rng = random.Random(1)
    texts = [(drawn(rng, 1), [drawn(rng, 1), drawn(rng, 1)]) for _ in range(1000)]
    oracle = rouge_score(
        [" ".join(tokens) for tokens, _ in texts],
        [[" ".join(target) for target in wanted] for _, wanted in texts],
        accumulate="best",
        rouge_keys="rougeL",
    )
    mean = np.mean([rouge_l(*text) for text in texts])
    assert mean == pytest.approx(float(oracle["rougeL_fmeasure"]), abs=1e-6)  # it answers float32


def test_agrees_with_rouge_score_on_1000_random_texts():
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rougeL"])
    rng = random.Random(2)
    for _ in range(1000):
        tokens, wanted = drawn(rng, 0), [drawn(rng, 0) for _ in range(3)]
        best = scorer.score_multi([" ".join(target) for target in wanted], " ".join(tokens))
        assert rouge_l(tokens, wanted) == pytest.approx(best["rougeL"].fmeasure, abs=1e-9)


def test_two_halves_are_worth_more_by_coco_than_by_the_best_reference():
    # "a" is all of the second reference, and "a b" all of the candidate's match with the first.
    tokens, wanted = ["a", "b"], [["a", "b", "c", "c"], ["a"]]
    assert rouge_l(tokens, wanted) == pytest.approx(2 / 3)
    assert rouge_l_coco(tokens, wanted) == 1.0


@pytest.mark.parametrize("metric", [rouge_l, rouge_l_coco])
def test_ids_empty_texts_and_what_is_refused(metric):
    assert metric(np.array([4, 5, 6]), [torch.tensor([4, 5, 6]), [1]]) == pytest.approx(1.0)
    assert metric(["two"], [["two"]]) == 1.0
    assert metric(["Two"], [["two"]]) == 0.0
    assert metric([], [["two"]]) == metric(["two"], [[]]) == metric([], [[]]) == 0.0
    with pytest.raises(ValueError, match="ROUGE-L needs at least 1 reference, got 0"):
        metric(["a"], [])
    for candidate, references in [("a b", [["a"]]), (["a"], ["a b"])]:
        with pytest.raises(TypeError, match="split it first"):
            metric(candidate, references)


def test_a_large_split_takes_seconds():
    rng = random.Random(3)
    words = [f"w{i}" for i in range(40)]
    split = [[[rng.choice(words) for _ in range(15)] for _ in range(4)] for _ in range(2000)]
    start = time.perf_counter()
    for tokens, *wanted in split:
        rouge_l(tokens, wanted)
    assert time.perf_counter() - start < 2  # measured 0.12 s; a table takes some 5 s
