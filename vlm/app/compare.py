"""Two runs question by question: finding both sides, the table, the page, and the JSON."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlm.app.revisions import open_revision
from vlm.data.tables import read_questions, read_scenes
from vlm.errors import UserError
from vlm.evaluation.comparing import (
    HEADS,
    Comparison,
    Pair,
    Row,
    changes,
    compare_captions,
    compare_questions,
    pair_captions,
    pair_questions,
)
from vlm.evaluation.intervals import DEFAULT_CONFIDENCE, DEFAULT_RESAMPLES
from vlm.files import write_json, write_text
from vlm.reporting.comparison import ABOUT_P, Compared, build_page
from vlm.reporting.pictures import Pixels

WORKSPACE = "workspace"
PREDICTIONS, TEST = "data/predictions", "data/test"
QUESTIONS, CAPTIONS = "questions.parquet", "captions.parquet"
SEED = 0  # of the resamples
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


@dataclass(frozen=True, eq=False)
class Side:
    """What one run predicted."""

    name: str
    questions: list[Row]
    captions: Mapping[int, Row] | None  # by scene; None where only questions were given


def compare(a: str, b: str, page: Path, limit: int, json: Path | None) -> tuple[str, list[str]]:
    """Compare two sides, and write the page and the JSON.

    Args:
        a: A path, `workspace`, or a revision, in this order; see `read_side`.
        b: Likewise.
        page: Where the HTML goes.
        limit: Cards a head and a kind of change.
        json: Where the same figures go; None for nowhere.

    Returns:
        The table with what changed, and remarks on what could not be compared.

    Raises:
        UserError: A side that isn't there or can't be read, or no question in common.
    """
    side_a, side_b = read_side(a), read_side(b)
    captions = pair_captions(side_a.captions or {}, side_b.captions or {})
    both = (side_a.captions or {}).keys() & (side_b.captions or {}).keys()
    other_scenes = both - {pair.a["scene_id"] for pair in captions}
    pairs = pair_questions(side_a.questions, side_b.questions, other_scenes)
    asked = len(side_a.questions), len(side_b.questions)
    if not pairs:
        raise UserError(f"{a}, {b}: no question in common among {asked[0]} and {asked[1]}")
    figures = compare_questions(pairs, DEFAULT_RESAMPLES, SEED)
    if captions:
        figures += compare_captions(captions, DEFAULT_RESAMPLES, SEED)
    compared = Compared(
        a,
        b,
        pairs,
        asked[0] - len(pairs),
        asked[1] - len(pairs),
        figures,
        {head.name: changes(pairs, head) for head in HEADS},
        read_pictures(b, pairs),
    )
    write_text(page, build_page(compared, limit))
    if json is not None:
        write_json(json, as_json(compared), decimals=None)
    table = figure_table(figures, a, b)
    return f"{table}\n\n{_changed(compared)}\nPage: {page}", _remarks(compared, bool(captions))


def read_side(name: str) -> Side:
    """What a run predicted: of a path, of the `workspace`, or at a revision; the first that fits.

    A path is a folder such as `data/predictions`, or a file of questions alone.

    Raises:
        UserError: No such side, a file that is missing or can't be read, or other columns.
    """
    path = _local(name)
    if path is not None and path.is_file():
        return Side(name, _rows(str(path), path.read_bytes(), COLUMNS[QUESTIONS]), None)
    if path is not None:
        return _side(name, str(path), lambda file: _present(path, file), (path / CAPTIONS).exists())
    with open_revision(name) as revision:
        # Reading the questions first answers for the cache; then the list of files is whole.
        questions = revision.read(f"{PREDICTIONS}/{QUESTIONS}")
        has_captions = f"{PREDICTIONS}/{CAPTIONS}" in revision.files(PREDICTIONS)
        return _side(
            name,
            f"{name}:{PREDICTIONS}",
            lambda file: questions if file == QUESTIONS else revision.read(f"{PREDICTIONS}/{file}"),
            has_captions,
        )


def read_pictures(name: str, pairs: Sequence[Pair]) -> dict[int, Pixels]:
    """The pictures of the pairs' scenes by id: of side B, else of the workspace, else none.

    Scenes of every split are numbered alike, so that a split counts as the pairs' only where it
    asks the same questions about them.
    """
    with TemporaryDirectory() as scratch:
        for folder in (_split_of(name, Path(scratch)), Path(TEST)):
            # Missing or damaged tables, which `make` mends; the page does without pictures.
            with suppress(UserError):
                if _asks(folder, pairs):
                    scenes = read_scenes(folder)
                    wanted = {pair.b["scene_id"] for pair in pairs}
                    places = zip(scenes.scene_id.tolist(), scenes.images, strict=True)
                    return {scene: image for scene, image in places if scene in wanted}
    return {}


def figure_table(figures: Sequence[Comparison], a: str, b: str) -> str:
    """A line for each figure: both sides, their difference with its interval, and the tests."""
    header = ["figure", f"A: {a}", f"B: {b}", "B - A", "95% interval"]
    rows = [[*header, "only A", "only B", "p", "p, Holm"]]
    for one in figures:
        counts = ["-" if count is None else str(count) for count in (one.only_a, one.only_b)]
        tests = ["-" if p is None else f"{p:.3g}" for p in (one.p, one.p_holm)]
        ends = f"[{one.interval.low:+.4f}, {one.interval.high:+.4f}]"
        values = [f"{one.a:.4f}", f"{one.b:.4f}", f"{one.difference:+.4f}", ends]
        rows.append([one.name, *values, *counts, *tests])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def as_json(compared: Compared) -> dict[str, Any]:
    """The table's figures, and the counts of what changed."""
    metrics = {}
    for one in compared.figures:
        known = {key: value for key, value in asdict(one).items() if value is not None}
        low, high = known.pop("interval")
        del known["name"]
        metrics[one.name] = known | {"difference": one.difference, "low": low, "high": high}
    return {
        "a": compared.name_a,
        "b": compared.name_b,
        "questions": len(compared.pairs),
        "pictures": compared.num_pictures,
        "only_in_a": compared.only_in_a,
        "only_in_b": compared.only_in_b,
        "metrics": metrics,
        "changed": {
            head: {kind: len(pairs) for kind, pairs in vars(found).items()}
            for head, found in compared.changes.items()
        },
        "bootstrap": {
            "confidence": DEFAULT_CONFIDENCE,
            "resamples": DEFAULT_RESAMPLES,
            "seed": SEED,
        },
    }


