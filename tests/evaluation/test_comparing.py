"""Paired figures and what changed, against slow oracles that go by rows."""

import math
import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm.errors import UserError
from vlm.evaluation.comparing import (
    HEADS,
    Comparison,
    changes,
    compare_captions,
    compare_questions,
    compare_retrieval,
)
from vlm.evaluation.pairing import Pair, pair_captions, pair_questions, pair_rows
from vlm.evaluation.text_metrics import corpus_bleu4

FAMILIES = ("count", "exists", "relation")
CLASSIFIER, GENERATOR = HEADS
RESAMPLES = 60
RECALLS = ("image_to_text_R@1", "text_to_image_R@1")


def rows_of(seed: int, pictures: int = 30, share: float = 0.8) -> list[dict]:
    """One side's rows: 3 to 5 questions a picture, mostly right; the questions are always alike."""
    asked, said = random.Random(0), random.Random(seed)
    rows = []
    for scene in range(pictures):
        for _ in range(asked.randint(3, 5)):
            phrase = asked.choice(["there are two shapes", "yes there is a circle"])
            guesses = ["3", "4"], ["no there is no circle", "there are five big shapes"]
            right = [said.random() < share for _ in HEADS]
            rows.append(
                {
                    "question_id": len(rows),
                    "scene_id": scene,
                    "family": asked.choice(FAMILIES),
                    "question": f"question {len(rows)}",
                    "answer": "2",
                    "phrase": phrase,
                    "classifier_answer": "2" if right[0] else said.choice(guesses[0]),
                    "classifier_confidence": said.choice([0.5, 0.75, 0.9]),
                    "generator_phrase": phrase if right[1] else said.choice(guesses[1]),
                }
            )
    return rows


A, B = rows_of(1), rows_of(2, share=0.7)
PAIRS = pair_questions(A, B)


def by_name(figures: list[Comparison]) -> dict[str, Comparison]:
    return {one.name: one for one in figures}


FIGURES = by_name(compare_questions(PAIRS, RESAMPLES))


def mean(values: list) -> float:
    return sum(values) / len(values)


def figures_by_rows(rows: list[dict]) -> dict[str, float]:
    """All figures of one side, from its rows alone; a family without rows is left out."""
    found = {}
    for head, said, truth in (
        ("classifier", "classifier_answer", "answer"),
        ("generator", "generator_phrase", "phrase"),
    ):
        families, pictures = defaultdict(list), defaultdict(list)
        for row in rows:
            families[row["family"]].append(row[said] == row[truth])
            pictures[row["scene_id"]].append(row[said] == row[truth])
        found[f"{head}.exact_match"] = mean([mean(right) for right in families.values()])
        found[f"{head}.exact_match_per_question"] = mean([r for f in families.values() for r in f])
        found |= {f"{head}.by_family.{name}": mean(right) for name, right in families.items()}
        found[f"{head}.all_right"] = mean([all(right) for right in pictures.values()])
    found["generator.bleu4"] = corpus_bleu4(
        [row["generator_phrase"].split() for row in rows],
        [[row["phrase"].split()] for row in rows],
    )
    return found


def test_values_and_counts_are_those_of_the_rows() -> None:
    of_a, of_b = figures_by_rows(A), figures_by_rows(B)
    assert set(FIGURES) == set(of_a)
    for name, one in FIGURES.items():
        assert (one.a, one.b) == pytest.approx((of_a[name], of_b[name]))
        assert one.difference == one.b - one.a
    right = [tuple(row["classifier_answer"] == "2" for row in pair) for pair in PAIRS]
    one = FIGURES["classifier.exact_match_per_question"]
    assert (one.only_a, one.only_b) == (right.count((True, False)), right.count((False, True)))
    assert one.only_a and one.only_b and one.only_a != one.only_b


def test_intervals_are_those_of_a_loop_over_resampled_pictures() -> None:
    """As many resamples, of the same pictures, each figure from the rows anew."""
    sides = [defaultdict(list), defaultdict(list)]
    for pair in PAIRS:
        for side, row in zip(sides, pair, strict=True):
            side[row["scene_id"]].append(row)
    generator, pictures = np.random.default_rng(0), sorted(sides[0])
    differences = defaultdict(list)
    for _ in range(RESAMPLES):
        drawn = [pictures[at] for at in generator.integers(len(pictures), size=len(pictures))]
        # A picture that is drawn twice counts as two.
        copies = [
            [{**row, "scene_id": at} for at, scene in enumerate(drawn) for row in side[scene]]
            for side in sides
        ]
        of_a, of_b = map(figures_by_rows, copies)
        for name in of_a:
            differences[name].append(of_b[name] - of_a[name])
    for name, one in FIGURES.items():
        low, high = np.quantile(differences[name], [0.025, 0.975])
        # A family that some picture lacks is resampled over the pictures that have it.
        if "by_family" not in name:
            assert one.interval == pytest.approx((low, high), abs=1e-12), name
            assert one.interval.low < one.interval.high


