"""What the report is made of: the files that the other stages wrote."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlm.data.tables import SceneTable, read_scenes
from vlm.errors import UserError
from vlm.evaluation.timings import COLUMNS, Timing, read_timing
from vlm.files import read_json

Figures = Mapping[str, Any]  # one metrics file
Row = Mapping[str, Any]

TRAININGS = ("align", "pretrain", "train_vqa_classifier", "train_vqa_generator")
STAGES = ("generate", *TRAININGS, "benchmark_kv_cache", "evaluate")
# What the page can't do without, by stage.
NEEDED = {
    "generate": {"train": dict, "val": dict, "test": dict},
    "evaluate": {
        **dict.fromkeys(("classifier", "generator", "floors", "caption", "retrieval"), dict),
        **dict.fromkeys(("pictures", "questions"), int),
    },
}


@dataclass(frozen=True, eq=False)
class Inputs:
    """All that the page shows."""

    params: Figures
    metrics: Mapping[str, Figures]  # by stage
    curves: Mapping[str, dict[str, list[float]]]  # by training stage: columns
    sweep: list[Timing]
    confusion: list[tuple[str, str]]  # true answer, the classifier's
    questions: list[Row]  # the test split's, with what both heads said
    captions: Mapping[int, Row]  # by scene
    scenes: SceneTable  # of the test split
    examples: list[Row]  # of every probe: before and after
    attention: list[Row]  # where each place of attention looked for some questions
    reliability: Mapping[str, dict[str, list[float]]]  # by head and "before" or "after": columns
    runtime: Mapping[str, Figures]  # by stage; only those that ran in this checkout

    @property
    def is_drawn(self) -> bool:
        """Whether the scenes are ours; of other pictures nobody knows the objects."""
        return self.params["data"]["source"] == "scenes"


def read_inputs(root: Path, params: Figures) -> Inputs:
    """Read what a whole run left under `root`.

    What goes with a figure of the probes is asked for only where the metrics have that figure.

    Raises:
        UserError: A file that is missing or can't be read; names it and the stage that makes it.
    """
    sweep = root / "plots/benchmark_kv_cache/sweep.tsv"
    timings = _rows(sweep, "benchmark_kv_cache", "\t")
    _require_columns(sweep, timings, COLUMNS)
    confusion = root / "plots/evaluate/confusion.csv"
    answers = _rows(confusion, "evaluate", ",")
    _require_columns(confusion, answers, ["truth", "prediction"])
    predictions = root / "data/predictions"
    scenes = root / "data/test"
    _require(scenes, "generate")
    metrics = {name: _json(root / f"metrics/{name}.json", name) for name in STAGES}
    found = metrics["evaluate"]
    return Inputs(
        params,
        metrics,
        {name: _curve(root / f"plots/{name}.tsv", name) for name in TRAININGS},
        _timings(sweep, timings),
        [(row["truth"], row["prediction"]) for row in answers],
        _table(predictions / "questions.parquet"),
        {row["scene_id"]: row for row in _table(predictions / "captions.parquet")},
        read_scenes(scenes),
        _table(predictions / "probes.parquet") if found.get("probes") else [],
        _table(predictions / "attention.parquet") if found.get("attention") else [],
        {
            f"{head}_{name}": _reliability(root / f"plots/evaluate/calibration_{head}_{name}.csv")
            for head in found.get("calibration", {})
            for name in ("before", "after")
        },
        {
            name: ran
            for name in STAGES
            if (ran := _record(root / f".runtime/{name}.json")) is not None
        },
    )


def _require(path: Path, stage: str) -> None:
    if not path.exists():
        raise UserError(f"{path}: no such file; expected what the stage {stage} writes")


def _json(path: Path, stage: str) -> Figures:
    _require(path, stage)
    wrong: object
    try:
        found: Any = read_json(path)
        wrong = _unlike(found, stage)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        found, wrong = {}, error
    if wrong:
        raise UserError(f"{path}: got {wrong}, expected the JSON of the stage {stage}")
    return found


def _unlike(found: object, stage: str) -> str:
    """In what a stage's figures aren't what the page is made of; empty where they are."""
    if not isinstance(found, dict):
        return f"a {type(found).__name__}"
    figures: Figures = found
    for key, kind in NEEDED.get(stage, {}).items():
        if not isinstance(figures.get(key), kind):
            return f"no {key}" if key not in figures else f"{key} that is no {kind.__name__}"
    return ""


def _record(path: Path) -> Figures | None:
    """A stage's time and memory; None where there is no whole record, since it is only for show."""
    try:
        found: Any = read_json(path)
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("seconds", 0), int | float):
        return None
    return found


def _rows(path: Path, stage: str, delimiter: str) -> list[dict[str, str]]:
    """The rows of a table, at least one, by the names in its header."""
    _require(path, stage)
    got = "no rows"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file, delimiter=delimiter)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        header, rows, got = [], [], f"no rows that can be read ({error})"
    if not rows:
        raise UserError(f"{path}: got {got}, expected those of the stage {stage}")
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise UserError(f"{path} row {number}: values: got {len(row)}, expected {len(header)}")
    return [dict(zip(header, row, strict=True)) for row in rows]


def _require_columns(path: Path, rows: Sequence[Row], expected: Sequence[str]) -> None:
    got = list(rows[0])
    if not set(expected) <= set(got):
        raise UserError(f"{path}: got columns {', '.join(got)}, expected {', '.join(expected)}")


def _curve(path: Path, stage: str) -> dict[str, list[float]]:
    rows = _rows(path, stage, "\t")
    terms = [name.removeprefix("train_") for name in rows[0] if name.startswith("train_")]
    # What the charts draw: every term on both splits.
    _require_columns(path, rows, ["step", "train_loss", *(f"val_{term}" for term in terms)])
    return _numbers(path, rows, stage)


def _reliability(path: Path) -> dict[str, list[float]]:
    rows = _rows(path, "evaluate", ",")
    _require_columns(path, rows, ["confidence", "accuracy", "questions"])
    return _numbers(path, rows, "evaluate")


def _timings(path: Path, rows: Sequence[Mapping[str, str]]) -> list[Timing]:
    found: list[Timing] = []
    for number, row in enumerate(rows):
        try:
            found.append(read_timing(row))
        except ValueError as error:
            raise _no_number(path, number, error, "benchmark_kv_cache") from error
    return found


def _numbers(path: Path, rows: Sequence[Mapping[str, str]], stage: str) -> dict[str, list[float]]:
    """The columns of a table of numbers."""
    columns: dict[str, list[float]] = {name: [] for name in rows[0]}
    for number, row in enumerate(rows):
        try:
            for name, text in row.items():
                columns[name].append(float(text))
        except ValueError as error:
            raise _no_number(path, number, error, stage) from error
    return columns


def _no_number(path: Path, row: int, error: ValueError, stage: str) -> UserError:
    """What isn't one stands last in Python's own words."""
    text, expected = str(error).rpartition(": ")[2], f"numbers of the stage {stage}"
    return UserError(f"{path} row {row}: values: got {text}, expected {expected}")


def _table(path: Path) -> list[Row]:
    _require(path, "evaluate")
    try:
        return pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: got {reason!r}, expected a Parquet file") from error
