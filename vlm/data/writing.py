"""A split's two tables, written as their rows come: Parquet, the same bytes for the same rows.

Rows come in parts, such as a block of drawn scenes or some imported pictures. How they are parted
changes no byte, and no more than a row group of each table is held, whatever the size of the split.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlm.data import png
from vlm.data.schema import IMAGE, QUESTIONS, SCENES
from vlm.files import atomic_path

Images = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Strings = npt.NDArray[np.object_]

GROUP_BYTES = 16 << 20  # of pictures, or of texts, in a row group, before compression
ROW_BYTES = 64  # that a row takes besides: numbers, and where its texts begin
SHARD_BYTES = 480 << 20  # a file, before compression; must end below 512 MiB
# Statistics of a picture column would store whole pictures.
WRITING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": [
        *("family", "question", "answer", "phrase"),
        *("captions.list.element", "caption_keys.list.element"),
    ],
    "write_statistics": ["scene_id", "question_id"],
}


class Part(NamedTuple):
    """Some scenes of a split and all their questions, scene by scene, as yet without numbers.

    Attributes:
        scenes: the columns of `SCENES` but `scene_id`; n rows.
        questions: the columns of `QUESTIONS` but `question_id`; `scene_id` is the row in `scenes`,
            0 to n - 1, and never falls.
    """

    scenes: pa.Table
    questions: pa.Table


class SplitWriter:
    """Writes parts, one after another, and numbers their scenes and questions from 0.

    Shards appear under their names one by one, each whole; those of an earlier, longer table go
    once all is written. A split without any part is a folder without tables.

    >>> with SplitWriter(folder) as writer:
    ...     for part in parts:
    ...         writer.add(part)
    """

    def __init__(self, folder: str | Path) -> None:
        self._scenes = _TableWriter(Path(folder), "scenes", SCENES)
        self._questions = _TableWriter(Path(folder), "questions", QUESTIONS)

    @property
    def num_scenes(self) -> int:
        """Scenes so far."""
        return self._scenes.rows

    @property
    def num_questions(self) -> int:
        """Questions so far."""
        return self._questions.rows

    def add(self, part: Part) -> None:
        """Write a part's rows, or hold them until their row group is full."""
        of_scene = part.questions.column("scene_id").to_numpy() + self.num_scenes
        self._questions.add({**_columns(part.questions), "scene_id": of_scene})
        self._scenes.add(_columns(part.scenes))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for writer in (self._scenes, self._questions):
            writer.end() if kind is None else writer.drop(kind, error, traceback)


def write_scenes(
    folder: str | Path,
    images: Iterable[Images],
    objects: Sequence[Sequence[Any]],
    captions: Sequence[Sequence[str]],
    caption_keys: Sequence[Sequence[str]],
) -> None:
    """Write n scenes alone, numbered from 0.

    Args:
        folder: Where the shards go; those of an earlier, longer table are removed.
        images: Pictures in batches of (b, C, H, W) uint8, n in all.
        objects: For each scene its objects, as mappings of the fields of `OBJECT`.
        captions: For each scene its captions.
        caption_keys: For each scene one fact key for each caption.
    """
    writer = _TableWriter(Path(folder), "scenes", SCENES)
    for batch in images:
        mine = slice(writer.rows, writer.rows + len(batch))
        pictures = image_column([png.encode(image) for image in batch])
        writer.add(
            {
                "image": pictures,
                "objects": objects[mine],
                "captions": captions[mine],
                "caption_keys": caption_keys[mine],
            }
        )
    writer.end()


def write_questions(
    folder: str | Path,
    scene_id: Ints,
    family: Sequence[str] | Strings,
    question: Sequence[str] | Strings,
    answer: Sequence[str] | Strings,
    phrase: Sequence[str] | Strings,
) -> None:
    """Write m questions alone, numbered from 0; all columns are of length m."""
    writer = _TableWriter(Path(folder), "questions", QUESTIONS)
    columns = (scene_id, family, question, answer, phrase, [[]] * len(scene_id))
    writer.add(dict(zip(QUESTIONS.names[1:], columns, strict=True)))
    writer.end()


def image_column(pngs: Sequence[bytes], names: Sequence[str] | None = None) -> pa.StructArray:
    """Encoded pictures as a column of `SCENES`, with the names that their owner knows them by."""
    paths = pa.nulls(len(pngs), pa.string()) if names is None else pa.array(names, pa.string())
    return pa.StructArray.from_arrays([pa.array(pngs, pa.binary()), paths], fields=list(IMAGE))


def row_bytes(table: pa.Table) -> Ints:
    """What each row takes: its picture and texts, lists of them left out, and the rest; (n,)."""
    total = np.full(len(table), ROW_BYTES, np.int64)
    for field in table.schema:
        column = table.column(field.name)
        if field.type == IMAGE:
            column = pa.chunked_array([part.field("bytes") for part in column.chunks], pa.binary())
        elif not pa.types.is_string(field.type):
            continue
        lengths = pc.call_function("binary_length", [column])
        total += pc.fill_null(lengths, 0).to_numpy()
    return total


class _TableWriter:
    """One table: rows wait until they fill a row group, row groups fill a shard."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self._folder, self._name, self._schema = folder, name, schema
        self._waiting = schema.empty_table()
        self._shard: _Shard | None = None
        self._written: set[Path] = set()
        self.rows = 0

    def add(self, columns: dict[str, Any]) -> None:
        """Add rows, numbered on in the schema's first column."""
        number = len(next(iter(columns.values())))
        ids = np.arange(self.rows, self.rows + number)
        rows = pa.table({self._schema.names[0]: ids, **columns}, schema=self._schema)
        self.rows += number
        self._waiting = pa.concat_tables([self._waiting, rows])
        full = np.cumsum(row_bytes(self._waiting))
        start = 0
        while start < len(full):
            before = full[start - 1] if start else 0
            end = int(np.searchsorted(full, before + GROUP_BYTES)) + 1
            if end > len(full):
                break
            self._write(self._waiting[start:end])
            start = end
        self._waiting = self._waiting[start:]

    def end(self) -> None:
        """Write what waits, and remove what an earlier table left."""
        if len(self._waiting):
            self._write(self._waiting)
        if self._shard is not None:
            self._shard.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        for stale in set(self._folder.glob(f"{self._name}-*.parquet")) - self._written:
            stale.unlink()

    def drop(self, *error: Any) -> None:
        """Leave the shard under way unwritten, because of this error."""
        if self._shard is not None:
            self._shard.__exit__(*error)

    def _write(self, group: pa.Table) -> None:
        if self._shard is not None and self._shard.size + group.nbytes > SHARD_BYTES:
            self._shard.close()
            self._shard = None
        if self._shard is None:
            path = self._folder / f"{self._name}-{len(self._written):05d}.parquet"
            self._shard = _Shard(path, self._schema)
            self._written.add(path)
        self._shard.write(group)


class _Shard(ExitStack):
    """A file under way."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        super().__init__()
        self.size = 0  # before compression
        partial = self.enter_context(atomic_path(path))
        self._writer = self.enter_context(pq.ParquetWriter(partial, schema, **WRITING))

    def write(self, group: pa.Table) -> None:
        """Write a row group."""
        self._writer.write_table(group, row_group_size=len(group))
        self.size += group.nbytes


def _columns(table: pa.Table) -> dict[str, Any]:
    return {name: table.column(name) for name in table.column_names}
