"""The benchmark's timings: as a table, as exponents, and as a simple model explains them.

The stage writes them and the report reads them; neither torch nor a clock is needed here.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import NamedTuple

import numpy as np

from vlm.evaluation.costs import ARMS


@dataclass(frozen=True)
class Timing:
    """One cell of the sweep: an arm at one batch size and length. Seconds are the whole batch's.

    Attributes:
        batch: rows.
        length: new tokens of each row, which is as many steps.
        arm: a key of `ARMS`.
        rounds: how often it was timed.
        seconds: the median of the rounds.
        seconds_min, seconds_max: their range.
        cache_bytes: what the cache held at the end, measured.
        cache_bytes_predicted: what it should hold.
        flops: the arithmetic, predicted.
        bytes_read: keys and values that attention reads, predicted.
    """

    batch: int
    length: int
    arm: str
    rounds: int
    seconds: float
    seconds_min: float
    seconds_max: float
    cache_bytes: int
    cache_bytes_predicted: int
    flops: int
    bytes_read: int

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all rows a second."""
        return self.batch * self.length / self.seconds

    @property
    def ms_per_step(self) -> float:
        """Milliseconds for the next token of every row."""
        return 1000 * self.seconds / self.length


COLUMNS = [field.name for field in fields(Timing)]


def read_timing(row: Mapping[str, str]) -> Timing:
    """A row of the table that `sweep_table` writes; it may have further columns."""
    return Timing(
        batch=int(row["batch"]),
        length=int(row["length"]),
        arm=row["arm"],
        rounds=int(row["rounds"]),
        seconds=float(row["seconds"]),
        seconds_min=float(row["seconds_min"]),
        seconds_max=float(row["seconds_max"]),
        cache_bytes=int(row["cache_bytes"]),
        cache_bytes_predicted=int(row["cache_bytes_predicted"]),
        flops=int(row["flops"]),
        bytes_read=int(row["bytes_read"]),
    )


class Parts(NamedTuple):
    """Where a cell's time goes by a cost model, in seconds."""

    overhead: float
    arithmetic: float
    reading: float


@dataclass(frozen=True)
class CostModel:
    """Seconds = steps * overhead + arithmetic / its rate + bytes read / theirs.

    A step costs its overhead however little it computes: the calls, and what they wait for.
    The rates are what this code reaches, not the machine's best: a byte read also stands for the
    products that attention makes of it and stores.

    Attributes:
        seconds_per_step, seconds_per_flop, seconds_per_byte: none below 0; 0 where the timings
            show no such cost.
    """

    seconds_per_step: float
    seconds_per_flop: float
    seconds_per_byte: float

    def parts(self, timing: Timing) -> Parts:
        """The share of each cost in a cell."""
        return Parts(
            self.seconds_per_step * timing.length,
            self.seconds_per_flop * timing.flops,
            self.seconds_per_byte * timing.bytes_read,
        )

    def predict(self, timing: Timing) -> float:
        """Seconds of a cell."""
        return sum(self.parts(timing))

    def error(self, timing: Timing) -> float:
        """How far the prediction lies from the median, as a share of the median."""
        return abs(self.predict(timing) / timing.seconds - 1)

    def figures(self, timings: Sequence[Timing]) -> dict[str, float]:
        """Parameters with their units, and errors."""
        errors = [self.error(timing) for timing in timings]
        return {
            "ms_per_step": 1e3 * self.seconds_per_step,
            "ms_per_gflop": 1e12 * self.seconds_per_flop,
            "ms_per_gbyte": 1e12 * self.seconds_per_byte,
            "median_error": statistics.median(errors),
            "worst_error": max(errors),
        }


def fit_costs(timings: Sequence[Timing]) -> CostModel:
    """The cost model with the least squares of relative errors, so that small cells count too."""
    costs = np.array([(t.length, t.flops, t.bytes_read) for t in timings], dtype=np.float64)
    costs /= np.array([t.seconds for t in timings])[:, None]
    scale = costs.max(axis=0)
    costs /= scale
    best, least = np.zeros(3), np.inf
    # At the optimum the costs that aren't 0 are the plain least squares of their own columns. So
    # try each choice of columns, the fewest first, which a further column has to better clearly.
    for chosen in (list(c) for size in (1, 2, 3) for c in combinations(range(3), size)):
        found = np.linalg.lstsq(costs[:, chosen], np.ones(len(costs)), rcond=None)[0]
        tried = np.zeros(3)
        tried[chosen] = found
        error = float(np.square(costs @ tried - 1).sum())
        if found.min() >= 0 and error < least - 1e-9:
            best, least = tried, error
    return CostModel(*(best / scale).tolist())


def speed_ups(timings: Sequence[Timing]) -> dict[Timing, float]:
    """For each cell of the sweep, how many times faster it is than its uncached one."""
    base = {(t.batch, t.length): t.seconds for t in timings if t.arm == "uncached"}
    return {t: base[t.batch, t.length] / t.seconds for t in timings}


def fit_exponent(lengths: Sequence[float], seconds: Sequence[float]) -> float:
    """k of seconds = c * length ** k, by least squares of logarithms; two lengths at least."""
    return float(np.polyfit(np.log(lengths), np.log(seconds), 1)[0])


def exponents(timings: Sequence[Timing]) -> dict[str, dict[int, float]]:
    """By arm and batch size, the power of the length by which time grows; none of one length."""
    found: dict[str, dict[int, float]] = {}
    for arm in dict.fromkeys(t.arm for t in timings):
        for batch in dict.fromkeys(t.batch for t in timings):
            seconds = {t.length: t.seconds for t in timings if (t.arm, t.batch) == (arm, batch)}
            if len(seconds) > 1:
                exponent = fit_exponent(list(seconds), list(seconds.values()))
                found.setdefault(arm, {})[batch] = exponent
    return found


def sweep_table(timings: Sequence[Timing], model: CostModel) -> str:
    """A row per cell: what `read_timing` reads, and what follows from it."""
    derived = ["tokens_per_second", "ms_per_step", "predicted_seconds"]
    lines = ["\t".join([*COLUMNS, *derived])]
    for timing in timings:
        values: list[object] = [getattr(timing, name) for name in COLUMNS]
        values += [timing.tokens_per_second, timing.ms_per_step, model.predict(timing)]
        lines.append("\t".join(f"{v:.6f}" if isinstance(v, float) else str(v) for v in values))
    return "\n".join(lines) + "\n"


def decode_time_table(timings: Sequence[Timing], batch: int) -> str:
    """Seconds against length at one batch size, a column per arm: what `dvc plots` draws."""
    seconds = {(t.length, t.arm): t.seconds for t in timings if t.batch == batch}
    lines = ["\t".join(["length", *ARMS])]
    for length in sorted({length for length, _ in seconds}):
        lines.append("\t".join([str(length), *(f"{seconds[length, arm]:.6f}" for arm in ARMS)]))
    return "\n".join(lines) + "\n"
