"""How quickly scenes are drawn on one core, against a plain loop, and in how much memory.

    python -m benchmarks.drawing             drawing alone, then all up to Parquet
    python -m benchmarks.drawing --memory    the peak of the stage at two sizes of train

Arms take turns. The targets are 6 times the plain loop's scenes a second for drawing alone, and 3
times for all; and a peak that doesn't grow with the number of scenes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import __version__ as pillow_version
from ruamel.yaml import YAML

from benchmarks.plain_drawing import LEVEL, draw_objects, draw_picture, write_plainly
from benchmarks.timing import Times, cpu_name, interleaved, verdict
from vlm.config import load_params
from vlm.config.data import DataConfig
from vlm.data import png
from vlm.data.drawn import draw_block
from vlm.data.writing import SplitWriter
from vlm.files import read_json
from vlm.scenes.render import render_batches
from vlm.scenes.sampler import BLOCK, sample_scenes

ROOT = Path(__file__).parent.parent
DRAWING, ALL = 6.0, 3.0  # times the plain loop's scenes a second
GROWTH = 1.15  # of the peak at the largest number of scenes, over that at the smallest


def main(arguments: Sequence[str] | None = None) -> None:
    """Time, or measure memory, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--params", type=Path, default=ROOT / "presets/default.yaml")
    parser.add_argument("--scenes", type=int, default=4 * BLOCK, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="measure memory in place of time")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    chosen = parser.parse_args(arguments)
    if chosen.memory:
        measure_memory(chosen.params, chosen.sizes)
        return
    data = load_params(chosen.params).data
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    print(f"numpy {np.__version__}, pyarrow {pa.__version__}, one core, {cpu_name()}")
    time_drawing(data, chosen.scenes, chosen.rounds)
    time_all(data, chosen.scenes, chosen.rounds)


def time_drawing(data: DataConfig, number: int, rounds: int) -> None:
    """Scenes and their noisy pictures, in memory."""
    world = data.world

    def ours() -> None:
        for _ in render_batches(sample_scenes(world, 0, "train", number), world, 0, "train"):
            pass

    def plain() -> None:
        rng = np.random.default_rng(0)
        for _ in range(number):
            draw_picture(draw_objects(world, rng), world, rng)

    def gauss() -> None:
        rng = np.random.default_rng(0)
        for _ in range(0, number, BLOCK):
            shape = (BLOCK, world.channels, world.image_size, world.image_size)
            rng.standard_normal(shape, np.float32)

    arms = {"ours": ours, "a plain loop": plain, "numpy's standard_normal alone": gauss}
    report("drawing alone", arms, number, rounds, DRAWING)


def time_all(data: DataConfig, number: int, rounds: int) -> None:
    """Scenes, captions, questions and encoded pictures, on the disk."""
    with tempfile.TemporaryDirectory(prefix="drawing-") as parent:

        def ours() -> None:
            with SplitWriter(Path(parent) / "ours") as writer:
                for block in range(-(-number // BLOCK)):
                    writer.add(draw_block(data, 0, "train", block, number).part)

        arms = {
            "ours": ours,
            "a plain loop": lambda: write_plainly(data, 0, number, Path(parent) / "plain"),
        }
        report("all, up to Parquet", arms, number, rounds, ALL)
    small = data.world.channels * data.world.image_size**2 <= png.SMALL
    own = "put together here, zlib level 1, Z_HUFFMAN_ONLY, no filter"
    pillow = f"Pillow {pillow_version}, level {{}}, its filters"
    print(f"    PNG: ours: {own if small else pillow.format(png.LEVEL)};", end=" ")
    print(f"the loop's: {pillow.format(LEVEL)}")


def report(
    what: str, arms: dict[str, Callable[[], None]], number: int, rounds: int, target: float
) -> None:
    """Time the arms and print a line for each."""
    times = interleaved(arms, rounds)
    print(f"{what}: {number} scenes, {rounds} rounds; ms a round: median (min-max)")
    for name, taken in times.items():
        print(f"    {name:<32}{number / taken.median:>12,.0f} scenes/s  {taken.milliseconds()}")
    ratio = ratio_of(times["a plain loop"], times["ours"])
    print(f"    ours over the plain loop: {ratio:.1f}, {verdict(ratio, target)}")


def ratio_of(slow: Times, fast: Times) -> float:
    """How many times as long, by the medians of their rounds."""
    return slow.median / fast.median


def measure_memory(params: Path, sizes: Sequence[int]) -> None:
    """The peak of the whole stage, each size of train in a process of its own."""
    peaks = [peak_of(params, size) for size in sizes]
    for size, peak in zip(sizes, peaks, strict=True):
        print(f"{size:>12,} scenes of train: peak {peak:.0f} MiB")
    growth = peaks[-1] / peaks[0]
    print(f"growth {growth:.2f}: <= {GROWTH} {'met' if growth <= GROWTH else 'not met'}")


def peak_of(params: Path, size: int) -> float:
    """MiB that the stage `generate` needs at most, with so many scenes of train."""
    yaml = YAML(typ="safe")
    values = yaml.load(params.read_text())
    values["data"]["train_scenes"] = size
    values["runtime"]["workers"] = 1  # the stage's record is of its own process
    with tempfile.TemporaryDirectory(prefix="drawing-") as parent:
        yaml.dump(values, Path(parent) / "params.yaml")
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "stages.generate"]
        subprocess.run(command, cwd=parent, env=env, check=True)
        return read_json(Path(parent) / ".runtime/generate.json")["peak_memory_mib"]


if __name__ == "__main__":
    main()
