"""What is said of a change: right both times first, right afterwards second, from both sides."""

from typing import Any

import pytest
from test_verdicts import both, figure

from vlm.reporting import summary
from vlm.reporting.changes import PROBES, Following, conclusion, following, grade_change
from vlm.reporting.verdicts import Grade, Share

HEADS = {"floors": {"majority": 0.4}, "classifier": {}, "generator": {}}


def probe(
    both_low: float, both_high: float, follows_low: float = 0.6, **others: float
) -> dict[str, Any]:
    """A probe in which both heads do the same; guesses follow in 50%, and half the answers stay."""
    own = figure("both_right", both_low, both_high)
    own |= figure("follows", follows_low, follows_low + 0.02) | figure("same_reply", 0.48, 0.52)
    return {"follows_floor": 0.5, "changed_truths": 1, "questions": 9, **both(own), **others}


@pytest.mark.parametrize(
    ("low", "follows", "expected"),
    [
        (0.91, 0.92, Grade.SURE),
        (0.90, 0.92, Grade.ABOVE),  # must exceed it
        (0.06, 0.51, Grade.ABOVE),
        (0.05, 0.51, Grade.BELOW),
        (0.06, 0.50, Grade.LIKE),
        (0.91, 0.50, Grade.LIKE),
        (0.0, 0.99, Grade.BELOW),  # right afterwards alone shows nothing
    ],
)
def test_right_both_times_comes_first(low: float, follows: float, expected: Grade) -> None:
    found = Following(Share(low, low, 1.0), Share(follows, follows, 1.0), 0.5)
    assert grade_change(found) is expected


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (probe(0.92, 0.94), "the change nearly always, so it comes from the picture"),
        (probe(0.5, 0.6), "the change in part of the cases, so in part it comes from the picture"),
        (probe(0.1, 0.2, 0.5), "it follows no more often than guesses do: no sure sign that it"),
        (probe(0.01, 0.2), "no more than now and then, as far as this can tell: no sign that it"),
        (probe(0.01, 0.05), "the answer is right both before and after the change hardly ever: no"),
    ],
)
def test_what_is_said_of_another_picture(figures: dict[str, Any], words: str) -> None:
    told = conclusion("shuffled_pictures", figures)
    assert words in told
    assert "of the 1 question whose truth changed (who ignores the change: in none)" in told
    assert "guesses do so well" not in told and "knows nothing of the change" not in told
    assert "ignores the question" not in told


def test_both_guessers_are_told_where_both_are_known() -> None:
    told = conclusion("erased_object", probe(0.5, 0.6, follows_blind=0.3))
    assert "is so in 50.0% (the one that knows nothing of the change: 30.0%)." in told


@pytest.mark.parametrize(
    ("same", "words"),
    [(0.59, "so in part it belongs to"), (0.6, "no more often than it stays what it was: no sure")],
)
def test_another_question_is_set_against_keeping_the_answer(same: float, words: str) -> None:
    figures = probe(0.3, 0.4, follows_floor=0.99)  # which reads, and so is no bar to reading
    for head in ("classifier", "generator"):
        figures[head] = figures[head] | {"same_reply": same}
    told = conclusion("shuffled_questions", figures)
    assert words in told
    assert f"The answer is the same in {same:.1%} (classifier) and {same:.1%} (generator)" in told


@pytest.mark.parametrize("missing", ["both_right_low", "both_right", "follows_high"])
def test_a_head_without_its_figures_is_not_graded(missing: str) -> None:
    figures = probe(0.5, 0.6)
    for head in ("classifier", "generator"):
        figures[head] = {k: v for k, v in figures[head].items() if k != missing}
    assert following("erased_object", figures, "classifier") is None
    assert conclusion("erased_object", figures) == "What follows it: not measured."


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
    assert words in conclusion("erased_background", figures)


SURE, PART, GUESSED, NOT = (0.93, 0.95), (0.5, 0.6), (0.5, 0.6, 0.4), (0.01, 0.03)


@pytest.mark.parametrize(
    ("looks", "reads", "order", "expected"),
    [
        (
            SURE,
            SURE,
            SURE,
            "It looks at the picture, it reads the question and it reads word order.",
        ),
        (
            PART,
            PART,
            PART,
            "It looks at the picture in part, it reads the question in part and it reads word"
            " order in part.",
        ),
        (
            SURE,
            (0.94, 0.96),
            (0.015, 0.025),
            "It looks at the picture and it reads the question's words, not their order.",
        ),
        (
            SURE,
            SURE,
            (0.01, 0.2),
            "It looks at the picture, it reads the question and nothing shows that it reads word"
            " order.",
        ),
        (
            NOT,
            NOT,
            NOT,
            "Nothing shows that it looks at the picture, nothing shows that it reads the question"
            " and nothing shows that it reads word order.",
        ),
        (
            GUESSED,
            GUESSED,
            NOT,
            "It looks at the picture in part, if at all (the answer follows no more often than"
            " guesses do), it reads the question in part, if at all (the answer follows no more"
            " often than it stays what it was) and nothing shows that it reads word order.",
        ),
    ],
)
def test_the_first_words(
    looks: tuple[float, ...], reads: tuple[float, ...], order: tuple[float, ...], expected: str
) -> None:
    probes = {
        "erased_object": probe(*looks),
        "shuffled_questions": probe(*reads),
        "swapped_words": probe(*order),
    }
    told, words = summary.told(HEADS | {"probes": probes})
    assert told == expected
    assert "guessing gets 40.0% at best (majority answer)" in words
    # No section says otherwise.
    for name, found in probes.items():
        nothing = (
            min(
                summary.grade_change(f)
                for h in ("classifier", "generator")
                if (f := following(name, found, h))
            )
            is Grade.BELOW
        )
        assert nothing == (": no sign that" in conclusion(name, found))


def test_the_first_words_go_by_the_worse_head_and_name_it() -> None:
    weak = probe(*SURE) | {"generator": probe(*NOT)["generator"]}
    told, _ = summary.told(HEADS | {"probes": dict.fromkeys(PROBES, weak)})
    assert told.startswith(
        "Nothing shows that the worse head, the generator, looks at the picture,"
    )
    # One head reads the order: it isn't said that both do not.
    order = {"shuffled_questions": probe(*SURE), "swapped_words": weak}
    assert "not their order" not in summary.told(HEADS | {"probes": order})[0]


def test_a_probe_that_was_not_measured_is_replaced_by_the_next() -> None:
    figures = {**HEADS, "probes": {}}
    assert summary.told(figures)[0] == (
        "Whether it looks at the picture was not measured, whether it reads the question was not"
        " measured and whether it reads word order was not measured."
    )
    figures["probes"] = {"shuffled_pictures": probe(*SURE)}
    told, words = summary.told(figures)
    assert told.startswith(
        "It looks at the picture, whether it reads the question was not measured"
    )
    assert "Where another picture is shown" in words
