"""Which rows of two runs are about the same thing.

A scene's id is only a number within its split, and another split has it too: a scene is the same
where all that both sides tell of its truth is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from vlm.errors import UserError

Row = Mapping[str, Any]  # of `data/predictions/questions.parquet`, or of the captions beside it
Ids = tuple[int, ...]


class Pair(NamedTuple):
    """What both sides say to one question, or of one picture."""

    a: Row
    b: Row


def pair_rows(
    questions: tuple[Iterable[Row], Iterable[Row]], captions: tuple[Iterable[Row], Iterable[Row]]
) -> tuple[list[Pair], list[Pair]]:
    """The questions and the captions of the scenes that are the same on both sides, by their ids.

    Of such a scene every question that both sides have is equal, and so are its answer and the
    scene's true caption. One that differs makes all that is said of the scene no pair.

    Args:
        questions: Of side A and of side B, in any order.
        captions: Likewise.

    Raises:
        UserError: A side that has a question or a scene's caption twice.
    """
    asked = _common(questions, ("scene_id", "question_id"), ("A", "B"))
    shown = _common(captions, ("scene_id",), ("A's captions", "B's captions"))
    others = _scenes_apart(asked, ("question", "answer")) | _scenes_apart(shown, ("reference",))
    asked, shown = (
        [pair for pair in pairs if pair.a["scene_id"] not in others] for pairs in (asked, shown)
    )
    return asked, shown


def pair_questions(rows_a: Iterable[Row], rows_b: Iterable[Row]) -> list[Pair]:
    """The questions in both, where nothing is known of the captions: see `pair_rows`."""
    return pair_rows((rows_a, rows_b), ((), ()))[0]


def pair_captions(rows_a: Iterable[Row], rows_b: Iterable[Row]) -> list[Pair]:
    """The captions in both, where nothing is known of the questions: see `pair_rows`."""
    return pair_rows(((), ()), (rows_a, rows_b))[1]


def _common(
    sides: tuple[Iterable[Row], Iterable[Row]], ids: Sequence[str], sources: tuple[str, str]
) -> list[Pair]:
    """The rows whose ids both sides have, sorted by them."""
    of_a, of_b = (_by_ids(rows, ids, source) for rows, source in zip(sides, sources, strict=True))
    return [Pair(of_a[key], of_b[key]) for key in sorted(of_a.keys() & of_b.keys())]


def _scenes_apart(pairs: Iterable[Pair], truths: Iterable[str]) -> set[int]:
    """Scenes of which the sides tell another truth."""
    return {
        pair.a["scene_id"] for pair in pairs if any(pair.a[name] != pair.b[name] for name in truths)
    }


def _by_ids(rows: Iterable[Row], ids: Sequence[str], source: str) -> dict[Ids, Row]:
    """The rows by the columns that name them.

    Args:
        rows: In any order.
        ids: The columns.
        source: What an error names.

    Raises:
        UserError: Two rows of the same ids.
    """
    found: dict[Ids, Row] = {}
    for row in rows:
        key = tuple(row[name] for name in ids)
        if key in found:
            which = ", ".join(f"{name} {row[name]}" for name in ids)
            raise UserError(f"{source}: got {which} twice, expected one row of it")
        found[key] = row
    return found