def test_a_family_is_resampled_over_the_pictures_that_ask_it() -> None:
    rows = [[row for row in side if row["family"] == "count"] for side in (A, B)]
    alone = by_name(compare_questions(pair_questions(*rows), RESAMPLES))
    name = "classifier.by_family.count"
    assert alone["classifier.exact_match_per_question"].interval == FIGURES[name].interval


def test_a_run_against_itself_differs_in_nothing() -> None:
    for one in compare_questions(pair_questions(A, A), RESAMPLES):
        assert (one.difference, *one.interval) == (0.0, 0.0, 0.0)
        assert {one.p, one.p_holm} <= {None, 1.0}
        assert (one.only_a or 0, one.only_b or 0) == (0, 0)
    assert len(changes(pair_questions(A, A), CLASSIFIER)) == 0


def test_swapping_the_sides_negates() -> None:
    swapped = by_name(compare_questions(pair_questions(B, A), RESAMPLES))
    for name, one in FIGURES.items():
        other = swapped[name]
        assert other.difference == -one.difference
        assert other.interval == pytest.approx((-one.interval.high, -one.interval.low), abs=1e-12)
        assert (other.only_a, other.only_b) == (one.only_b, one.only_a)
        assert (other.p, other.p_holm) == (one.p, one.p_holm)


def test_the_order_of_rows_changes_nothing() -> None:
    mixed = [random.Random(seed).sample(side, len(side)) for seed, side in ((3, A), (4, B))]
    assert by_name(compare_questions(pair_questions(*mixed), RESAMPLES)) == FIGURES
    assert changes(pair_questions(*mixed), GENERATOR) == changes(PAIRS, GENERATOR)


def test_p_is_where_it_means_something() -> None:
    for name, one in FIGURES.items():
        assert (one.p is None) == name.endswith((".exact_match", ".bleu4"))
        assert (one.p_holm is None) == ("by_family" not in name)
        assert one.p_holm is None or (one.p is not None and one.p_holm >= one.p)


def test_a_scene_pairs_where_all_that_both_sides_tell_of_it_agrees() -> None:
    other = [dict(row) for row in B]
    of_scene = [[at for at, row in enumerate(B) if row["scene_id"] == scene] for scene in range(5)]
    other[of_scene[0][1]]["question"] = "another"
    other[of_scene[1][2]]["answer"] = "3"
    other[of_scene[2][0]]["question_id"] = 10_000
    other[of_scene[3][0]]["scene_id"] = 10_000
    other[of_scene[4][0]]["phrase"] = "a phrase of its own"
    gone = {*of_scene[0], *of_scene[1], of_scene[2][0], of_scene[3][0]}
    pairs = pair_questions(A, other)
    assert [pair.a["question_id"] for pair in pairs] == [n for n in range(len(A)) if n not in gone]
    assert all(pair.a in A and pair.b in other for pair in pairs)


def caption_side(*exact: bool) -> list[dict]:
    return [{"scene_id": n, "reference": f"r{n}", "exact": right} for n, right in enumerate(exact)]


def test_questions_and_captions_rule_out_scenes_for_each_other() -> None:
    captions, others = (caption_side(*[True] * 30) for _ in "AB")
    others[3]["reference"] = "another"
    questions = [dict(row) for row in B]
    questions[-1]["answer"] = "3"  # of the last scene
    asked, shown = pair_rows((A, questions), (captions, others))
    scenes = set(range(30)) - {3, 29}
    assert {pair.a["scene_id"] for pair in asked} == scenes
    assert {pair.a["scene_id"] for pair in shown} == scenes
    assert len(asked) == sum(row["scene_id"] in scenes for row in A)


def test_a_row_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"^B: got scene_id 0, question_id 0 twice, expected one"):
        pair_questions(A, [*B, B[0]])
    captions = caption_side(True, False)
    with pytest.raises(UserError, match=r"^A's captions: got scene_id 1 twice, expected one row"):
        pair_captions([*captions, captions[1]], captions)


