"""What the report is made of: the files that the other stages wrote."""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlm.data.tables import SceneTable, read_scenes
from vlm.errors import UserError
from vlm.files import read_json
from vlm.reporting.charts import Timing

Figures = Mapping[str, Any]  # one metrics file
Row = Mapping[str, Any]

TRAININGS = ("align", "pretrain", "train_vqa_classifier", "train_vqa_generator")
STAGES = ("generate", *TRAININGS, "benchmark_kv_cache", "evaluate")


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
    runtime: Mapping[str, Figures]  # by stage; only those that ran in this checkout


def read_inputs(root: Path, params: Figures) -> Inputs:
    """Read what a whole run left under `root`.

    Raises:
        UserError: A file that is missing or can't be read; names it and the stage that makes it.
    """
    sweep = _rows(root / "plots/benchmark_kv_cache/sweep.tsv", "benchmark_kv_cache", "\t")
    confusion = _rows(root / "plots/evaluate/confusion.csv", "evaluate", ",")
    predictions = root / "data/predictions"
    scenes = root / "data/test"
    _require(scenes, "generate")
    return Inputs(
        params,
        {name: _json(root / f"metrics/{name}.json", name) for name in STAGES},
        {name: _curve(root / f"plots/{name}.tsv", name) for name in TRAININGS},
        [_timing(row) for row in sweep],
        [(row["truth"], row["prediction"]) for row in confusion],
        _table(predictions / "questions.parquet"),
        {row["scene_id"]: row for row in _table(predictions / "captions.parquet")},
        read_scenes(scenes),
        {
            name: read_json(path)
            for name in STAGES
            if (path := root / f".runtime/{name}.json").is_file()
        },
    )


def _require(path: Path, stage: str) -> None:
    if not path.exists():
        raise UserError(f"{path}: got no such file, expected what the stage {stage} writes")


def _json(path: Path, stage: str) -> Figures:
    _require(path, stage)
    try:
        return read_json(path)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: got {error}, expected the JSON of the stage {stage}") from error


def _rows(path: Path, stage: str, delimiter: str) -> list[dict[str, str]]:
    _require(path, stage)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    if not rows:
        raise UserError(f"{path}: got no rows, expected those of the stage {stage}")
    return rows


def _curve(path: Path, stage: str) -> dict[str, list[float]]:
    rows = _rows(path, stage, "\t")
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


def _timing(row: Mapping[str, str]) -> Timing:
    return Timing(
        batch=int(row["batch"]),
        length=int(row["length"]),
        arm=row["arm"],
        seconds=float(row["seconds"]),
        seconds_min=float(row["seconds_min"]),
        seconds_max=float(row["seconds_max"]),
        tokens_per_second=float(row["tokens_per_second"]),
    )


def _table(path: Path) -> list[Row]:
    _require(path, "evaluate")
    try:
        return pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: got {reason!r}, expected a Parquet file") from error
