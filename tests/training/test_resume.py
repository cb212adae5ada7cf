"""A run that is stopped, however and wherever, and run again gives the bytes of a straight one."""

from hashlib import sha256
from itertools import count

import pytest
import torch
from resumed_run import STEPS, CrashError, Run, crashing_at, same, short
from small_run import points
from torch import nn

from vlm.training.schedule import learning_rate
from vlm.training.terms import Objective

WAYS = {
    "best": short(),
    "last": short(keep="last"),
    "in parts": short(accumulate=3),
    "unclipped": short(clip_norm=0.0),
    "validated at each step": short(eval_every=1),
}


@pytest.mark.parametrize("section", WAYS.values(), ids=WAYS)
def test_stopped_after_any_step(folder, section):
    straight = Run(folder(), section).go()
    assert straight.result.batches_without_target == section.accumulate
    for step in range(STEPS):
        run = Run(folder(), section)
        run.stop_at(step)
        run.go()
        assert run.told == [step] and run.asked == [*range(step + 1), *range(step, STEPS)]
        assert same(run, straight), step


def away(model: nn.Module) -> Objective:
    """Training draws away from what validation wants, so that its first weights are the best."""
    return Objective(
        lambda b: {"square": (model(b.images) - (3 if model.training else -99)).square().mean()},
        {"square": 1.0},
    )


def test_the_best_weights_of_before_are_still_the_best(folder):
    straight = Run(folder(), short()).go(objective=away)
    assert straight.result.kept_step == 3
    for step in range(STEPS):
        run = Run(folder(), short())
        run.stop_at(step, away)
        assert same(run.go(objective=away), straight), step


def test_every_step_drops_out_something_else(folder):
    """On one batch, with weights that stay: losses differ by what is dropped out alone."""
    still = short(learning_rate=1e-30, weight_decay=0.0, eval_every=1)
    run = Run(folder(), still).go(batches=lambda step: [points(4, 0)])
    assert len({row["train_loss"] for row in run.result.curve}) > STEPS / 2
    assert len({row["val_loss"] for row in run.result.curve}) == 1


def test_stopped_after_each_step(folder):
    straight, run = Run(folder(), short()).go(), Run(folder(), short())
    for step in range(STEPS):
        run.stop_at(step)
    run.go()
    assert run.told == list(range(STEPS))
    assert same(run, straight)


def test_stopped_after_the_last_step_nothing_is_left_to_do(folder):
    """As by a kill while the stage writes its files."""
    straight, run = Run(folder(), short()).go(), Run(folder(), short()).go()
    run.asked.clear()
    run.go()
    assert run.asked == [] and run.told == [STEPS] and same(run, straight)


@pytest.mark.parametrize("step", range(STEPS))
def test_killed_in_the_middle_of_a_step(folder, step):
    """Between its micro-batches, when gradients have been summed up."""
    section = short(accumulate=2)
    straight, run = Run(folder(), section).go(), Run(folder(), section, seconds=0)
    with pytest.raises(CrashError):
        run.go(objective=crashing_at(2 * step + 1))
    run.go()
    assert run.told == [step] and same(run, straight)


def test_killed_once_the_weights_have_moved(folder, monkeypatch):
    straight, run = Run(folder(), short()).go(), Run(folder(), short(), seconds=0)
    step, calls = torch.optim.AdamW.step, count()

    def crashing(optimizer):
        step(optimizer)
        if next(calls) == 3:
            raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", crashing)
        with pytest.raises(CrashError):
            run.go()
    run.go()
    assert run.told == [4] and same(run, straight)  # the batch without a target had no call


def test_rates_batches_losses_and_weights_after_step_40_of_100(tmp_path):
    """Warm-up 10, total 100, peak 1e-3, a cosine to 0."""
    section = short(steps=100, warmup_steps=10, learning_rate=1e-3, eval_every=1)
    straight, run = Run(tmp_path / "straight", section).go(), Run(tmp_path / "run", section, 0)
    with pytest.raises(CrashError):
        run.go(objective=crashing_at(40))
    assert learning_rate(40, section) == pytest.approx(7.5e-4)
    run.asked.clear()
    run.go()
    assert run.asked == list(range(40, 100))
    for column in ("rate", "train_loss", "val_loss"):
        rows, others = run.result.curve, straight.result.curve
        assert [row[column] for row in rows] == [row[column] for row in others]
    assert run.result.curve[40]["rate"] == learning_rate(40, section)

    def digest(model: nn.Module) -> str:
        tensors = model.state_dict().values()
        return sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()

    assert digest(run.model) == digest(straight.model)
