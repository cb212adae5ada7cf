"""The rules by which sentences follow from numbers: each from both sides."""

from typing import Any

import pytest

from vlm.reporting import attention, confidence, errors, interventions, probes, summary, unlike
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


FOLLOWED = [
    (0.93, 0.97, "follows the change nearly always, so it comes from the picture"),
    (0.83, 0.87, "more often than guesses do, so in part it comes from the picture"),
    (0.45, 0.55, "no more often than guesses would, as far as this can tell: no sign"),
    (0.25, 0.35, "less often than guesses would: no sign that it comes from the picture"),
]


@pytest.mark.parametrize(("low", "high", "words"), FOLLOWED)
def test_what_follows_flips_with_the_interval(low: float, high: float, words: str) -> None:
    figures = {"follows_floor": 0.5, "changed_truths": 1, **both(figure("follows", low, high))}
    told = interventions.conclusion("shuffled_pictures", figures)
    assert words in told
    assert "of the 1 question whose truth changed" in told
    assert "guesses do so well" not in told


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.93, 0.97, "stays what it was nearly always, so the background hardly matters"),
        (0.85, 0.95, "about nine times in ten: whether the background matters stays open"),
        (0.70, 0.80, "changes more than one time in ten, so the background matters"),
    ],
)
def test_what_stays_flips_with_the_interval(low: float, high: float, words: str) -> None:
    figures = both(figure("same_reply", low, high) | figure("holds", 0.9, 0.92))
    assert words in interventions.conclusion("erased_background", figures)


@pytest.mark.parametrize(
    ("low", "expected"),
    [
        (0.93, "It looks at the picture and it reads the question."),
        (0.70, "It looks at the picture in part and it reads the question in part."),
        (0.40, "Nothing shows that it looks at the picture and nothing shows that it reads"),
    ],
)
def test_the_first_words_go_by_the_worse_head(low: float, expected: str) -> None:
    probe = {
        "follows_floor": 0.5,
        "classifier": figure("follows", 0.95, 0.99),
        "generator": figure("follows", low, low + 0.05),
    }
    figures = {"floors": {"majority": 0.4}, "classifier": {}, "generator": {}}
    told, words = summary.told(figures | {"probes": dict.fromkeys(interventions.PROBES, probe)})
    assert told.startswith(expected)
    assert "guessing gets 40.0% at best (majority answer)" in words


def test_a_probe_that_was_not_measured_is_replaced_by_the_next() -> None:
    probe = {"follows_floor": 0.5, **both(figure("follows", 0.95, 0.99))}
    figures = {"floors": {}, "classifier": {}, "generator": {}, "probes": {}}
    assert summary.told(figures)[0].startswith("Whether it looks at the picture was not measured")
    figures["probes"] = {"shuffled_pictures": probe}
    told, words = summary.told(figures)
    assert told == "It looks at the picture and whether it reads the question was not measured."
    assert "Where another picture is shown" in words


@pytest.mark.parametrize(
    ("by_chance", "words"),
    [(0.79, "keep to few"), (0.85, "as chance would"), (0.91, "spread over many")],
)
def test_errors_over_pictures(by_chance: float, words: str) -> None:
    figures = both(figure("all_right", 0.8, 0.9) | {"if_independent": by_chance})
    assert words in "".join(errors.whole_pictures(figures))


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


@pytest.mark.parametrize(("floor", "words"), [(0.01, "strays from"), (0.03, "can&#x27;t be told")])
def test_calibration_against_what_chance_explains(floor: float, words: str) -> None:
    figures = both(figure("ece", 0.02, 0.05) | {"ece_floor": floor})
    assert words.replace("&#x27;", "'") in confidence.conclusion(figures)


@pytest.mark.parametrize(
    ("low", "high", "random", "words"),
    [
        (1.2, 1.4, 1.1, "more than by chance and than with random weights (1.10)"),
        (1.2, 1.4, 1.3, "with random weights as much (1.30): training added nothing"),
        (0.9, 1.1, 1.0, "can't be told from taking no notice"),
        (0.7, 0.9, 1.0, "less than by chance"),
    ],
)
def test_attention_against_area_and_control(
    low: float, high: float, random: float, words: str
) -> None:
    own = figure("times_area", low, high) | {"random_weights_times_area": random}
    assert words in attention.conclusion("classifier_encoder", own)


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


def test_answers_that_training_has_need_no_note() -> None:
    crowd = {"crowd": both({"by_family": {"count": 0.0, "exists": 0.9}})}
    assert unlike.unanswerable(crowd) == ""
    told = unlike.unanswerable(crowd | {"answers_outside_vocabulary": 0.1})
    assert told.endswith("So nothing is right in count.")


@pytest.mark.parametrize(
    ("alike", "relation", "words"),
    [
        (0.01, 0.5, "hardly any answer changes where order can't matter"),
        (0.05, 0.5, "whether answers change where order can't matter stays open"),
        (0.20, 0.5, "answers change even where order can't matter"),
        (0.01, 0.5, "answers change in relation, where order counts: 50.0% (classifier)"),
        (0.01, 0.02, "no sign in relation that the order is read"),
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
