"""The same answers with and without the KV cache, and the time it saves.

Reads `models/train_vqa/generator/`, `data/test` and the params `seed`, `benchmark_kv_cache`;
writes `metrics/benchmark_kv_cache.json` and the sweep in `plots/benchmark_kv_cache/`.
"""

import os
import platform
from pathlib import Path

import numpy as np
import torch

from stages.runner import run, say, select_device
from vlm.config import Params
from vlm.data.loading import to_floats
from vlm.data.tables import read_questions, read_scenes
from vlm.data.tokenizer import TextTokenizer
from vlm.errors import StoppedError
from vlm.evaluation.decoding import ARMS, Timing, check_equality, lengthened, sweep
from vlm.files import write_json, write_text
from vlm.model.attention import Memory
from vlm.model.folder import load_generator

TEST, MODEL = Path("data/test"), Path("models/train_vqa/generator")
METRICS, PLOTS = Path("metrics/benchmark_kv_cache.json"), Path("plots/benchmark_kv_cache")
EQUALITY_ROWS = 256


def main(params: Params) -> None:
    section, device = params.benchmark_kv_cache, select_device(params.runtime)
    model = load_generator(MODEL).to(device)
    tokenizer = TextTokenizer.load(MODEL)
    scenes, questions = read_scenes(TEST), read_questions(TEST)
    rng = np.random.default_rng(params.seed)

    @torch.inference_mode()
    def memory_of(rows: int) -> Memory:
        """What the decoder reads for so many test questions; drawn again where too few."""
        chosen = rng.choice(len(questions), size=rows, replace=rows > len(questions))
        images = torch.from_numpy(scenes.images[questions.scene_index[chosen]])
        asked = tokenizer.encode(list(questions.question[chosen])).to(device)
        return model.memory(model.encode_images(to_floats(images.to(device))), asked)

    equality = check_equality(
        model.decoder, memory_of(EQUALITY_ROWS), EQUALITY_ROWS, model.config.max_text_len
    )
    metrics = {
        "tokens_equal": int(equality.tokens_equal),
        "max_logit_diff": equality.max_logit_diff,
        "logit_tolerance": equality.tolerance,
        "repeats": section.repeats,
        "machine": machine(),
    }
    if not equality.holds:
        write_json(METRICS, metrics)
        raise StoppedError(
            f"the arms differ: tokens_equal {equality.tokens_equal}, largest logit difference"
            f" {equality.max_logit_diff:.2e}, tolerance {equality.tolerance:.2e}; nothing was timed"
        )

    decoder = lengthened(model.decoder, max(section.lengths))
    timings: list[Timing] = []
    for timing in sweep(
        decoder,
        memory_of,
        section.batch_sizes,
        section.lengths,
        repeats=section.repeats,
        warmup=section.warmup,
    ):
        timings.append(timing)
        say(
            f"benchmark batch {timing.batch} length {timing.length} {timing.arm}:"
            f" {timing.tokens_per_second:,.0f} tokens/s"
        )
    timings.sort(key=lambda t: (t.batch, t.length))
    write_text(PLOTS / "sweep.tsv", sweep_table(timings))
    write_text(PLOTS / "decode_time.tsv", decode_time_table(timings, max(section.batch_sizes)))
    write_json(METRICS, {**metrics, "speedup": speedups(timings)})


def machine() -> dict[str, object]:
    """What the timings were taken on."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "system": platform.system(),
    }


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def speedups(timings: list[Timing]) -> dict[str, float]:
    """Uncached time over cached time, by cell."""
    seconds = {(t.batch, t.length, t.arm): t.seconds for t in timings}
    return {
        f"b{batch}_t{length}": uncached / seconds[batch, length, "cached"]
        for (batch, length, arm), uncached in seconds.items()
        if arm == "uncached"
    }


def sweep_table(timings: list[Timing]) -> str:
    """A row per cell and arm."""
    lines = ["batch\tlength\tarm\tseconds\tseconds_min\tseconds_max\ttokens_per_second"]
    lines += [
        f"{t.batch}\t{t.length}\t{t.arm}\t{t.seconds:.6f}\t{t.seconds_min:.6f}"
        f"\t{t.seconds_max:.6f}\t{t.tokens_per_second:.1f}"
        for t in timings
    ]
    return "\n".join(lines) + "\n"


def decode_time_table(timings: list[Timing], batch: int) -> str:
    """Seconds against length at one batch size, a column per arm: what `dvc plots` draws."""
    seconds = {(t.length, t.arm): t.seconds for t in timings if t.batch == batch}
    lines = ["\t".join(["length", *ARMS])]
    for length in sorted({length for length, _ in seconds}):
        lines.append("\t".join([str(length), *(f"{seconds[length, arm]:.6f}" for arm in ARMS)]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run("benchmark_kv_cache", main)
