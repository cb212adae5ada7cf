"""The same run under several seeds: how much of a figure is luck.

Every seed has a folder of its own, in which the stages run as they would in the project: other
scenes, other weights, another order of the data.
"""

import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ruamel.yaml import YAML

from vlm.app.figures import flat
from vlm.config import load_params
from vlm.errors import StoppedError
from vlm.files import read_json

STAGES = (
    ["generate"],
    ["align"],
    ["pretrain"],
    ["train_vqa", "classifier"],
    ["train_vqa", "generator"],
    ["benchmark_kv_cache"],
    ["evaluate"],
)
EXTERNAL = Path("data/external")  # what a user brought along; every seed reads the same
SHOWN = ("tokens_equal", "speedup", "steps_to_90")  # beside all that carries an interval

NEVER = -1  # steps_to_90 of a training that didn't get there

Metrics = dict[str, float]


def run_seed(params: Path, seed: int, folder: Path) -> Metrics:
    """Run the stages with `seed` in `folder`; returns all their figures, by dotted name.

    Raises:
        UserError: the parameters aren't valid.
        StoppedError: a stage failed; its own line stands on stderr.
    """
    load_params(params)
    yaml = YAML()
    values = yaml.load(params.read_text(encoding="utf-8"))
    values["seed"] = seed
    (folder / EXTERNAL.parent).mkdir(parents=True)
    yaml.dump(values, folder / "params.yaml")
    if EXTERNAL.is_dir():
        (folder / EXTERNAL).symlink_to(EXTERNAL.resolve())
    for stage in STAGES:
        done = subprocess.run([sys.executable, "-m", f"stages.{stage[0]}", *stage[1:]], cwd=folder)
        if done.returncode:
            raise StoppedError(f"seed {seed}: stage {' '.join(stage)} ended with {done.returncode}")
    return {
        name: float(value)
        for path in sorted((folder / "metrics").glob("*.json"))
        for name, value in flat(read_json(path), path.stem)
        if isinstance(value, int | float)
    }


def table(runs: Mapping[int, Metrics]) -> str:
    """A line for each figure that carries an interval: every seed's, their mean and spread."""
    names = [name for name in next(iter(runs.values())) if _is_shown(name, list(runs.values()))]
    header = ["figure", *(f"seed {seed}" for seed in runs), "mean", "sd"]
    rows = [header]
    for name in names:
        values = [run[name] for run in runs.values()]
        never = NEVER in values and name.endswith("steps_to_90")  # no number to average
        mean = "-" if never else f"{statistics.mean(values):.4f}"
        spread = "-" if never or len(values) < 2 else f"{statistics.stdev(values):.4f}"
        rows.append([name, *(_cell(name, run) for run in runs.values()), mean, spread])
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def _is_shown(name: str, runs: Sequence[Metrics]) -> bool:
    has_interval = f"{name}_low" in runs[0]
    asked = any(part in SHOWN for part in name.split("."))
    return (has_interval or asked) and all(name in run for run in runs)


def _cell(name: str, run: Metrics) -> str:
    if name.endswith("steps_to_90") and run[name] == NEVER:
        return "never"
    if f"{name}_low" not in run:
        return f"{run[name]:.4g}"
    return f"{run[name]:.4f} [{run[f'{name}_low']:.4f}, {run[f'{name}_high']:.4f}]"
