"""Scenes and questions on disk: Parquet shards, the same bytes for the same rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from vlm.data import png
from vlm.data.schema import IMAGE, QUESTIONS, SCENES
from vlm.errors import UserError
from vlm.files import atomic_path

Images = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Strings = npt.NDArray[np.object_]

GROUP_BYTES = 16 << 20  # a row group, before compression
SHARD_BYTES = 480 << 20  # a file, before compression; must end below 512 MiB
TEXT_COLUMNS = ("family", "question", "answer", "phrase")
# Statistics of a picture column would store whole pictures.
WRITING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": [*TEXT_COLUMNS, "captions.list.element", "caption_keys.list.element"],
    "write_statistics": ["scene_id", "question_id"],
}


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


def write_scenes(
    folder: str | Path,
    images: Iterable[Images],
    objects: Sequence[Sequence[Any]],
    captions: Sequence[Sequence[str]],
    caption_keys: Sequence[Sequence[str]],
) -> None:
    """Write n scenes, numbered from 0.

    Args:
        folder: Where the shards go; those of an earlier, longer table are removed.
        images: Pictures in batches of (b, C, H, W) uint8, n in all, so that they need not
            be in memory at once.
        objects: For each scene its objects, as mappings of the fields of `OBJECT`.
        captions: For each scene its captions.
        caption_keys: For each scene one fact key for each caption.
    """
    groups = (
        pa.table(
            {
                "scene_id": np.arange(start, start + len(pngs)),
                "image": pa.StructArray.from_arrays(
                    [pa.array(pngs, pa.binary()), pa.nulls(len(pngs), pa.string())],
                    fields=list(IMAGE),
                ),
                "objects": objects[start : start + len(pngs)],
                "captions": captions[start : start + len(pngs)],
                "caption_keys": caption_keys[start : start + len(pngs)],
            },
            schema=SCENES,
        )
        for start, pngs in _png_groups(images)
    )
    _write_shards(Path(folder), "scenes", SCENES, groups)


def write_questions(
    folder: str | Path,
    scene_id: Ints,
    family: Sequence[str] | Strings,
    question: Sequence[str] | Strings,
    answer: Sequence[str] | Strings,
    phrase: Sequence[str] | Strings,
) -> None:
    """Write m questions, numbered from 0; all columns are of length m."""
    number = len(scene_id)
    columns = (np.arange(number), scene_id, family, question, answer, phrase, [[]] * number)
    names = QUESTIONS.names
    table = pa.table(dict(zip(names, columns, strict=True)), schema=QUESTIONS)
    rows = max(1, GROUP_BYTES * number // max(1, table.nbytes))
    groups = (table.slice(start, rows) for start in range(0, number, rows))
    _write_shards(Path(folder), "questions", QUESTIONS, groups)


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


def write_columns(path: str | Path, columns: Mapping[str, Any]) -> None:
    """Write columns of equal length as one Parquet file."""
    with atomic_path(path) as partial:
        pq.write_table(pa.table(dict(columns)), partial, compression="zstd")


def _read_column(folder: Path, name: str) -> list[Any]:
    parts = [table for _, table in _read_shards(folder, "scenes", SCENES, [name])]
    return pa.concat_tables(parts)[name].to_pylist()


def _png_groups(images: Iterable[Images]) -> Iterator[tuple[int, list[bytes]]]:
    """Encoded pictures by row group, each with the number of its first scene."""
    start, size, pngs = 0, 0, []
    for batch in images:
        for image in batch:
            pngs.append(png.encode(image))
            size += len(pngs[-1])
            if size >= GROUP_BYTES:
                yield start, pngs
                start, size, pngs = start + len(pngs), 0, []
    if pngs:
        yield start, pngs


def _decode(parts: list[tuple[Path, pa.Table]], total: int) -> Images:
    """All pictures of the shards, (total, C, H, W)."""
    images, row = None, 0
    for path, table in parts:
        encoded = table["image"].combine_chunks().field("bytes").to_pylist()
        for number, image in enumerate(encoded):
            try:
                pixels = png.decode(image or b"")
            except ValueError as error:
                raise UserError(
                    f"{path} row {number}: picture: got {error}, expected a gray or RGB PNG"
                ) from error
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


def _write_shards(folder: Path, name: str, schema: pa.Schema, groups: Iterable[pa.Table]) -> None:
    """Write row groups into `name`-00000.parquet and on, each shard under `SHARD_BYTES`."""
    groups = iter(groups)
    written: set[Path] = set()
    group = next(groups, None)
    while group is not None:
        path, size = folder / f"{name}-{len(written):05d}.parquet", 0
        with atomic_path(path) as partial, pq.ParquetWriter(partial, schema, **WRITING) as writer:
            while group is not None and (not size or size + group.nbytes <= SHARD_BYTES):
                writer.write_table(group, row_group_size=len(group))
                size += group.nbytes
                group = next(groups, None)
        written.add(path)
    for stale in set(folder.glob(f"{name}-*.parquet")) - written:
        stale.unlink()


def _read_shards(
    folder: Path, name: str, schema: pa.Schema, columns: list[str] | None = None
) -> Iterator[tuple[Path, pa.Table]]:
    """Each shard of a table with its path; `columns` are those of the schema if not given."""
    paths = sorted(folder.glob(f"{name}-*.parquet"))
    if not paths:
        first = f"{name}-00000.parquet"
        if folder.is_dir():
            raise UserError(f"{folder}: got a folder without {first}")
        raise UserError(f"{folder}: got no such folder, expected {first} in it")
    rows = 0
    for path in paths:
        try:
            got = pq.read_schema(path)
            for field in schema:
                kind = got.field(field.name).type if field.name in got.names else "no such column"
                if kind != field.type:
                    raise UserError(f"{path}: {field.name}: got {kind}, expected {field.type}")
            table = pq.read_table(path, columns=columns or schema.names)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{path}: got {reason!r}, expected a Parquet file") from error
        rows += len(table)
        yield path, table
    if not rows:
        raise UserError(f"{paths[0]}: got no rows, expected at least one")


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
