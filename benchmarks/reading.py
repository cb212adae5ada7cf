"""What it takes to read for training: peak memory, and pictures a second, from memory and disk.

`python -m benchmarks.reading`: a split of random pictures with questions, and one ten times as
large, are written to a temporary folder (1.5 GB with the defaults). A process of its own then takes
one epoch of batches from each, once with all pictures held in memory and once with none. From disk,
the larger split should need little more memory than the smaller: a window is held either way.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vlm.data import order
from vlm.data.loading import QuestionData
from vlm.data.order import PictureOrder
from vlm.data.shards import Images
from vlm.data.tables import Questions
from vlm.data.tokenizer import TextTokenizer
from vlm.data.windows import Windows
from vlm.data.writing import write_questions, write_scenes

ROOT = Path(__file__).parent.parent
TIMES = 10  # the larger split
ASKED = 8  # questions a picture
BATCH = 96  # pictures
WORDS = [f"w{number}" for number in range(50)]
PLENTY = 1 << 20  # MiB


def main() -> None:
    """Write the splits, read them, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--scenes", type=int, default=20_000, help="of the smaller split")
    parser.add_argument("--size", type=int, default=48, help="height and width of a picture")
    parser.add_argument("--window-mib", type=int, default=order.WINDOW_BYTES >> 20)
    parser.add_argument("--read", metavar="FOLDER", help="be the process that reads this split")
    parser.add_argument("--memory-mib", type=int, default=0, help="for the pictures it reads")
    given = parser.parse_args()
    order.WINDOW_BYTES = given.window_mib << 20
    if given.read is not None:
        print(json.dumps(read(Path(given.read), given.memory_mib)))
        return
    print("pictures | held in memory | windows | start, s | pictures/s | peak memory, MiB")
    with tempfile.TemporaryDirectory(prefix="reading-") as parent:
        for number in (given.scenes, TIMES * given.scenes):
            folder = Path(parent) / str(number)
            write(folder, number, given.size)
            for memory in (PLENTY, 0):
                found = apart(folder, memory, given.window_mib)
                figures = (
                    f"{number:,}",
                    "all" if memory else "none",
                    found["windows"],
                    f"{found['start']:.1f}",
                    f"{found['rate']:,.0f}",
                    f"{found['peak']:,.0f}",
                )
                print(*figures, sep=" | ", flush=True)


def write(folder: Path, number: int, size: int) -> None:
    """A split of random pictures of three channels."""
    rng = np.random.default_rng(0)

    def pictures() -> Iterator[Images]:
        for begin in range(0, number, 1000):
            shape = (min(1000, number - begin), 3, size, size)
            yield rng.integers(0, 256, shape, np.uint8)

    captions = [[f"{WORDS[i % 50]} {WORDS[i % 7]}"] for i in range(number)]
    write_scenes(folder, pictures(), [[]] * number, captions, [["key"]] * number)
    scene = np.repeat(np.arange(number), ASKED)
    texts = np.array(WORDS, object)[rng.integers(0, len(WORDS), (3, len(scene)))]
    write_questions(folder, scene, ["f"] * len(scene), *texts)


def apart(folder: Path, memory: int, window: int) -> dict[str, float]:
    """What `read` finds in a process of its own, whose memory is nothing else's."""
    options = ["--read", str(folder), "--memory-mib", str(memory), "--window-mib", str(window)]
    command = [sys.executable, "-m", "benchmarks.reading", *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def read(folder: Path, memory: int) -> dict[str, float]:
    """Seconds until the first batch could be asked for, then pictures a second of an epoch."""
    began = time.perf_counter()
    tokenizer, asked = TextTokenizer.fit(WORDS), Questions(folder)
    data = Windows(
        folder,
        lambda s: QuestionData(s, asked.of(s.scene_id), tokenizer, 8, WORDS),
        memory,
    )
    seen = PictureOrder(data.layout, BATCH, seed=0)
    ready = time.perf_counter()
    windows = seen.windows(epoch=0)
    steps = sum(int(data.layout.sizes[window.groups].sum()) // BATCH for window in windows)
    for step in range(steps):
        groups, rows = seen.at(step)
        data.window(groups).batch(rows)
    return {
        "windows": len(windows),
        "start": ready - began,
        "rate": steps * BATCH / (time.perf_counter() - ready),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    main()
