"""A split's tables, read whole from their Parquet shards."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlm.data.schema import QUESTIONS, SCENES
from vlm.data.shards import (
    Images,
    Ints,
    RowGroup,
    Strings,
    decode_all,
    read_column,
    row_groups,
    string_lists,
    strings,
)
from vlm.errors import UserError
from vlm.files import atomic_path

TEXT_COLUMNS = ("family", "question", "answer", "phrase")


@dataclass(frozen=True, eq=False)
class SceneTable:
    """The scenes of a split; n pictures of one size."""

    scene_id: Ints  # (n,)
    images: Images  # (n, C, H, W)
    objects: list[list[dict[str, Any]]]
    captions: list[list[str]]
    caption_keys: list[list[str]]  # one for each caption
    source: str = "scenes in memory"  # or the folder that they were read from

    def __len__(self) -> int:
        return len(self.scene_id)

    def described(self) -> "SceneTable":
        """The scenes that have captions; of own pictures, those without an answer have none."""
        rows = np.flatnonzero([len(captions) > 0 for captions in self.captions])
        if len(rows) == len(self):
            return self
        return SceneTable(
            self.scene_id[rows],
            self.images[rows],
            [self.objects[row] for row in rows],
            [self.captions[row] for row in rows],
            [self.caption_keys[row] for row in rows],
            self.source,
        )


@dataclass(frozen=True, eq=False)
class QuestionTable:
    """The questions of a split; m rows."""

    question_id: Ints  # (m,)
    scene_id: Ints  # (m,)
    scene_index: Ints  # (m,), the row of the question's scene in the scene table
    family: Strings  # (m,)
    question: Strings  # (m,)
    answer: Strings  # (m,)
    phrase: Strings  # (m,)
    source: str = "questions in memory"  # or the folder that they were read from

    def __len__(self) -> int:
        return len(self.question_id)


class Questions:
    """The questions of a split on disk, read for some scenes at a time.

    They may stand in any order; where they stand scene by scene, as this project writes them, no
    more is read than the row groups in which the scenes' questions lie.

    Args:
        folder: of the split.
        answered: whether questions whose answer or phrase is withheld are left out.

    Raises:
        UserError: A table that is missing, empty or not `QUESTIONS`, or a scene_id that the
            scene table lacks.
    """

    def __init__(self, folder: str | Path, answered: bool = True) -> None:
        self._folder, self._answered = Path(folder), answered
        scenes = row_groups(folder, "scenes", SCENES)
        known = np.sort(read_column(scenes, "scene_id").to_numpy())
        self._groups: list[tuple[RowGroup, int, int]] = []  # with the least and greatest scene_id
        for group in row_groups(folder, "questions", QUESTIONS):
            of_scene = group.read(["scene_id"])["scene_id"].to_numpy()
            lost = np.flatnonzero(~_among(of_scene, known))
            if len(lost):
                raise UserError(
                    f"{group.path} row {group.first + lost[0]}: got scene_id"
                    f" {of_scene[lost[0]]}, expected one of the {len(known)} in the scene table"
                )
            self._groups.append((group, int(of_scene.min()), int(of_scene.max())))

    def of(self, scene_id: Ints) -> QuestionTable:
        """The questions about these scenes, in the table's order."""
        order = np.argsort(scene_id, kind="stable")
        ascending = scene_id[order]
        names = ["question_id", "scene_id", *TEXT_COLUMNS]
        parts = [QUESTIONS.empty_table().select(names)]
        for group, least, greatest in self._groups:
            begin, end = np.searchsorted(ascending, (least, greatest + 1))
            if begin == end:
                continue
            part = group.read(names)
            parts.append(part.filter(_among(part["scene_id"].to_numpy(), ascending)))
        table = _answered(pa.concat_tables(parts)) if self._answered else pa.concat_tables(parts)
        of_scene = table["scene_id"].to_numpy()
        return QuestionTable(
            table["question_id"].to_numpy(),
            of_scene,
            order[np.searchsorted(ascending, of_scene)],
            *(strings(table[name]) for name in TEXT_COLUMNS),
            source=str(self._folder),
        )


