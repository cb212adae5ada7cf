"""A few pictures of every probe, for people to look at: before and after, asked, true and said."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vlm.data import png
from vlm.data.tables import write_columns
from vlm.evaluation.altering import Split
from vlm.evaluation.causal import Outcome

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FAILURES, SHOWN = 2, 6  # of each probe
LOOKED_AT = 8


def choose(outcome: Outcome, split: Split) -> Ints:
    """Which of the altered questions are shown: failures first, then one family after the other.

    Where truths changed, only such are chosen. No picture is shown twice.
    """
    asked = outcome.altered.questions
    changed = asked.answer != split.questions.answer[outcome.altered.rows]
    worth = np.flatnonzero(changed) if changed.any() else np.arange(len(asked))
    right = outcome.after.right(asked)
    wrong = ~(right["classifier"] & right["generator"])
    turn = np.zeros(len(worth), np.int64)  # of each question within its family
    for family in np.unique(asked.family.astype(str)):
        mine = asked.family[worth] == family
        turn[mine] = np.arange(mine.sum())
    order = [*worth[wrong[worth]][:FAILURES], *worth[np.argsort(turn, kind="stable")]]
    chosen: dict[int, int] = {}
    for row in order:
        chosen.setdefault(int(asked.scene_id[row]), int(row))
        if len(chosen) == SHOWN:
            break
    return np.array(list(chosen.values()), np.int64)


def example_rows(outcome: Outcome, split: Split) -> list[dict[str, Any]]:
    """A row an example: pictures as PNG, questions, truths, and both heads' replies."""
    asked, own = outcome.altered.questions, split.questions
    rows = []
    for row in choose(outcome, split):
        was = outcome.altered.rows[row]
        rows.append(
            {
                "probe": outcome.name,
                "scene_id": asked.scene_id[row],
                "before": png.encode(split.scenes.images[own.scene_index[was]]),
                "after": png.encode(outcome.altered.scenes.images[asked.scene_index[row]]),
                "question_before": own.question[was],
                "question_after": asked.question[row],
                "truth_before": own.answer[was],
                "truth_after": asked.answer[row],
                "phrase_after": asked.phrase[row],
                "classifier_before": outcome.before.answers.answer[row],
                "classifier_after": outcome.after.answers.answer[row],
                "generator_before": outcome.before.phrases[row],
                "generator_after": outcome.after.phrases[row],
            }
        )
    return rows


def write_examples(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows of `example_rows`, of all probes."""
    write_columns(path, {name: [row[name] for row in rows] for name in rows[0]})


def write_attention(path: Path, maps: Mapping[str, Floats], split: Split) -> None:
    """Where each place of attention looked for some questions that name an object."""
    asked = split.questions
    named = split.truth.named(split.layout, asked.scene_index, asked.question)
    worth = np.flatnonzero((named & split.layout.present[asked.scene_index]).any(axis=1))
    _, first = np.unique(asked.scene_id[worth], return_index=True)
    shown = worth[first][:LOOKED_AT]
    places = [(place, row) for place in maps for row in shown]
    write_columns(
        path,
        {
            "place": [place for place, _ in places],
            "scene_id": [asked.scene_id[row] for _, row in places],
            "question": [asked.question[row] for _, row in places],
            "weights": [maps[place][row].tolist() for place, row in places],
        },
    )
