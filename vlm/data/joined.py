"""Scenes and their questions read together, group by group, and as one table of both.

Splits may be larger than memory: a row group of each table is all that is held.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from vlm.data.schema import QUESTIONS, SCENES, described
from vlm.data.shards import Ints, read_groups
from vlm.data.writing import GROUP_BYTES, row_bytes
from vlm.errors import UserError

# A row a question, with its scene beside it; a scene without questions is one row.
JOINED = described(
    {
        name: (SCENES if name in SCENES.names else QUESTIONS).field(name).type
        for name in (
            *("scene_id", "image"),
            *("question_id", "family", "question", "answer", "phrase", "answers"),
            *("captions", "caption_keys", "objects"),
        )
    }
)


class Told(NamedTuple):
    """A row group of scenes, and all that is asked about them, scene by scene."""

    path: Path  # of the scenes' shard
    first: int  # the row there that the group begins with
    scenes: pa.Table  # of `SCENES`
    questions: pa.Table  # of `QUESTIONS`


def read_told(folder: Path) -> Iterator[Told]:
    """A split's scenes with their questions; there may be no table of questions.

    Raises:
        UserError: A table that is missing, empty or damaged, scenes whose numbers don't rise, or
            questions in another order than their scenes.
    """
    asked = any(folder.glob("questions-*.parquet"))
    groups = read_groups(folder, "questions", QUESTIONS) if asked else iter(())
    waiting = QUESTIONS.empty_table()
    place, last = folder / "questions-00000.parquet", None
    for path, first, scenes in read_groups(folder, "scenes", SCENES):
        scene_id = _rising(path, scenes, last, strictly=True)
        if not len(scenes):
            continue
        last = scene_id[-1]
        while not len(waiting) or waiting["scene_id"][-1].as_py() <= last:
            group = next(groups, None)
            if group is None:
                break
            place = group[0]
            waiting = pa.concat_tables([waiting, group[2]])
        of = _rising(place, waiting, None, strictly=False)
        end = int(np.searchsorted(of, last, side="right"))
        lost = np.flatnonzero(~np.isin(of[:end], scene_id))
        if len(lost):
            raise _misplaced(place, of[lost[0]])
        yield Told(path, first, scenes, waiting[:end])
        waiting = waiting[end:]
    if len(waiting):
        raise _misplaced(place, waiting["scene_id"][0])
    for path, _, group in groups:
        for scene_id in group["scene_id"]:
            raise _misplaced(path, scene_id)


def join(told: Told) -> Iterator[pa.Table]:
    """The rows of `JOINED`, in tables whose pictures and texts take about `GROUP_BYTES`.

    A table begins with a new scene, unless that scene alone takes more.
    """
    scenes, questions = told.scenes, told.questions
    row = np.searchsorted(scenes["scene_id"].to_numpy(), questions["scene_id"].to_numpy())
    number = np.bincount(row, minlength=len(scenes))
    rows = np.maximum(number, 1)
    scene = np.arange(len(scenes)).repeat(rows)
    asked = (number > 0).repeat(rows)
    question = np.where(asked, np.cumsum(asked) - 1, 0)
    size = row_bytes(scenes)[scene]
    size[asked] += row_bytes(questions)
    for part in _cut(size, np.cumsum(rows)):
        of_scene = scenes.take(pa.array(scene[part]))
        of_question = questions.take(pa.array(question[part], mask=~asked[part]))
        columns = [
            (of_scene if name in SCENES.names else of_question)[name] for name in JOINED.names
        ]
        yield pa.table(columns, schema=JOINED)


def _cut(size: Ints, ends: Ints) -> Iterator[slice]:
    """Consecutive rows that take up to `GROUP_BYTES` together, cut at one of `ends` if they can."""
    full, start = np.cumsum(size), 0
    while start < len(full):
        before = full[start - 1] if start else 0
        end = int(np.searchsorted(full, before + GROUP_BYTES, side="right"))
        whole = int(ends[np.searchsorted(ends, end, side="right") - 1]) if end >= ends[0] else 0
        end = whole if whole > start else max(end, start + 1)
        yield slice(start, end)
        start = end


def _rising(path: Path, table: pa.Table, last: int | None, strictly: bool) -> Ints:
    """The scenes' numbers, refused where one doesn't rise; the first must exceed `last`."""
    scene_id = table["scene_id"].to_numpy()
    before = scene_id[:-1]
    after = scene_id[1:]
    if last is not None and len(scene_id):
        before, after = np.concatenate([[last], before]), scene_id
    wrong = ~(after > before) if strictly else ~(after >= before)
    if wrong.any():
        raise _misplaced(path, after[wrong][0])
    return scene_id


def _misplaced(path: Path, scene_id: object) -> UserError:
    return UserError(
        f"{path}: got scene_id {scene_id} out of place, expected the scene table's, and rising"
    )
