"""Which run a checkpoint belongs to, and when it goes."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from project import ROOT

from stages.running import stopping, training
from vlm.config import RuntimeConfig, load_params
from vlm.model.folder import save_tensors
from vlm.training.checkpoint import Checkpoints
from vlm.training.fit import InterruptedTrainingError

PARAMS = load_params(ROOT / "presets/tiny.yaml")
RUNTIME = RuntimeConfig(**{**PARAMS.runtime.model_dump(), "device": "cpu"})
Stage = Callable[..., Path]


class CrashError(Exception):
    """What ends a stage early."""


@pytest.fixture
def stage(tmp_path, monkeypatch) -> Stage:
    """One that trains on a folder and a file, and leaves a checkpoint unless it `ends`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stopping, "_state", stopping._Stopping())
    code = Path("code.py")
    code.write_text("one = 1")
    monkeypatch.setattr(training, "modules_in_use", lambda: [code])
    Path("data").mkdir()
    Path("data/table").write_text("rows")
    Path("weights").write_text("weights")

    def run(section=PARAMS.align, seed=0, ends=False, runtime=RUNTIME) -> Path:
        sections, inputs = {"seed": seed, "align": section}, [Path("data"), Path("weights")]
        folder = Path()
        try:
            with training.training("align", sections, inputs, 20, runtime) as how:
                assert how.checkpoints is not None
                folder = how.checkpoints.folder
                how.checkpoints.read()
                how.checkpoints.write({"w": torch.zeros(1)}, {})
                if not ends:
                    raise CrashError
        except CrashError:
            pass
        return folder

    return run


def other(**changes):
    return PARAMS.align.model_copy(update=changes)


CHANGES = {
    "parameters": [
        lambda: {"section": other(steps=200)},
        lambda: {"section": other(keep="last")},
        lambda: {"seed": 1},
    ],
    "data": [
        lambda: Path("data/table").write_text("row"),
        lambda: Path("data/table").rename("data/other"),
        lambda: Path("data/more").write_text(""),
        lambda: Path("weights").unlink(),
    ],
    "code": [
        lambda: Path("code.py").write_text("one = 2"),
        lambda: pytest.MonkeyPatch().setattr(training, "LIBRARIES", ("numpy",)),
    ],
}


@pytest.mark.parametrize(
    ("part", "change"), [(part, change) for part, all_ in CHANGES.items() for change in all_]
)
def test_another_run_starts_anew_and_says_why(stage: Stage, part, change, capsys, monkeypatch):
    monkeypatch.setattr(training, "LIBRARIES", training.LIBRARIES)  # which one change alters
    before = stage()
    assert stage() == before  # the same run: the same folder, and nothing to say
    assert capsys.readouterr().err == ""
    changed = change()
    after = stage(**changed) if isinstance(changed, dict) else stage()
    assert after != before and before.is_dir()
    assert capsys.readouterr().err == (
        f"align: not going on from {before}, a run of other {part}; delete it or go back to them\n"
    )


def test_how_the_work_is_run_changes_no_run(stage: Stage):
    runtime = RuntimeConfig(**{**RUNTIME.model_dump(), "threads": 7, "checkpoint_seconds": 0.0})
    assert stage() == stage(runtime=runtime)


def test_both_changes_are_told(stage: Stage, capsys):
    stage()
    Path("code.py").write_text("")
    stage(seed=1)
    assert "a run of other parameters and code;" in capsys.readouterr().err


def test_a_run_that_saved_nothing_is_not_told_of(stage: Stage, capsys):
    (stage() / "checkpoint.safetensors").unlink()
    stage(seed=1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("left", [None, "{"])
def test_a_run_whose_name_is_lost_is_other_in_all(stage: Stage, capsys, left):
    """As a kill leaves it that comes while a finished run clears up."""
    identity = stage() / training.IDENTITY
    identity.unlink() if left is None else identity.write_text(left)
    stage(seed=1)
    assert "a run of other parameters and data and code;" in capsys.readouterr().err


def test_after_success_nothing_is_left(stage: Stage):
    folder = stage()
    assert stage(ends=True) == folder
    assert not list(Path(".resume").rglob("*.*"))


def test_the_seconds_of_an_interrupted_process_count(stage: Stage, monkeypatch):
    told: list[float] = []
    monkeypatch.setattr(training, "seconds_before", told)
    checkpoints = Checkpoints(stage())
    assert told == []
    checkpoints.read()
    stage(ends=True)
    assert told == [checkpoints.before] and told[0] > 0


def test_what_a_kill_left_of_a_file_goes(stage: Stage):
    folder = stage()
    half = folder / ".checkpoint.safetensors.x.partial"
    half.write_text("half")
    stage()
    assert not half.exists() and (folder / "checkpoint.safetensors").exists()


def test_a_signal_that_comes_after_the_last_step_stops_the_stage_too(stage: Stage, monkeypatch):
    """As a stage writes its model; DVC would go on with the next stage if this one ended well."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    save = save_tensors

    def write_and_be_asked(*arguments) -> None:
        save(*arguments)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("vlm.training.checkpoint.save_tensors", write_and_be_asked)
    stopping.install()
    try:
        with pytest.raises(InterruptedTrainingError, match="after step 20 of 20: saved"):
            stage(ends=True)
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert list(Path(".resume").rglob("checkpoint.safetensors"))


def test_the_modules_are_this_projects_own():
    names = {
        path.relative_to(ROOT).as_posix()
        for path in training.modules_in_use()
        if ROOT in path.parents
    }
    assert {"stages/running/training.py", "vlm/training/fit.py", "vlm/config/schema.py"} <= names
    # What runs the tests is in use too, and may lie in the project.
    assert all(name.startswith(("vlm/", "stages/", ".venv/")) for name in names)
