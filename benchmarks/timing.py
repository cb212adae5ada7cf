"""Arms that take turns, and what each took."""

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch


@dataclass(frozen=True)
class Times:
    """The seconds that one arm took, a round each."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of the rounds took less."""
        return statistics.median(self.seconds)

    @property
    def fastest(self) -> float:
        """The least of all rounds."""
        return min(self.seconds)

    @property
    def slowest(self) -> float:
        """The most of all rounds."""
        return max(self.seconds)

    def milliseconds(self) -> str:
        """Median (min-max)."""
        return f"{1e3 * self.median:.1f} ({1e3 * self.fastest:.1f}-{1e3 * self.slowest:.1f})"


def interleaved(arms: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Times]:
    """Time every arm once a round (A B C, A B C, ...), after one round that isn't counted.

    By turns, so that a machine that slows down for a while slows all arms alike.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for timed in [False, *[True] * rounds]:
        for name, arm in arms.items():
            started = time.perf_counter()
            arm()
            if timed:
                seconds[name].append(time.perf_counter() - started)
    return {name: Times(tuple(taken)) for name, taken in seconds.items()}


def verdict(value: float, target: float) -> str:
    """`>= 4 met`, or `>= 4 not met`."""
    return f">= {target:g} {'met' if value >= target else 'not met'}"


def machine(*packages: str) -> str:
    """What the timings are taken on, with the versions of torch and of other packages."""
    versions = [f"{package} {version(package)}" for package in ("torch", *packages)]
    threads = torch.get_num_threads()
    number = "1 thread" if threads == 1 else f"{threads} threads"
    return ", ".join([*versions, number, cpu_name()])


def cpu_name() -> str:
    """The processor's model, where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