def _changed(compared: Compared) -> str:
    lines = [*textwrap.wrap(ABOUT_P, 100), ""]
    asked = f"{len(compared.pairs):,} questions on {compared.num_pictures:,} pictures"
    for head, found in compared.changes.items():
        lines.append(
            f"{head}: {len(found)} of {asked} changed: {len(found.lost)} lost,"
            f" {len(found.still_wrong)} still wrong, {len(found.gained)} gained"
        )
    return "\n".join(lines)


def _remarks(compared: Compared, captions: bool) -> list[str]:
    remarks = []
    for side, count in (("A", compared.only_in_a), ("B", compared.only_in_b)):
        if count:
            remarks.append(f"{count:,} questions only in {side} are left out")
    if not captions:
        remarks.append("captions are left out: the sides have none of the same scenes")
    if not compared.pictures:
        remarks.append("no pictures: no test split at hand asks these questions")
    return remarks


def _present(folder: Path, file: str) -> bytes:
    if (folder / file).is_file():
        return (folder / file).read_bytes()
    if folder.is_dir():
        raise UserError(f"{folder}: got a folder without {file}")
    raise UserError(f"{folder}: got no such folder, expected {file} in it")


def _side(name: str, folder: str, read: Callable[[str], bytes], has_captions: bool) -> Side:
    questions = _rows(f"{folder}/{QUESTIONS}", read(QUESTIONS), COLUMNS[QUESTIONS])
    if not has_captions:
        return Side(name, questions, None)
    captions = _rows(f"{folder}/{CAPTIONS}", read(CAPTIONS), COLUMNS[CAPTIONS])
    return Side(name, questions, {row["scene_id"]: row for row in captions})


def _rows(path: str, content: bytes, columns: Mapping[str, pa.DataType]) -> list[Row]:
    """The rows of a Parquet file, each column of the type that it should have."""
    try:
        table = pq.read_table(BytesIO(content))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: got {reason!r}, expected a Parquet file") from error
    got = table.column_names
    if not set(columns) <= set(got):
        raise UserError(f"{path}: got columns {', '.join(got)}, expected {', '.join(columns)}")
    if not len(table):
        raise UserError(f"{path}: got no rows, expected at least one")
    optional = {name: kind for name, kind in OPTIONAL.items() if name in got}
    values = {}
    for name, kind in {**columns, **optional}.items():
        column = table[name]
        cells = _of_type(column, kind)
        if cells is None:
            found = f"{column.type} with nulls" if column.null_count else column.type
            raise UserError(f"{path}: {name}: got {found}, expected {kind}")
        values[name] = cells
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def _of_type(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any] | None:
    """A column's cells; None where some are of no such type, or null: neither right nor wrong."""
    if column.null_count:
        return None
    with suppress(pa.ArrowException):
        return column.cast(kind).to_pylist()
    return None


def _local(name: str) -> Path | None:
    """The path that a side is, unless it is a revision."""
    if Path(name).exists():
        return Path(name)
    return Path(PREDICTIONS) if name == WORKSPACE else None


def _split_of(name: str, scratch: Path) -> Path:
    """The test split beside a side's predictions; a revision's is copied to `scratch`."""
    path = _local(name)
    if path is not None:
        predictions = path if path.is_dir() else path.parent
        return predictions.resolve().parent / Path(TEST).name
    with suppress(UserError), open_revision(name) as revision:
        for file in revision.files(TEST):
            (scratch / Path(file).name).write_bytes(revision.read(file))
    return scratch


def _asks(folder: Path, pairs: Sequence[Pair]) -> bool:
    """Whether a split asks every question of the pairs, about the same scene."""
    table = read_questions(folder)
    columns = (table.scene_id.tolist(), table.question_id.tolist(), table.question, table.answer)
    known = set(zip(*columns, strict=True))
    names = ("scene_id", "question_id", "question", "answer")
    return all(tuple(pair.b[name] for name in names) in known for pair in pairs)
