"""The same run under several seeds."""

import json

import pytest
from project import ROOT

from vlm.app import seeds
from vlm.errors import StoppedError, UserError


def test_every_seed_runs_every_stage_in_its_own_folder(tmp_path, monkeypatch):
    """The stages are stood in for; what they would find and leave is not."""
    ran = []

    class Done:
        returncode = 0

    def stand_in(command, cwd):
        ran.append(command[2:])
        seed = int((cwd / "params.yaml").read_text().split("seed: ")[1].split("\n")[0])
        (cwd / "metrics").mkdir(exist_ok=True)
        figures = {"head": {"right": seed / 10, "right_low": 0.0, "right_high": 1.0}, "other": 3}
        (cwd / "metrics/evaluate.json").write_text(json.dumps(figures))
        return Done()

    monkeypatch.setattr(seeds.subprocess, "run", stand_in)
    runs = {
        seed: seeds.run_seed(ROOT / "presets/tiny.yaml", seed, tmp_path / str(seed))
        for seed in (1, 4)
    }
    names = [" ".join(command) for command in ran[: len(ran) // 2]]
    assert names[0] == "stages.generate" and names[-1] == "stages.evaluate"
    assert "stages.train_vqa generator" in names and len(names) == 7
    assert runs[4]["evaluate.head.right"] == 0.4
    lines = seeds.table(runs).splitlines()
    assert lines[0].split() == ["figure", "seed", "1", "seed", "4", "mean", "sd"]
    assert len(lines) == 2  # `other` carries no interval
    assert "0.4000 [0.0000, 1.0000]" in lines[1]
    assert lines[1].split()[-2:] == ["0.2500", "0.2121"]


def test_a_stage_that_fails_stops_the_rest(tmp_path, monkeypatch):
    class Done:
        returncode = 2

    monkeypatch.setattr(seeds.subprocess, "run", lambda command, cwd: Done())
    with pytest.raises(StoppedError, match="seed 0: stage generate ended with 2"):
        seeds.run_seed(ROOT / "presets/tiny.yaml", 0, tmp_path / "run")


def test_wrong_parameters_are_refused_before_anything_is_made(tmp_path):
    (tmp_path / "params.yaml").write_text("seed: fast\n")
    with pytest.raises(UserError):
        seeds.run_seed(tmp_path / "params.yaml", 0, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_seed_that_never_got_there_spoils_no_mean():
    runs = {0: {"head.steps_to_90": 150.0}, 1: {"head.steps_to_90": -1.0}}
    assert seeds.table(runs).splitlines()[1].split() == [
        "head.steps_to_90",
        "150",
        "never",
        "-",
        "-",
    ]
