"""A split's tables, read from their Parquet shards."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from vlm.data import png
from vlm.data.schema import QUESTIONS, SCENES
from vlm.errors import UserError
from vlm.files import atomic_path

Images = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Strings = npt.NDArray[np.object_]

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


def read_scenes(folder: str | Path) -> SceneTable:
    """Read a split's scenes and decode their pictures.

    Raises:
        UserError: A table that is missing, empty or not `SCENES`, or a picture that cannot be
            decoded or differs in size from the first.
    """
    parts = list(_read_shards(Path(folder), "scenes", SCENES))
    table = pa.concat_tables([part for _, part in parts])
    return SceneTable(
        table["scene_id"].to_numpy(),
        _decode(parts, len(table)),
        table["objects"].to_pylist(),
        table["captions"].to_pylist(),
        table["caption_keys"].to_pylist(),
        str(folder),
    )


def read_questions(folder: str | Path) -> QuestionTable:
    """Read a split's questions, and where their scenes stand in its scene table.

    Raises:
        UserError: A table that is missing, empty or not `QUESTIONS`, or a scene_id that the
            scene table lacks.
    """
    folder = Path(folder)
    scenes = [part for _, part in _read_shards(folder, "scenes", SCENES, ["scene_id"])]
    parts = [part for _, part in _read_shards(folder, "questions", QUESTIONS)]
    table = pa.concat_tables(parts)
    scene_id = table["scene_id"].to_numpy()
    return QuestionTable(
        table["question_id"].to_numpy(),
        scene_id,
        _positions(scene_id, pa.concat_tables(scenes)["scene_id"].to_numpy(), folder),
        *(_strings(table[name]) for name in TEXT_COLUMNS),
        source=str(folder),
    )


def read_objects(folder: str | Path) -> list[list[dict[str, Any]]]:
    """The objects of each scene, without decoding a picture."""
    return _read_column(Path(folder), "objects")


def read_captions(folder: str | Path) -> tuple[list[list[str]], list[list[str]]]:
    """The captions of each scene and their keys, without decoding a picture."""
    return _read_column(Path(folder), "captions"), _read_column(Path(folder), "caption_keys")


def read_groups(folder: Path, name: str, schema: pa.Schema) -> Iterator[tuple[Path, int, pa.Table]]:
    """The row groups of a table, of which only one is in memory at a time.

    Each comes with its shard's path and the row there that it begins with.

    Raises:
        UserError: A table that is missing, empty or not of this schema.
    """
    for path, file in _open_shards(folder, name, schema):
        first = 0
        for number in range(file.num_row_groups):
            with _readable(path):
                group = file.read_row_group(number, columns=schema.names)
            yield path, first, group
            first += len(group)


def decode_picture(encoded: bytes | None, path: Path, row: int) -> Images:
    """The pixels, (H, W, C), of the picture in a row of this shard.

    Raises:
        UserError: Bytes that are no gray or RGB PNG.
    """
    try:
        return png.decode(encoded or b"")
    except ValueError as error:
        raise UserError(
            f"{path} row {row}: picture: got {error}, expected a gray or RGB PNG"
        ) from error


def write_columns(path: str | Path, columns: Mapping[str, Any]) -> None:
    """Write columns of equal length as one Parquet file."""
    with atomic_path(path) as partial:
        pq.write_table(pa.table(dict(columns)), partial, compression="zstd")


def _read_column(folder: Path, name: str) -> list[Any]:
    parts = [table for _, table in _read_shards(folder, "scenes", SCENES, [name])]
    return pa.concat_tables(parts)[name].to_pylist()


def _decode(parts: list[tuple[Path, pa.Table]], total: int) -> Images:
    """All pictures of the shards, (total, C, H, W)."""
    images, row = None, 0
    for path, table in parts:
        encoded = table["image"].combine_chunks().field("bytes").to_pylist()
        for number, image in enumerate(encoded):
            pixels = decode_picture(image, path, number)
            if images is None:
                images = np.empty((total, *pixels.shape), np.uint8)
            if pixels.shape != images.shape[1:]:
                raise UserError(
                    f"{path} row {number}: got a picture of (H, W, C) {pixels.shape},"
                    f" expected {images.shape[1:]} as in the table's first row"
                )
            images[row] = pixels
            row += 1
    assert images is not None  # an empty table has been refused
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _read_shards(
    folder: Path, name: str, schema: pa.Schema, columns: list[str] | None = None
) -> Iterator[tuple[Path, pa.Table]]:
    """Each shard of a table with its path; `columns` are those of the schema if not given."""
    for path, file in _open_shards(folder, name, schema):
        with _readable(path):
            table = file.read(columns=columns or schema.names)
        yield path, table


def _open_shards(
    folder: Path, name: str, schema: pa.Schema
) -> Iterator[tuple[Path, pq.ParquetFile]]:
    """Each shard of a table with its path, open until the next one."""
    paths = sorted(folder.glob(f"{name}-*.parquet"))
    if not paths:
        first = f"{name}-00000.parquet"
        if folder.is_dir():
            raise UserError(f"{folder}: got a folder without {first}")
        raise UserError(f"{folder}: got no such folder, expected {first} in it")
    rows = 0
    for path in paths:
        with _readable(path):
            file = pq.ParquetFile(path)
        with file:
            got = file.schema_arrow
            for field in schema:
                kind = got.field(field.name).type if field.name in got.names else "no such column"
                if kind != field.type:
                    raise UserError(f"{path}: {field.name}: got {kind}, expected {field.type}")
            rows += file.metadata.num_rows
            yield path, file
    if not rows:
        raise UserError(f"{paths[0]}: got no rows, expected at least one")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say of what can't be read that it is no Parquet file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: got {reason!r}, expected a Parquet file") from error


def _positions(wanted: Ints, scene_id: Ints, folder: Path) -> Ints:
    """The rows of `wanted` among `scene_id`."""
    order = np.argsort(scene_id, kind="stable")
    found = order[np.searchsorted(scene_id, wanted, sorter=order).clip(max=len(order) - 1)]
    lost = np.flatnonzero(scene_id[found] != wanted)
    if len(lost):
        raise UserError(
            f"{folder / 'questions-00000.parquet'} row {lost[0]}: got scene_id"
            f" {wanted[lost[0]]}, expected one of the {len(scene_id)} in the scene table"
        )
    return found


def _strings(column: pa.ChunkedArray) -> Strings:
    """A text column as an array whose equal entries are one object, to save memory."""
    coded = column.combine_chunks().dictionary_encode()
    words = np.array([*coded.dictionary.to_pylist(), None], object)
    return words[coded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]
