"""The rules by which sentences follow from numbers: each from both sides."""

from typing import Any

import pytest

from vlm.reporting import attention, confidence, errors, probes, unlike
from vlm.reporting.markup import counted, listed, percent, percent_interval
from vlm.reporting.verdicts import Grade, Share, compare, for_heads, grade, share


def figure(name: str, low: float, high: float) -> dict[str, float]:
    return {name: (low + high) / 2, f"{name}_low": low, f"{name}_high": high}


def both(own: dict[str, Any]) -> dict[str, Any]:
    return {"classifier": own, "generator": own}


@pytest.mark.parametrize(
    ("low", "high", "floor", "expected"),
    [
        (0.91, 0.95, 0.5, Grade.SURE),
        (0.90, 0.95, 0.5, Grade.ABOVE),  # must exceed it
        (0.91, 0.95, 0.92, Grade.LIKE),  # nearly always, but so do guesses
        (0.51, 0.60, 0.5, Grade.ABOVE),
        (0.50, 0.60, 0.5, Grade.LIKE),
        (0.40, 0.50, 0.5, Grade.LIKE),
        (0.40, 0.49, 0.5, Grade.BELOW),
    ],
)
def test_grades(low: float, high: float, floor: float, expected: Grade) -> None:
    assert grade(Share(low, low, high), floor) == expected


def test_intervals_that_overlap_tell_nothing() -> None:
    one, other = Share(0.5, 0.4, 0.6), Share(0.7, 0.6, 0.8)
    assert compare(one, other) == compare(other, one) == 0
    assert (compare(one, Share(0.7, 0.61, 0.8)), compare(Share(0.7, 0.61, 0.8), one)) == (-1, 1)


def test_a_share_without_its_ends_is_none() -> None:
    assert share(figure("x", 0.25, 0.75), "x") == Share(0.5, 0.25, 0.75)
    assert share({"x": 0.5, "x_low": 0.4}, "x") is None
    rows = {"x": {"a": 0.5}, "x_low": {"a": 0.4}, "x_high": {"a": 0.6}}
    assert share(rows, "x", "a") == Share(0.5, 0.4, 0.6)
    assert share(rows, "x", "b") is None


def test_heads_that_agree_are_told_once() -> None:
    assert for_heads({"classifier": "x", "generator": "x"}) == "For both heads x"
    assert for_heads({"classifier": "x"}) == "For the classifier x"
    differ = for_heads({"classifier": "x", "generator": "y"})
    assert differ == "For the classifier x; for the generator y"


@pytest.mark.parametrize(
    ("by_chance", "words"),
    [(0.79, "keep to few"), (0.85, "as chance would"), (0.91, "spread over many")],
)
def test_errors_over_pictures(by_chance: float, words: str) -> None:
    figures = both(figure("all_right", 0.8, 0.9) | {"if_independent": by_chance})
    assert words in "".join(errors.whole_pictures(figures))


@pytest.mark.parametrize(
    ("right", "words"),
    [(1.0, "there are no errors"), (0.999, "as chance would"), (0.0, "no picture is all right")],
)
def test_chance_spreads_no_errors_where_there_are_none(right: float, words: str) -> None:
    own = {"all_right": right, "all_right_low": right - 0.01, "all_right_high": right + 0.01}
    told = "".join(errors.whole_pictures(both(own | {"if_independent": right})))
    assert f"For both heads {words}" in told or f"For both heads errors lie {words}" in told


@pytest.mark.parametrize(("changed", "words"), [(27, " 27.0% of 100 questions only"), (None, "")])
def test_how_seldom_another_order_turns_the_truth(changed: int | None, words: str) -> None:
    swapped = {"questions": 100} | ({} if changed is None else {"changed_truths": changed})
    told = probes.order_tells({"probes": {"swapped_words": swapped}}, ["count", "relation"])
    bare = probes.order_tells({}, ["count", "relation"])
    more = f" Exchanging the two nouns, above, changes the truth of{words}." if words else ""
    assert told == bare + more
    assert probes.order_tells({"probes": {"swapped_words": swapped}}, ["count"]) == ""


@pytest.mark.parametrize(
    "families", [("count",), ("count", "relation"), ("compare",), ("compare", "relation")]
)
def test_order_counts_in_relation_and_in_compare_alone(families: tuple[str, ...]) -> None:
    told = probes.words_alone(families) + probes.order_tells({}, families)
    for family in ("compare", "relation"):
        assert (f"in {family} " in told) == (family in families)
    assert ("every family but" in told) == (families != ("count",))
    own = {
        f"changed_by_family{end}": dict.fromkeys(families, 0.3 + add)
        for end, add in (("", 0.0), ("_low", -0.01), ("_high", 0.01))
    }
    told = probes.scrambled_words(both(own))
    assert ("where order can't matter" in told) == ("count" in families)
    for family in ("compare", "relation"):
        assert (f"answers change in {family}, where order counts" in told) == (family in families)