def read_scenes(folder: str | Path, limit: int | None = None) -> SceneTable:
    """Read a split's scenes, or the first `limit` of them, and decode their pictures.

    Raises:
        UserError: A table that is missing, empty or not `SCENES`, or a picture that cannot be
            decoded or differs in size from the first.
    """
    groups = row_groups(folder, "scenes", SCENES)
    if limit is not None:
        before = np.cumsum([0, *(group.rows for group in groups)])
        groups = groups[: int(np.searchsorted(before, limit))]
    names = ["scene_id", "objects", "captions", "caption_keys"]
    table = pa.concat_tables([group.read(names) for group in groups])[:limit]
    return SceneTable(
        table["scene_id"].to_numpy(),
        decode_all(groups, limit),
        table["objects"].to_pylist(),
        string_lists(table["captions"]),
        string_lists(table["caption_keys"]),
        str(folder),
    )


def read_questions(
    folder: str | Path, limit: int | None = None, answered: bool = True
) -> QuestionTable:
    """Read a split's questions, and where their scenes stand in its scene table.

    Args:
        folder: of the split.
        limit: only questions about the first so many scenes.
        answered: whether questions whose answer or phrase is withheld are left out.

    Raises:
        UserError: as `Questions`; or of a whole split no question has an answer.
    """
    scene_id = read_column(row_groups(folder, "scenes", SCENES), "scene_id").to_numpy()
    table = Questions(folder, answered).of(scene_id[:limit])
    if answered and limit is None and not len(table):
        raise UserError(f"{folder}: got no question with an answer, expected at least one")
    return table


def read_annotators(folder: str | Path) -> list[list[str]]:
    """The annotators' answers to each answered question, in the table's order; empty for none."""
    groups = row_groups(folder, "questions", QUESTIONS)
    names = ["answer", "phrase", "answers"]
    table = _answered(pa.concat_tables([group.read(names) for group in groups]))
    return [answers or [] for answers in table["answers"].to_pylist()]


def read_picture_names(folder: str | Path) -> list[str | None]:
    """The name that each scene's picture has in the user's own data; None for drawn ones."""
    groups = row_groups(folder, "scenes", SCENES)
    table = pa.concat_tables([group.read(["image.path"]) for group in groups])
    return [image["path"] for image in table["image"].to_pylist()]


def read_objects(folder: str | Path) -> list[list[dict[str, Any]]]:
    """The objects of each scene, without decoding a picture."""
    return read_column(row_groups(folder, "scenes", SCENES), "objects").to_pylist()


def read_captions(folder: str | Path) -> tuple[list[list[str]], list[list[str]]]:
    """The captions of each scene and their keys, without decoding a picture."""
    groups = row_groups(folder, "scenes", SCENES)
    captions, keys = (read_column(groups, name) for name in ("captions", "caption_keys"))
    return string_lists(captions), string_lists(keys)


def iterate_captions(folder: str | Path) -> Iterator[str]:
    """All captions of a split, a row group in memory at a time."""
    for group in row_groups(folder, "scenes", SCENES):
        for captions in string_lists(group.read(["captions"])["captions"]):
            yield from captions


def iterate_questions(folder: str | Path, column: str) -> Iterator[str]:
    """A text column of a split's answered questions, a row group in memory at a time."""
    for group in row_groups(folder, "questions", QUESTIONS):
        table = _answered(group.read(list({"answer", "phrase", column})))
        yield from strings(table[column]).tolist()


def row_of_text(folder: str | Path, text: str) -> str:
    """The first row of a split's tables that says `text`, such as "scene 3" or "question 12"."""
    for group in row_groups(folder, "scenes", SCENES):
        table = group.read(["scene_id", "captions"])
        captions = string_lists(table["captions"])
        for number, own in zip(table["scene_id"].to_pylist(), captions, strict=True):
            if text in own:
                return f"scene {number}"
    for group in row_groups(folder, "questions", QUESTIONS):
        table = group.read(["question_id", "question", "phrase"])
        for row in table.to_pylist():
            if text in (row["question"], row["phrase"]):
                return f"question {row['question_id']}"
    raise KeyError(text)


def write_columns(path: str | Path, columns: Mapping[str, Any]) -> None:
    """Write columns of equal length as one Parquet file."""
    with atomic_path(path) as partial:
        pq.write_table(pa.table(dict(columns)), partial, compression="zstd")


def _answered(questions: pa.Table) -> pa.Table:
    known = [pc.call_function("is_valid", [questions[name]]) for name in ("answer", "phrase")]
    return questions.filter(pc.call_function("and", known))


def _among(values: Ints, ascending: Ints) -> npt.NDArray[np.bool_]:
    """Which of `values` there are in `ascending`, which isn't empty."""
    places = np.searchsorted(ascending, values).clip(max=len(ascending) - 1)
    return ascending[places] == values
