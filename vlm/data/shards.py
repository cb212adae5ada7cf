"""A table's Parquet shards, read row group by row group."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlm.data import png
from vlm.errors import UserError

Images = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Strings = npt.NDArray[np.object_]


class RowGroup(NamedTuple):
    """Some consecutive rows of a shard.

    Attributes:
        path: of the shard.
        number: of the row group in it.
        first: the row of the shard at which it begins.
        rows: how many it has.
        size: bytes before compression.
    """

    path: Path
    number: int
    first: int
    rows: int
    size: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of these rows."""
        with _readable(self.path), pq.ParquetFile(self.path) as file:
            return file.read_row_group(self.number, columns=list(columns))


def row_groups(folder: str | Path, name: str, schema: pa.Schema) -> list[RowGroup]:
    """The row groups of a table, in its order, without reading a row.

    Raises:
        UserError: A table that is missing, empty or not of this schema.
    """
    folder = Path(folder)
    paths = sorted(folder.glob(f"{name}-*.parquet"))
    if not paths:
        first = f"{name}-00000.parquet"
        if folder.is_dir():
            raise UserError(f"{folder}: got a folder without {first}")
        raise UserError(f"{folder}: got no such folder, expected {first} in it")
    groups = [group for path in paths for group in _of_shard(path, schema)]
    if not groups:
        raise UserError(f"{paths[0]}: got no rows, expected at least one")
    return groups


def read_groups(folder: Path, name: str, schema: pa.Schema) -> Iterator[tuple[Path, int, pa.Table]]:
    """The row groups of a table, of which only one is in memory at a time.

    Each comes with its shard's path and the row there that it begins with.

    Raises:
        UserError: as `row_groups`.
    """
    for group in row_groups(folder, name, schema):
        yield group.path, group.first, group.read(schema.names)


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


def read_column(groups: Sequence[RowGroup], name: str) -> pa.ChunkedArray:
    """A column of these row groups."""
    return pa.concat_tables([group.read([name]) for group in groups]).column(name)


def strings(column: pa.ChunkedArray) -> Strings:
    """A text column as an array whose equal entries are one object, to save memory."""
    coded = column.combine_chunks().dictionary_encode()
    words = np.array([*coded.dictionary.to_pylist(), None], object)
    return words[coded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]


def string_lists(column: pa.ChunkedArray) -> list[list[str]]:
    """A column of lists of texts; equal texts are one object, and null is an empty list."""
    lengths = pc.fill_null(pc.call_function("list_value_length", [column]), 0).to_numpy()
    texts = strings(pc.call_function("list_flatten", [column])).tolist()
    ends = np.cumsum(lengths)
    places = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    return [texts[begin:end] for begin, end in places]


class Pictures:
    """The pictures of a row group as the table holds them, each decoded when asked for."""

    def __init__(self, group: RowGroup) -> None:
        self._group = group
        self._encoded = group.read(["image"])["image"].combine_chunks().field("bytes")

    def decode(self, row: int, shape: tuple[int, ...] | None = None) -> Images:
        """The picture (C, H, W) of a row of this row group.

        Raises:
            UserError: Bytes that are no picture, or a picture not of this shape.
        """
        path, place = self._group.path, self._group.first + row
        pixels = decode_picture(self._encoded[row].as_py(), path, place)
        image = pixels.transpose(2, 0, 1)
        if shape is not None and image.shape != shape:
            expected = (*shape[1:], shape[0])
            raise UserError(
                f"{path} row {place}: got a picture of (H, W, C) {pixels.shape},"
                f" expected {expected} as in the table's first row"
            )
        return image


def room(number: int, shape: tuple[int, ...]) -> Images:
    """Room for pictures of a shape (C, H, W), (number, C, H, W).

    The step from a picture's one channel to its next is said to be that from pixel to pixel. It is
    never taken, but PyTorch reads from it that channels come last, and convolves faster.
    """
    channels, height, width = shape
    if channels == 1:
        return np.empty((number, height, width, 1), np.uint8).transpose(0, 3, 1, 2)
    return np.empty((number, *shape), np.uint8)


def decode_all(groups: Sequence[RowGroup], limit: int | None = None) -> Images:
    """The pictures of these row groups, (n, C, H, W), or the first `limit` of them."""
    total = sum(group.rows for group in groups)
    total = total if limit is None else min(total, limit)
    images, row = np.empty(0, np.uint8), 0
    for group in groups:
        if row == total:
            break
        pictures = Pictures(group)
        for number in range(min(group.rows, total - row)):
            image = pictures.decode(number, images.shape[1:] if row else None)
            if not row:
                images = room(total, image.shape)
            images[row] = image
            row += 1
    return images


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """What goes wrong in reading is the file's fault."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: got {reason!r}, expected a Parquet file") from error


def _of_shard(path: Path, schema: pa.Schema) -> Iterator[RowGroup]:
    with _readable(path), pq.ParquetFile(path) as file:
        got, about = file.schema_arrow, file.metadata
    for field in schema:
        kind = got.field(field.name).type if field.name in got.names else "no such column"
        if kind != field.type:
            raise UserError(f"{path}: {field.name}: got {kind}, expected {field.type}")
    first = 0
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        if group.num_rows:
            yield RowGroup(path, number, first, group.num_rows, group.total_byte_size)
        first += group.num_rows
