"""The sides of a comparison: where a run's predictions are, and their tables read and checked."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlm.app.revisions import open_revision
from vlm.errors import UserError
from vlm.evaluation.comparing import DIRECTIONS, recall_column
from vlm.evaluation.pairing import Row

WORKSPACE = "workspace"
PREDICTIONS, TEST = "data/predictions", "data/test"
QUESTIONS, CAPTIONS = "questions.parquet", "captions.parquet"
TEXTS = ("family", "question", "answer", "phrase", "classifier_answer", "generator_phrase")
COLUMNS = {
    QUESTIONS: {
        "question_id": pa.int64(),
        "scene_id": pa.int64(),
        **dict.fromkeys(TEXTS, pa.string()),
        "classifier_confidence": pa.float64(),
    },
    CAPTIONS: {
        "scene_id": pa.int64(),
        "caption": pa.string(),
        "reference": pa.string(),
        "exact": pa.bool_(),
    },
}
OPTIONAL = {"generator_confidence": pa.float64()}  # runs of an earlier version lack it
# Likewise; and null where a picture is beyond the gallery.
NULLABLE = {recall_column(direction): pa.float64() for direction in DIRECTIONS}


@dataclass(frozen=True, eq=False)
class Side:
    """What one run predicted."""

    name: str
    questions: list[Row]
    captions: list[Row] | None  # None where there is no such table

    def gallery(self, column: str) -> set[int]:
        """The scenes among which each query of a column of R@1 was searched; none without it."""
        rows = self.captions or []
        return {row["scene_id"] for row in rows if row.get(column) is not None}


def read_side(name: str) -> Side:
    """What a run predicted: of a path, of the `workspace`, or at a revision; the first that fits.

    A path is a folder such as `data/predictions`, or a file of questions alone.

    Raises:
        UserError: No such side, a file that is missing or can't be read, or other columns.
    """
    path = local_path(name)
    if path is not None and path.is_file():
        return Side(name, _rows(str(path), path, QUESTIONS), None)
    if path is not None:
        if not path.is_dir():
            raise UserError(f"{path}: got no such folder, expected {QUESTIONS} in it")
        if not (path / QUESTIONS).is_file():
            raise UserError(f"{path}: got a folder without {QUESTIONS}")
        return _side(name, str(path), path)
    # Arrow reads files by path; over bytes of Python's it can outlive the interpreter, and abort.
    with open_revision(name) as revision, TemporaryDirectory() as scratch:
        # Reading the questions first answers for the cache; then the list of files is whole.
        for file in (QUESTIONS, CAPTIONS):
            source = f"{PREDICTIONS}/{file}"
            if file == QUESTIONS or source in revision.files(PREDICTIONS):
                (Path(scratch) / file).write_bytes(revision.read(source))
        return _side(name, f"{name}:{PREDICTIONS}", Path(scratch))


def local_path(name: str) -> Path | None:
    """The path that a side is, unless it is a revision."""
    if Path(name).exists():
        return Path(name)
    return Path(PREDICTIONS) if name == WORKSPACE else None


def local_split(path: Path) -> Path:
    """The test split beside the predictions at a path."""
    predictions = path if path.is_dir() else path.parent
    return predictions.resolve().parent / Path(TEST).name


def split_of(name: str, scratch: Path) -> Path:
    """The test split beside a side's predictions; a revision's is copied to `scratch`."""
    path = local_path(name)
    if path is not None:
        return local_split(path)
    with suppress(UserError), open_revision(name) as revision:
        for file in revision.files(TEST):
            (scratch / Path(file).name).write_bytes(revision.read(file))
    return scratch


def _side(name: str, shown: str, folder: Path) -> Side:
    """A side out of a folder, which errors call `shown`."""
    questions = _rows(f"{shown}/{QUESTIONS}", folder / QUESTIONS, QUESTIONS)
    captions = None
    if (folder / CAPTIONS).exists():
        captions = _rows(f"{shown}/{CAPTIONS}", folder / CAPTIONS, CAPTIONS)
    return Side(name, questions, captions)


def _rows(shown: str, path: Path, kind: str) -> list[Row]:
    """The rows of a Parquet file, each column of the type that it should have."""
    table = _table(shown, path)
    got = table.column_names
    extra: Mapping[str, pa.DataType] = OPTIONAL if kind == QUESTIONS else NULLABLE
    columns = COLUMNS[kind] | {name: each for name, each in extra.items() if name in got}
    if any(got.count(name) != 1 for name in columns):
        raise UserError(f"{shown}: got columns {', '.join(got)}, expected {', '.join(columns)}")
    if not len(table):
        raise UserError(f"{shown}: got no rows, expected at least one")
    values = {}
    for name, wanted in columns.items():
        column = table[name]
        cells = _of_type(column, wanted, nullable=name in NULLABLE)
        if cells is None:
            found = f"{column.type} with nulls" if column.null_count else column.type
            raise UserError(f"{shown}: {name}: got {found}, expected {wanted}")
        values[name] = cells
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def _table(shown: str, path: Path) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
        table.validate(full=True)  # whether texts are UTF-8, too
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{shown}: got {reason!r}, expected a Parquet file") from error
    return table


def _of_type(column: pa.ChunkedArray, kind: pa.DataType, nullable: bool) -> list[Any] | None:
    """A column's cells; None where some are of no such type, or null: neither right nor wrong.

    Where nulls are allowed, NaN is one.
    """
    if column.null_count and not nullable:
        return None
    with suppress(pa.ArrowException):
        cells = column.cast(kind).to_pylist()
        return [None if _is_nan(cell) else cell for cell in cells] if nullable else cells
    return None


def _is_nan(cell: float | None) -> bool:
    return cell is not None and math.isnan(cell)
