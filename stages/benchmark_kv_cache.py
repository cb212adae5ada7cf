"""The same answers with and without the KV cache, the time it saves, and what explains that.

Reads `models/train_vqa/generator/`, `data/test` and the params `seed`, `benchmark_kv_cache`;
writes `metrics/benchmark_kv_cache.json` and the sweep in `plots/benchmark_kv_cache/`.
"""

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from stages.running.stage import run, say, select_device
from vlm.config import BenchmarkConfig, Params
from vlm.data.loading import to_floats
from vlm.data.tables import read_questions, read_scenes
from vlm.data.tokenizer import TextTokenizer
from vlm.errors import StoppedError
from vlm.evaluation.decoding import check_equality, lengthened, sweep
from vlm.evaluation.timings import (
    CostModel,
    Timing,
    decode_time_table,
    exponents,
    fit_costs,
    speed_ups,
    sweep_table,
)
from vlm.files import write_json, write_text
from vlm.model.decoder import VisionLanguageDecoder
from vlm.model.folder import load_generator
from vlm.model.memory import Memory

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

    # Many trained texts, and what will be timed: the longer decoder, to the longest text.
    longest, few = max(section.lengths), min(section.batch_sizes)
    timed_decoder = lengthened(model.decoder, longest)
    equality = check_equality(
        model.decoder, memory_of(EQUALITY_ROWS), EQUALITY_ROWS, model.config.max_text_len
    ).worse(check_equality(timed_decoder, memory_of(few), few, longest))
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

    timings = timed(timed_decoder, memory_of, section)
    costs = fit_costs(timings)
    write_text(PLOTS / "sweep.tsv", sweep_table(timings, costs))
    write_text(PLOTS / "decode_time.tsv", decode_time_table(timings, max(section.batch_sizes)))
    write_json(METRICS, {**metrics, **summary(timings, costs)})


def timed(
    decoder: VisionLanguageDecoder, memory_of: Callable[[int], Memory], section: BenchmarkConfig
) -> list[Timing]:
    """The sweep, told of as it goes; by batch size and length."""
    timings: list[Timing] = []
    for timing in sweep(
        decoder,
        memory_of,
        section.batch_sizes,
        section.lengths,
        repeats=section.repeats,
        warmup=section.warmup,
        max_seconds=section.max_seconds,
    ):
        timings.append(timing)
        say(
            f"benchmark batch {timing.batch} length {timing.length} {timing.arm}:"
            f" {timing.tokens_per_second:,.0f} tokens/s"
        )
    return sorted(timings, key=lambda t: (t.batch, t.length))


def summary(timings: Sequence[Timing], costs: CostModel) -> dict[str, object]:
    """What the sweep says, for `dvc metrics`: gains, growth, and what explains both."""
    gains = {t: gain for t, gain in speed_ups(timings).items() if t.arm == "cached"}
    return {
        "speedup": {f"b{t.batch}_t{t.length}": gain for t, gain in gains.items()},
        "exponent": {
            arm: {f"b{batch}": exponent for batch, exponent in by_batch.items()}
            for arm, by_batch in exponents(timings).items()
        },
        "cost_model": costs.figures(timings),
        "cache_bytes_as_predicted": int(
            all(t.cache_bytes == t.cache_bytes_predicted for t in timings)
        ),
    }


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


if __name__ == "__main__":
    run("benchmark_kv_cache", main)
