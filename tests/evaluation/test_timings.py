"""Exponents, the cost model and the table, on timings whose truth is known."""

import csv
from io import StringIO
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm.evaluation.costs import ARMS, DecoderShape, bytes_read, cache_bytes, flops
from vlm.evaluation.timings import (
    CostModel,
    Timing,
    decode_time_table,
    exponents,
    fit_costs,
    fit_exponent,
    read_timing,
    speed_ups,
    sweep_table,
)

SHAPE = DecoderShape(2, 64, 128, 50, 64, 2)
TRUE = CostModel(5e-4, 2e-11, 3e-10)


def sweep(model: CostModel, noise: float = 0.0) -> list[Timing]:
    """Cells that take what the model says, but for noise of so many parts of it."""
    rng = np.random.default_rng(0)
    timings = []
    for batch, length, (name, arm) in product((8, 64, 512), (20, 40, 80), ARMS.items()):
        held = cache_bytes(SHAPE, arm, batch, length)
        work = {"flops": flops(SHAPE, arm, batch, length)}
        work["bytes_read"] = bytes_read(SHAPE, batch, length)
        cell = Timing(batch, length, name, 3, 1.0, 1.0, 1.0, held, held, **work)
        seconds = model.predict(cell) * float(np.exp(noise * rng.standard_normal()))
        timings.append(
            Timing(
                batch, length, name, 3, seconds, 0.9 * seconds, 1.2 * seconds, held, held, **work
            )
        )
    return timings


def costs(model: CostModel) -> list[float]:
    return [model.seconds_per_step, model.seconds_per_flop, model.seconds_per_byte]


@given(st.floats(0.0, 3.0), st.floats(1e-6, 1e3))
def test_the_exponent_of_a_power_law(exponent, factor):
    lengths = [20, 40, 80, 160]
    seconds = [factor * length**exponent for length in lengths]
    assert fit_exponent(lengths, seconds) == pytest.approx(exponent, abs=1e-9)


def test_exponents_are_fitted_by_arm_and_batch_and_need_two_lengths():
    powers = {"uncached": 2.0, "cached": 1.0}
    timings = [
        Timing(batch, length, arm, 1, batch * length**power, 0, 0, 0, 0, 1, 1)
        for (arm, power), batch, length in product(powers.items(), (8, 64), (20, 80))
    ]
    found = exponents([*timings, Timing(512, 20, "cached", 1, 1.0, 1.0, 1.0, 0, 0, 1, 1)])
    assert set(found) == set(powers)
    for arm, power in powers.items():
        assert found[arm] == pytest.approx({8: power, 64: power})


@pytest.mark.parametrize("absent", [[], [0], [1], [2], [0, 1], [0, 2], [1, 2]])
def test_the_cost_model_finds_the_costs_that_made_the_timings(absent):
    true = CostModel(*(0.0 if place in absent else cost for place, cost in enumerate(costs(TRUE))))
    timings = sweep(true)
    found = fit_costs(timings)
    assert costs(found) == pytest.approx(costs(true), rel=1e-6)
    told = found.figures(timings)
    assert told["worst_error"] < 1e-6
    assert told["ms_per_step"] == pytest.approx(1e3 * true.seconds_per_step)
    assert told["ms_per_gflop"] == pytest.approx(1e12 * true.seconds_per_flop)
    assert told["ms_per_gbyte"] == pytest.approx(1e12 * true.seconds_per_byte)


def test_no_costs_that_are_not_negative_fit_better():
    """With noise the plain least squares may want a negative cost; ours never has one."""
    rng = np.random.default_rng(1)
    timings = sweep(CostModel(5e-4, 2e-11, 0.0), noise=0.3)
    found = fit_costs(timings)
    assert min(costs(found)) >= 0
    least = sum(found.error(t) ** 2 for t in timings)
    smallest = np.array([1e-9, 1e-16, 1e-15])  # so that a cost of 0 is moved too
    for _ in range(500):
        factors = np.exp(rng.normal(0, rng.choice([0.01, 0.1, 1.0]), 3))
        other = CostModel(*((np.array(costs(found)) + smallest) * factors).tolist())
        assert sum(other.error(t) ** 2 for t in timings) >= least - 1e-9


def test_parts_add_up_to_the_prediction():
    for timing in sweep(TRUE):
        assert sum(TRUE.parts(timing)) == pytest.approx(timing.seconds)
        assert TRUE.parts(timing).overhead == pytest.approx(5e-4 * timing.length)


def test_a_speed_up_is_against_the_uncached_arm_of_the_same_cell():
    slow = {"uncached": 0.4, "cached": 0.1}
    timings = [
        Timing(batch, length, arm, 1, seconds * length, 0, 0, 0, 0, 1, 1)
        for batch, length, (arm, seconds) in product((8, 64), (20, 40), slow.items())
    ]
    expected = {"uncached": 1.0, "cached": 4.0}
    for timing, ratio in speed_ups(timings).items():
        assert ratio == pytest.approx(expected[timing.arm])


def test_the_table_is_read_as_it_was_written():
    timings = sweep(TRUE)
    rows = list(csv.DictReader(StringIO(sweep_table(timings, TRUE)), delimiter="\t"))
    assert len(rows) == len(timings)
    for row, timing in zip(rows, timings, strict=True):
        read = read_timing(row)
        for name, value in vars(timing).items():
            assert getattr(read, name) == pytest.approx(value, abs=1e-6), name
        per_step, predicted = float(row["ms_per_step"]), float(row["predicted_seconds"])
        assert per_step * timing.length == pytest.approx(1000 * timing.seconds, abs=1e-3)
        assert predicted == pytest.approx(TRUE.predict(timing), abs=1e-6)
        tokens = float(row["tokens_per_second"]) * timing.seconds
        assert tokens == pytest.approx(timing.batch * timing.length)


def test_the_plot_of_one_batch_size_has_a_column_an_arm():
    timings = sweep(TRUE)
    rows = list(csv.DictReader(StringIO(decode_time_table(timings, 64)), delimiter="\t"))
    assert [row["length"] for row in rows] == ["20", "40", "80"]
    seconds = {(t.length, t.arm): t.seconds for t in timings if t.batch == 64}
    for row in rows:
        for arm in ARMS:
            expected = seconds[int(row["length"]), arm]
            assert float(row[arm]) == pytest.approx(expected, abs=1e-6)
