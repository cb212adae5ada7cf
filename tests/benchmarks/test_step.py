"""The step benchmark counts and times the steps that `fit` makes."""

import re

import pytest
from project import ROOT

from benchmarks import step
from benchmarks.timing import Times
from vlm.config import load_params

TINY = ROOT / "presets/tiny.yaml"


@pytest.mark.parametrize("stage", step.STAGES)
def test_every_stage_is_timed_and_counted(stage, capsys):
    step.main([stage, "--params", str(TINY), "--pictures", "3", "--threads", "1", "--repeats", "2"])
    said = capsys.readouterr().out
    assert "3 pictures" in said
    assert re.search(r"a step: \d+\.\d \(\d+\.\d-\d+\.\d\) ms.* \d+\.\d\d GFLOP\n", said)
    assert re.search(r"reaches \d+\.\d GFLOP/s.* \d+\.\d: \d+\.\d% of it", said)


def test_flops_grow_with_the_pictures():
    params = load_params(TINY)
    few, more, most = (step.count_flops(step.make_task(params, "pretrain", n)) for n in (4, 8, 12))
    # Not quite as the pictures do: captions are padded to the batch's longest, and contrast
    # compares each picture with each caption.
    assert more / few == pytest.approx(2, rel=0.1)
    assert most / few == pytest.approx(3, rel=0.1)


def test_as_many_times_as_repeats_and_the_same_batch_each_time():
    task = step.make_task(load_params(TINY), "classifier", 3)
    steps, products = step.time_steps(task, 4)
    assert len(steps.seconds) == len(products.seconds) == 4
    assert step.count_flops(task) == step.count_flops(task)


def test_the_share_is_the_rate_over_that_of_the_product():
    side = step.SQUARE.m
    lines = step.figures(side**3, Times((1.0, 2.0, 3.0)), Times((0.5, 0.5, 0.5)))
    assert "2000.0 (1000.0-3000.0)" in lines[0]
    assert lines[1].endswith("12.5% of it")  # half the FLOPs in four times the time


def test_a_missing_file_ends_with_status_2(capsys):
    with pytest.raises(SystemExit) as ended:
        step.main(["pretrain", "--params", "nowhere.yaml"])
    assert ended.value.code == 2
    assert "nowhere.yaml: no such file" in capsys.readouterr().err
