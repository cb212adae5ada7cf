"""Stages that train, ended by Ctrl-C, SIGTERM and kill -9, and run again to the same bytes."""

import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.pipeline

NAME, STAGE = "train_vqa_classifier", ["python", "-m", "stages.train_vqa", "classifier"]
OUTS = [
    "models/train_vqa/classifier/config.json",
    "models/train_vqa/classifier/model.safetensors",
    "models/train_vqa/classifier/tokenizer.json",
    f"metrics/{NAME}.json",
    f"plots/{NAME}.tsv",
]


@pytest.fixture
def copy(finished, tmp_path):
    """A finished run, whose outs of the stage are to be made again, saved after each step."""
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder)
    text = (folder / "params.yaml").read_text()
    assert "checkpoint_seconds: 30.0" in text
    (folder / "params.yaml").write_text(text.replace("seconds: 30.0", "seconds: 0"))
    for name in OUTS:
        (folder / name).unlink()
    return type(finished)(folder)


@contextmanager
def started(copy, *command: str):
    """A process, with a group of its own as a terminal gives it; the checkpoint is there."""
    with subprocess.Popen(
        command,
        cwd=copy.folder,
        env=copy.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        while not list(copy.folder.glob(f".resume/{NAME}/*/checkpoint.safetensors")):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        yield process


def step(pattern: str, text: str) -> int:
    """The step that a line tells."""
    found = re.search(f"^{NAME}: {pattern}", text, flags=re.MULTILINE)
    assert found, text
    return int(found[1])


def assert_as_straight(copy, finished) -> None:
    for name in OUTS:
        made, straight = copy.folder / name, finished.folder / name
        assert made.read_bytes() == straight.read_bytes(), name
    assert not [p for p in copy.folder.rglob("*.partial") if ".dvc" not in p.parts]
    assert not list(copy.folder.glob(f".resume/{NAME}/*"))


def test_killed_stopped_and_ended_it_gives_the_bytes_of_a_straight_run(copy, finished):
    with started(copy, *STAGE) as process:
        process.kill()
        assert process.wait() == -signal.SIGKILL
    done = 0
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with started(copy, *STAGE) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            resumed = step(r"going on after step (\d+) of 40, from \.resume/", line)
            assert resumed >= done
            os.kill(process.pid, number)
            text = process.communicate(timeout=60)[0]
        assert process.returncode == status, text
        assert "stopping once this step is saved; once more to stop at once\n" in text
        done = step(r"interrupted after step (\d+) of 40: saved; run it again to go on", text)
        assert resumed <= done < 40
        assert not (copy.folder / OUTS[1]).exists()
    text = copy.run(*STAGE).stderr
    assert step(r"going on after step (\d+) of 40", text) == done
    assert_as_straight(copy, finished)


def test_dvc_repro_goes_on_after_ctrl_c(copy, finished):
    repro = ["dvc", "repro", "--single-item", "train_vqa@classifier"]
    with started(copy, *repro) as process:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        text = process.communicate(timeout=60)[0]
    assert process.returncode == 255, text
    done = step(r"interrupted after step (\d+) of 40: saved", text)
    again = copy.run(*repro)
    assert step(r"going on after step (\d+) of 40", again.stderr) == done
    assert_as_straight(copy, finished)
    assert "didn't change" in copy.run(*repro).stdout
