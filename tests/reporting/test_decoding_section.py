"""The page's section on the KV cache: its sentences are the sweep's numbers."""

import re
from dataclasses import replace

import pytest
from example_run import COSTS, PARAMS, timings, write_run

from vlm.evaluation.timings import CostModel, Timing, exponents, fit_costs, speed_ups, sweep_table
from vlm.reporting.decoding import kv_cache
from vlm.reporting.inputs import Inputs, read_inputs

SWEEP = {(t.batch, t.length, t.arm): t for t in timings()}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    root = tmp_path_factory.mktemp("run")
    write_run(root)
    return read_inputs(root, PARAMS)


def text_of(inputs: Inputs, sweep: list[Timing] | None = None) -> str:
    page = kv_cache(inputs if sweep is None else replace(inputs, sweep=sweep))
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def ratio(batch: int, arm: str, length: int) -> str:
    return f"{SWEEP[batch, 2 * length, arm].seconds / SWEEP[batch, length, arm].seconds:.1f}"


def work(batch: int, arm: str, length: int) -> str:
    return f"{SWEEP[batch, 2 * length, arm].flops / SWEEP[batch, length, arm].flops:.1f}"


def test_double_the_length_is_answered_at_the_largest_and_the_smallest_batch(inputs: Inputs):
    text = text_of(inputs)
    for batch in (64, 8):
        assert (
            f"At a batch of {batch}, 80 tokens take {ratio(batch, 'uncached', 40)} times as long as"
            f" 40 without a cache ({work(batch, 'uncached', 40)} times the arithmetic), and"
            f" {ratio(batch, 'cached', 40)} times with the whole of it"
            f" ({work(batch, 'cached', 40)} times)."
        ) in text
    for arm, by_batch in exponents(timings()).items():
        assert f" {arm.replace('_', ' ')} {by_batch[8]:.2f} {by_batch[64]:.2f} " in text
    assert "fitted over lengths 20 to 80" in text


def test_shrink_the_batch_is_answered_by_gain_and_overhead(inputs: Inputs):
    text, ratios = text_of(inputs), speed_ups(timings())
    large, small = SWEEP[64, 80, "cached"], SWEEP[8, 80, "cached"]
    assert f"{ratios[large]:.1f} at a batch of 64, {ratios[small]:.1f} at a batch of 8." in text
    assert f"{large.ms_per_step:.3g} ms at 64, {small.ms_per_step:.3g} ms at 8." in text
    shares = [100 * COSTS.seconds_per_step * t.length / t.seconds for t in (large, small)]
    assert f"{shares[0]:.1f}% at 64, {shares[1]:.1f}% at 8." in text


def test_the_cost_model_is_told_with_units_and_errors(inputs: Inputs):
    text = text_of(inputs)
    assert "overhead 0.5 ms a step, arithmetic at 50 GFLOP/s, reading at 3.33 GB/s" in text
    assert "It is &lt;0.01% off in the median cell" in text
    base = timings()[0]
    slow = [replace(base, seconds=2.0 * base.seconds), *timings()[1:]]
    assert "in the worst, uncached at a batch of 8 and 20 tokens." in text_of(inputs, slow)


def test_a_cost_that_does_not_show_is_said_not_to(inputs: Inputs):
    model = CostModel(5e-4, 2e-11, 0.0)
    free = [replace(t, seconds=model.predict(t)) for t in timings()]
    text = text_of(inputs, free)
    assert "arithmetic at 50 GFLOP/s, reading at no cost that shows." in text


def test_every_cell_stands_in_the_table(inputs: Inputs):
    text = text_of(inputs)
    cell = SWEEP[8, 20, "cached"]
    figures = [
        "3",
        f"{cell.ms_per_step:.3g}",
        f"{1000 * fit_costs(timings()).predict(cell) / 20:.3g}",
        f"{cell.tokens_per_second:,.0f}",
        f"{speed_ups(timings())[cell]:.2f}x",
        f"{cell.cache_bytes / 2**20:.3g}",
        f"{cell.flops / 1e9:.3g}",
    ]
    times = r"\S+ ms \S+ ms to \S+ ms"
    row = f"8 pictures, 20 tokens cached {times} {re.escape(' '.join(figures))} "
    assert re.search(row, text)
    assert "All 24 cells of the sweep" in text
    assert "the same in every cell" in text


def test_bytes_that_were_not_predicted_are_shown_beside_the_prediction(inputs: Inputs):
    first, *others = timings()
    text = text_of(inputs, [replace(first, cache_bytes=2**20), *others])
    assert "1 (predicted 0)" in text
    assert "the bytes that its shape predicts are others in 1 cell." in text


def test_a_sweep_of_one_batch_and_one_length_has_nothing_to_double(inputs: Inputs):
    text = text_of(inputs, [t for t in timings() if (t.batch, t.length) == (8, 20)])
    assert "times as long as" not in text
    assert "fitted over lengths" not in text
    assert " at a batch of 8." in text


def test_what_is_read_back_is_what_was_timed(inputs: Inputs):
    assert sweep_table(inputs.sweep, COSTS) == sweep_table(timings(), COSTS)
