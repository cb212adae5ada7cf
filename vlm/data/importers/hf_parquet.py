"""Parquet tables with a column of pictures, as Hugging Face stores and as we export them.

Every `*.parquet` under the folder is read, shard by shard in the order of their names; a shard's
split is what its name, or that of a folder above it, begins with. The column of pictures is the one
that the table's Hugging Face features call so, else one of bytes and path, else one of bytes.
What is said and asked stands in columns of the names in `records.py`, a row a question; a
row that follows another with the same picture (and the same `scene_id`, where there is one) adds to
it. Or, as in The Cauldron, `images` is a list of one picture and `texts` one of questions
(`user`) and answers (`assistant`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlm.data.importers.paths import below, fault, inside, spelled
from vlm.data.importers.records import FIELDS, read_record
from vlm.data.importers.rows import SPLITS, Asked, Bad, BadRowError, Found, SplitName, shown, text
from vlm.errors import UserError

BATCH = 32  # rows, with their pictures, that are held at a time
BUFFER = 1 << 20  # bytes of a column that are read at a time, rather than those of a row group
SEVERAL, TEXTS = "images", "texts"  # The Cauldron's columns
NAMES = ("image", "picture", "img", "jpg", "png")
SPLIT = re.compile(f"({'|'.join(SPLITS)})(?![a-z])")
# Shards that we export of a split that own data doesn't have: scenes unlike those of train.
UNLIKE = re.compile("test_ood(-|[.]parquet)")


@dataclass
class _Shard:
    """A file, what it is called, and where in it the pictures are."""

    root: Path
    name: str
    file: pq.ParquetFile
    column: str

    @property
    def split(self) -> SplitName | None:
        """The source's own, by the name."""
        for part in reversed(self.name.split("/")):
            if match := SPLIT.match(part.lower()):
                return SPLITS[match[1]]
        return None


@dataclass
class _Row:
    """A good row: its picture, and what is said and asked."""

    name: str
    key: tuple[Any, ...]  # equal for rows of one picture
    picture: bytes | Path
    captions: tuple[str, ...]
    asked: tuple[Asked, ...]


def read(root: Path) -> Iterator[Found | Bad]:
    """Every picture with what its rows say and ask."""
    names = below(root, lambda name: name.lower().endswith(".parquet"))
    names = [name for name in names if not UNLIKE.match(name.rpartition("/")[2])]
    if not names:
        raise UserError(f"{root}: got no Parquet files, expected at least one")
    for name in names:
        shard = _open(root, name)
        together: list[_Row] = []
        for row in _rows(shard):
            if isinstance(row, Bad):
                yield row
                continue
            if together and row.key != together[0].key:
                yield _join(shard.split, together)
                together = []
            if together:  # one copy of the picture is enough
                row.key, row.picture = together[0].key, together[0].picture
            together.append(row)
        if together:
            yield _join(shard.split, together)


def _open(root: Path, name: str) -> _Shard:
    path, got = root / name, fault(root, name)
    if got:
        raise UserError(f"{spelled(root, name)}: got {got}, expected a Parquet file")
    try:
        file = pq.ParquetFile(path, buffer_size=BUFFER)
        column = _column(file.schema_arrow)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _broken(path, error) from None
    if column is None:
        names = shown(file.schema_arrow.names)
        raise UserError(f"{path}: got columns {names}, expected one of pictures")
    return _Shard(root, name, file, column)


def _broken(path: Path, error: Exception) -> UserError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(f"{path}: got {reason[:200]!r}, expected a Parquet file")


def _column(schema: pa.Schema) -> str | None:
    """Which column holds the pictures."""
    if {SEVERAL, TEXTS} <= set(schema.names):
        return SEVERAL
    kinds = {field.name: field.type for field in schema}
    described = [name for name in _described(schema.metadata or {}) if name in kinds]
    structs = [
        name
        for name, kind in kinds.items()
        if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    ]
    plain = [name for name, kind in kinds.items() if _is_bytes(kind)]
    named = [name for name in NAMES if name in {*structs, *plain}]
    return next(iter([*described, *named, *structs, *plain]), None)


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_bytes(kind.value_type)
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in (*tests, pa.types.is_binary_view))


def _described(metadata: Mapping[bytes, bytes]) -> list[str]:
    """The columns that the Hugging Face features, if there are any, call pictures."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return [name for name, kind in features.items() if kind["_type"] == "Image"]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return []


def _rows(shard: _Shard) -> Iterator[_Row | Bad]:
    """The shard's rows, some at a time."""
    wanted = (*FIELDS, "scene_id", TEXTS, shard.column)
    columns = [name for name in shard.file.schema_arrow.names if name in wanted]
    number = 0
    batches = shard.file.iter_batches(BATCH, columns=columns, use_threads=False)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise _broken(shard.root / shard.name, error) from None
        for index in range(len(batch)):
            number += 1
            yield _read_row(shard, f"{shard.name} row {number}", batch.slice(index, 1))


def _read_row(shard: _Shard, row: str, values: pa.RecordBatch) -> _Row | Bad:
    try:
        values.validate(full=True)
        record = values.to_pylist()[0]
    except (pa.ArrowException, ValueError, OverflowError):  # the last of dates and times
        return Bad(row, "got values that are damaged or no UTF-8, expected a whole row")
    try:
        picture = record.pop(shard.column)
        if shard.column == SEVERAL:
            picture, (captions, asked) = _only(picture), ((), _read_turns(record[TEXTS]))
        else:
            captions, asked = read_record(record)
        if not (captions or asked):
            raise BadRowError("got neither a caption nor a question, expected one")
        picture = _picture(shard.root, picture)
    except BadRowError as error:
        return Bad(row, str(error))
    return _Row(row, (record.get("scene_id"), picture), picture, captions, asked)


def _only(pictures: object) -> object:
    number = len(pictures) if isinstance(pictures, list) else 0
    if not isinstance(pictures, list) or number != 1:
        raise BadRowError(f"{SEVERAL}: got {number} pictures, expected exactly one")
    return pictures[0]


def _read_turns(turns: object) -> tuple[Asked, ...]:
    """A conversation's questions, each with its answer."""
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        raise BadRowError(f"{TEXTS}: got {shown(turns)}, expected a list of questions and answers")
    return tuple(
        Asked(
            text(turn.get("user"), "user"),
            None if (answer := turn.get("assistant")) is None else text(answer, "assistant"),
            None,
            "question" if (source := turn.get("source")) is None else text(source, "source"),
        )
        for turn in turns
    )


def _picture(root: Path, value: object) -> bytes | Path:
    """The bytes that a cell holds, or the file that it names."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, Mapping):
        raise BadRowError(f"picture: got {shown(value)}, expected bytes")
    encoded = value.get("bytes")
    if isinstance(encoded, bytes):
        return encoded
    if value.get("path") is None:
        raise BadRowError("picture: got neither bytes nor a path, expected one")
    return inside(root, value["path"])


def _join(split: SplitName | None, rows: list[_Row]) -> Found:
    """Rows of one picture; each may repeat its captions, and what the first says twice stays so."""
    known = set(rows[0].captions)
    more = (caption for row in rows[1:] for caption in row.captions if caption not in known)
    captions = (*rows[0].captions, *dict.fromkeys(more))
    asked = tuple(one for row in rows for one in row.asked)
    return Found(split, rows[0].picture, tuple(row.name for row in rows), captions, asked)