@pytest.mark.parametrize(
    ("most", "words"), [(0.7, "are harder"), (0.89, "no difference shows"), (0.99, "are easier")]
)
def test_errors_by_objects(most: float, words: str) -> None:
    by = {"2": 0.9, "10": most}  # by number, not by spelling
    own = {
        f"by_number{end}": {name: value + add for name, value in by.items()}
        for end, add in (("", 0.0), ("_low", -0.01), ("_high", 0.01))
    }
    told = "".join(errors.by_objects(both(own)))
    assert words in told
    assert f"(90.0% with 2 objects, {most:.1%} with 10 objects)" in told


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (0.034, "for both heads confidence strays from accuracy further than chance explains"),
        (0.035, "for both heads confidence can't be told from a calibrated one"),
        (None, "for both heads nothing is known of the error that chance alone makes"),
    ],
)
def test_calibration_against_what_chance_explains(bound: float | None, words: str) -> None:
    own = {"ece": 0.035, "ece_low": 0.02, "ece_high": 0.05, "ece_floor": 0.01}
    figures = both(own | ({} if bound is None else {"ece_floor_high": bound}))
    assert confidence.conclusion(figures).startswith(f"As it is: {words}; ECE 3.50%")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.2, 1.4, "named objects: more than by chance"),
        (0.9, 1.1, "named objects, which can't be told from taking no notice"),
        (0.7, 0.9, "named objects: less than by chance"),
    ],
)
@pytest.mark.parametrize(
    ("away", "told"),
    [(-0.2, "it is more."), (-0.05, "it can't be told apart."), (0.2, "it is less.")],
)
def test_attention_against_area_and_control(
    low: float, high: float, words: str, away: float, told: str
) -> None:
    own, random = figure("times_area", low, high), (low + high) / 2 + away
    one = attention.conclusion("classifier_encoder", own | {"random_weights_times_area": random})
    assert one.endswith(f"{words}; beside random weights ({random:.2f}) {told}")
    assert attention.conclusion("classifier_encoder", own).endswith(f"{words}.")


@pytest.mark.parametrize(("other", "words"), [(1.1, "is more than it"), (1.3, "not clearly more")])
def test_words_may_look_at_what_they_name(other: float, words: str) -> None:
    own = figure("times_area", 1.2, 1.4) | figure("others_times_area", other - 0.05, other + 0.05)
    assert words in attention.conclusion("generator_words", own)
    assert "other objects" not in attention.conclusion("generator_encoder", own)
    nothing = {"questions": 0, "mass": None, "area": None, "times_area": None}
    assert "not measured" in attention.conclusion("generator_words", nothing)


@pytest.mark.parametrize(
    ("low", "words"),
    [(0.95, "easier"), (0.88, "no drop shows"), (0.7, "falls"), (0.3, "isn't above the floor")],
)
def test_scenes_unlike_training(low: float, words: str) -> None:
    usual = both(figure("exact_match", 0.85, 0.9))
    own = {"floors": {"majority": 0.5}, **both(figure("exact_match", low, low + 0.04))}
    told = unlike.conclusion(own, usual)
    assert words in told
    assert ("isn't above" in told) == (low < 0.5)


@pytest.mark.parametrize(
    ("answers", "ending"),
    [
        ({"count": ["1", "9"]}, "Such answers occur in count, so nothing there is right."),
        ({"exists": ["no", "perhaps"]}, "Such answers occur in exists."),
        (
            {"count": ["9"], "exists": ["perhaps"]},
            "Such answers occur in count and exists, so nothing in count is right.",
        ),
        ({"count": ["1"], "exists": ["no"]}, "and not a failure of sight."),
    ],
)
def test_only_answers_outside_training_are_unanswerable(
    answers: dict[str, list[str]], ending: str
) -> None:
    # Nothing in relation is right either, but that is a failure.
    found = {"crowd": both({"by_family": {"count": 0.0, "exists": 0.9, "relation": 0.0}})}
    split = {family: dict.fromkeys(own, 0.5) for family, own in answers.items()}
    train = {"count": {"1": 1.0}, "exists": {"no": 1.0}, "relation": {"no": 1.0}}
    split["relation"] = {"1": 1.0}  # known to train, in another family
    generated = {"train": {"answers": train}, "test_ood": {"answers": split}}
    assert unlike.unanswerable(found, generated) == ""
    some = found | {"answers_outside_vocabulary": 0.1}
    assert unlike.unanswerable(some, generated).endswith(ending)


@pytest.mark.parametrize(
    ("alike", "relation", "words"),
    [
        (0.01, 0.5, "hardly any answer changes where order can't matter"),
        (0.05, 0.5, "whether answers change where order can't matter stays open"),
        (0.20, 0.5, "answers change even where order can't matter"),
        (0.01, 0.5, "answers change in relation, where order counts: 50.0% (classifier)"),
        (0.01, 0.05, "whether answers change in relation, where order counts, stays open"),
        (0.01, 0.02, "hardly any answer changes in relation, where order counts"),
    ],
)
def test_scrambled_words(alike: float, relation: float, words: str) -> None:
    own = {
        f"changed_by_family{end}": {"count": alike + add, "exists": 0.0, "relation": relation + add}
        for end, add in (("", 0.0), ("_low", -0.01), ("_high", 0.01))
    }
    assert words in probes.scrambled_words(both(own))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "100.0%"),
        (0.9997, "99.97%"),
        (0.99999, ">99.99%"),
        (0.5, "50.0%"),
        (0.0003, "0.03%"),
        (0.00001, "<0.01%"),
        (0.0, "0.0%"),
        (None, "not measured"),
    ],
)
def test_what_is_not_quite_all_never_reads_as_all(value: float | None, text: str) -> None:
    assert percent(value) == text


def test_numbers_in_words() -> None:
    assert percent_interval(0.9, 0.9997) == "90.0 to 99.97%"
    assert [counted(n, "cell") for n in (0, 1, 2000)] == ["0 cells", "1 cell", "2,000 cells"]
    assert [listed(list(words)) for words in ("", "a", "ab", "abc")] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
