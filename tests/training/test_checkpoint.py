"""When a checkpoint is written, when none is, and what is no checkpoint."""

import errno
import math
import time
from itertools import count
from pathlib import Path

import pytest
import torch
from resumed_run import EMPTY, NEVER, Net, Run, micro_batches, same, short
from safetensors import SafetensorError
from safetensors.torch import save_file
from small_run import Numbers, points, regression

from vlm.errors import UserError
from vlm.training import checkpoint
from vlm.training.checkpoint import Checkpoints
from vlm.training.execution import Execution
from vlm.training.fit import InterruptedTrainingError, fit
from vlm.training.terms import NonFiniteLossError


@pytest.mark.parametrize("asked_to_stop", [False, True])
def test_after_a_nan_nothing_is_saved(folder, asked_to_stop):
    run = Run(folder(), short(), seconds=NEVER if asked_to_stop else 0)

    def poisoned(step: int) -> list[Numbers]:
        return [Numbers(torch.full((4, 2), math.nan), {"square": 4})] if step == 4 else [EMPTY]

    def stop() -> bool:
        return asked_to_stop and run.asked[-1] == 5

    with pytest.raises(NonFiniteLossError, match="step 5"):
        run.go(Execution(should_stop=stop), batches=poisoned)
    found = run.checkpoints.read()
    assert (found is None) == asked_to_stop
    if found is not None:
        assert found[1]["done"] == 4
        assert all(tensor.isfinite().all() for tensor in found[0].values())
        with pytest.raises(NonFiniteLossError, match="step 5"):
            run.go(batches=poisoned)


def test_without_a_place_for_it_nothing_is_kept():
    model = Net(0)
    nowhere = Execution(should_stop=lambda: True)
    with pytest.raises(InterruptedTrainingError, match="after step 0 of 7: nothing was kept"):
        fit(model, regression(model), lambda step: [EMPTY], [points(4, 0)], short(), nowhere)


def test_checkpoints_are_written_by_the_clock(folder, monkeypatch):
    """2 seconds go by before each step, and a checkpoint lasts for 5."""
    now = [time.monotonic()]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    run = Run(folder(), short(steps=10), seconds=5)
    written = []
    write = Checkpoints.write

    def told(self, tensors, numbers):
        written.append(numbers["done"])
        write(self, tensors, numbers)

    def later(step: int) -> list[Numbers]:
        now[0] += 2
        return micro_batches(step, run.section)

    monkeypatch.setattr(Checkpoints, "write", told)
    run.go(batches=later)
    assert written == [2, 5, 8, 10]  # as steps 3, 6 and 9 are to begin, and at the end


def test_the_seconds_of_interrupted_processes_add_up(folder, monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    place = folder() / "fingerprint"
    for seconds, before in ((7.0, 0.0), (5.0, 7.0), (0.0, 12.0)):
        checkpoints = Checkpoints(place)
        checkpoints._began = now[0]  # its default is the real clock
        assert (checkpoints.read() is None) == (before == 0)
        assert checkpoints.before == pytest.approx(before)
        now[0] += seconds
        checkpoints.write({}, {})


def test_a_full_disk_ends_the_run_and_keeps_the_checkpoint_before(folder, monkeypatch):
    straight, run = Run(folder(), short()).go(), Run(folder(), short(), seconds=0)
    calls = count()

    def full(tensors, path, metadata):
        if next(calls) == 4:
            Path(path).write_bytes(b"half")
            raise SafetensorError(f"I/O error: no room (os error {errno.ENOSPC})")
        save_file(tensors, path, metadata)

    with monkeypatch.context() as patch:
        patch.setattr("vlm.model.folder.save_file", full)
        with pytest.raises(OSError, match="No space left"):
            run.go()
    assert [path.name for path in run.checkpoints.folder.iterdir()] == [checkpoint.CHECKPOINT]
    run.go()
    assert run.told == [3] and same(run, straight)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def weights_alone(path: Path) -> None:
    save_file(Net(0).state_dict(), path)


def no_numbers(path: Path) -> None:
    save_file({}, path, {"numbers": "{"})


def of_another_run(path: Path) -> None:
    other = Checkpoints(path.parent.parent / "other")
    other.write({}, {"done": 3})
    other.path.replace(path)


@pytest.mark.parametrize("damage", [cut, empty, weights_alone, no_numbers, of_another_run])
def test_a_file_that_is_no_checkpoint_of_this_run_is_named(folder, damage):
    run = Run(folder(), short()).go()
    damage(run.checkpoints.path)
    with pytest.raises(UserError) as error:
        run.go()
    assert str(error.value).startswith(f"{run.checkpoints.path}: got another file")
    run.checkpoints.path.unlink()
    assert run.go().told == []