def test_captions_pair_by_scene_and_true_caption() -> None:
    a, b = caption_side(True, True, True, False, True), caption_side(True, False, False, False)
    b[3]["reference"] = "another"
    pairs = pair_captions(a, b)
    assert [pair.a["scene_id"] for pair in pairs] == [0, 1, 2]
    one = compare_captions(pairs, RESAMPLES)
    assert (one.a, one.b) == pytest.approx((1, 1 / 3))
    assert (one.only_a, one.only_b, one.p) == (2, 0, 0.5)


def retrieved(*queries: tuple[str, float, float]) -> list[Pair]:
    """Pairs of a true caption, and both sides' hits in both directions."""
    return [
        Pair(*({"reference": text, **dict.fromkeys(RECALLS, hit)} for hit in hits))
        for text, *hits in queries
    ]


def test_a_tied_hit_counts_in_the_share_and_for_neither_side_alone() -> None:
    pairs = retrieved(("r0", 1.0, 0.0), ("r1", 1.0, 1.0), ("r2", 0.5, 1.0), ("r3", 0.0, 0.0))
    for direction, p in (("image_to_text", 1.0), ("text_to_image", None)):
        found = compare_retrieval(pairs, direction, RESAMPLES)
        assert found.name == f"retrieval.{direction}_R@1"
        assert (found.a, found.b) == pytest.approx((2.5 / 4, 2 / 4))
        assert (found.only_a, found.only_b, found.p) == (1, 0, p)
        assert found.interval.low < found.difference < found.interval.high


def test_queries_of_one_text_are_resampled_together() -> None:
    random_ = random.Random(5)
    texts = [random_.choice("abcdef") for _ in range(40)]
    hits = {text: (float(random_.random() < 0.6), float(text < "c")) for text in "abcdef"}
    pairs = retrieved(*((text, *hits[text]) for text in texts))
    of_text = [[pair for pair in pairs if pair.a["reference"] == text] for text in sorted(hits)]
    generator, differences = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        drawn = [pair for at in generator.integers(6, size=6) for pair in of_text[at]]
        differences.append(mean([b[RECALLS[1]] - a[RECALLS[1]] for a, b in drawn]))
    together = compare_retrieval(pairs, "text_to_image", RESAMPLES).interval
    assert together == pytest.approx(np.quantile(differences, [0.025, 0.975]), abs=1e-12)
    apart = compare_retrieval(pairs, "image_to_text", RESAMPLES).interval
    assert together.high - together.low > 1.5 * (apart.high - apart.low)


def test_changes_are_told_apart_and_the_surest_come_first() -> None:
    found = changes(PAIRS, CLASSIFIER)
    kinds = {"lost": (True, False), "gained": (False, True), "still_wrong": (False, False)}
    for kind, (right_a, right_b) in kinds.items():
        pairs: list[Pair] = getattr(found, kind)
        expected = [
            pair
            for pair in PAIRS
            if (pair.a["classifier_answer"] == "2") == right_a
            and (pair.b["classifier_answer"] == "2") == right_b
            and pair.a["classifier_answer"] != pair.b["classifier_answer"]
        ]
        assert pairs and sorted(p.a["question_id"] for p in pairs) == [
            p.a["question_id"] for p in expected
        ]
        keys = [(-p.b["classifier_confidence"], p.b["question_id"]) for p in pairs]
        assert keys == sorted(keys)
    assert len(found) == sum(map(len, vars(found).values()))


@given(st.permutations(range(6)))
def test_without_a_confidence_ids_decide(order: list[int]) -> None:
    rows = [{**A[at], "generator_phrase": A[at]["phrase"]} for at in order]
    lost = changes([Pair(row, {**row, "generator_phrase": "no"}) for row in rows], GENERATOR).lost
    assert [pair.b["question_id"] for pair in lost] == list(range(6))


def test_a_confidence_that_is_no_number_comes_last() -> None:
    rows = [{**A[at], "classifier_answer": "2"} for at in range(4)]
    sure = [0.25, math.nan, 0.75, 0.5]
    wrong = [
        {**row, "classifier_answer": "3", "classifier_confidence": each}
        for row, each in zip(rows, sure, strict=True)
    ]
    lost = changes(map(Pair, rows, wrong), CLASSIFIER).lost
    assert [pair.b["question_id"] for pair in lost] == [2, 3, 0, 1]
