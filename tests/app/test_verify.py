"""`vlm verify` on small invented records and a small invented pipeline."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from project import ROOT

from vlm.app.locks import count_outs, differing_outs, reasons

STAGES = ["generate", "train"]


def entry(path: str, md5: str = "1" * 32, **more: int) -> dict:
    return {"path": path, "hash": "md5", "md5": md5, "size": 3, **more}


def lock() -> dict:
    return {
        "generate": {
            "deps": [entry("data/external"), entry("code.py")],
            "params": {"params.yaml": {"seed": 0}},
            "outs": [entry("data/train", "2" * 32 + ".dir", nfiles=2), entry("metrics/a.json")],
        },
        "train": {
            "deps": [entry("data"), entry("data/train/x"), entry("code.py")],
            "outs": [entry("models")],
        },
        "report": {"outs": [entry("reports")]},
    }


def told(got: dict, committed: dict | None = None) -> list[str]:
    return [str(one) for one in differing_outs(committed or lock(), got, STAGES)]


def test_equal_records_differ_in_nothing():
    assert told(lock()) == []
    assert count_outs(lock(), lock(), STAGES) == 3


def test_a_changed_hash_names_stage_path_and_both():
    got = lock()
    got["train"]["outs"][0]["md5"] = "3" * 32
    assert told(got) == [f"train: models: committed {'1' * 32}, got {'3' * 32}"]


def test_a_folders_number_of_files_is_told_where_it_differs():
    got = lock()
    got["generate"]["outs"][0].update(md5="3" * 32 + ".dir", nfiles=4)
    first, second = "2" * 32 + ".dir (2 files)", "3" * 32 + ".dir (4 files)"
    assert told(got) == [f"generate: data/train: committed {first}, got {second}"]
    got["generate"]["outs"][0]["nfiles"] = 2
    assert "files" not in told(got)[0]


def test_an_out_or_a_stage_that_one_record_lacks_differs():
    got = lock()
    got["generate"]["outs"].pop()
    assert told(got) == [f"generate: metrics/a.json: committed {'1' * 32}, got nothing"]
    assert told(lock(), got) == [f"generate: metrics/a.json: committed nothing, got {'1' * 32}"]
    assert count_outs(got, lock(), STAGES) == count_outs(lock(), got, STAGES) == 3
    del got["train"]
    assert told(got)[1] == f"train: models: committed {'1' * 32}, got nothing"


def test_stages_that_nobody_asks_about_are_left_out():
    got = lock()
    got["report"]["outs"][0]["md5"] = "3" * 32
    assert told(got) == []


def test_what_no_stage_made_explains_a_difference():
    got = lock()
    for stage in STAGES:
        for dep in got[stage]["deps"]:
            dep["md5"] = "4" * 32
    assert reasons(lock(), got, "generate") == [
        "its dep data/external isn't the one in dvc.lock",
        "its dep code.py isn't the one in dvc.lock",
    ]
    # `data` holds what generate made, and data/train/x lies in it.
    assert reasons(lock(), got, "train") == ["its dep code.py isn't the one in dvc.lock"]
    got = lock()
    got["generate"]["params"]["params.yaml"]["seed"] = 1
    assert reasons(lock(), got, "generate") == ["its params aren't those in dvc.lock"]
    assert reasons(lock(), lock(), "train") == []


MAKE = """
import json, sys, time
from pathlib import Path

import stages.here

for folder in ("data/train", "metrics"):
    Path(folder).mkdir(parents=True, exist_ok=True)
if sys.argv[1] == "report":
    Path("reports.html").write_text(str(time.time()))
else:
    brought = Path("data/external/mine.txt").read_text()
    Path("data/train/rows.txt").write_text(brought)
    Path("data/train/place.txt").write_text(stages.here.NAME)
    figures = {"rows": len(brought), "right": {"yes": 0.5}}
    Path("metrics/generate.json").write_text(json.dumps(figures))
"""
PIPELINE = """
stages:
  generate:
    cmd: python -m make generate
    deps: [make.py, data/external]
    outs: [data/train]
    metrics:
    - metrics/generate.json: {cache: false}
  report:
    cmd: python -m make report
    deps: [make.py, metrics]
    outs: [reports.html]
"""


class Project:
    """A small pipeline, run and committed, with a file in data/external that git doesn't know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        home = folder.parent / "home"  # of a user whose cache is shared
        (home / "dvc").mkdir(parents=True)
        (home / "dvc/config").write_text(f"[cache]\n    dir = {folder.parent / 'shared'}\n")
        self.env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(home),
        }
        self.write("make.py", MAKE)
        self.write("stages/here.py", "NAME = 'committed'\n")
        self.write("stages/__init__.py", "")
        self.write("dvc.yaml", PIPELINE)
        self.write(".gitignore", ".runtime/\n__pycache__/\n/reports.html\n/data/train\n*.txt\n")
        self.write(".dvcignore", ".runtime/\n__pycache__/\n")
        self.write("data/external/mine.txt", "three")
        self.run("git", "init", "--quiet")
        for setting in ("user.name=test", "user.email=test@example.org"):
            self.run("git", "config", *setting.split("="))
        self.run("dvc", "init", "--quiet")
        self.run("dvc", "repro")
        self.commit()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def commit(self) -> str:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message", "run")
        return self.run("git", "rev-parse", "--short=7", "HEAD").stdout.strip()

    def verify(self, *options: str) -> subprocess.CompletedProcess[str]:
        done = self.run(sys.executable, "-m", "vlm", "verify", *options, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def clones(self) -> list[Path]:
        return list((self.folder / ".runtime").glob("verify-*"))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("verify") / "project"
    folder.mkdir()
    return Project(folder)


@pytest.fixture
def project(ran: Project):
    """The project, put back to its first commit afterwards."""
    start = ran.run("git", "rev-parse", "HEAD").stdout.strip()
    yield ran
    ran.run("git", "reset", "--quiet", "--hard", start)


@pytest.mark.pipeline
def test_a_run_that_repeats_needs_neither_cache_nor_workspace(project):
    """The clone runs the committed code, and leaves a shared cache and the workspace alone."""
    shared = project.folder.parent / "shared"
    shutil.rmtree(shared)
    shutil.rmtree(project.folder / "data/train")
    project.write("stages/here.py", "NAME = 'edited'\n")
    project.write("notes.md", "mine\n")
    revision = project.run("git", "rev-parse", "--short=7", "HEAD").stdout.strip()
    done = project.verify("--keep")
    assert (done.returncode, done.stdout) == (0, "nothing differs: 2 outs of 1 stages\n")
    assert done.stderr.splitlines()[0] == (
        f"verifying HEAD {revision}; uncommitted changes in stages/here.py, notes.md"
        " are not part of it"
    )
    assert not shared.exists() and not (project.folder / "data/train").exists()
    [clone] = project.clones()
    assert done.stderr.splitlines()[-1] == f"kept: {clone}"
    assert (clone / "data/train/place.txt").read_text() == "committed"
    assert not (clone / "reports.html").exists()
    shutil.rmtree(clone)
    (project.folder / "notes.md").unlink()


@pytest.mark.pipeline
def test_a_record_of_other_code_is_told_with_figures_and_reason(project):
    project.replace("make.py", '"yes": 0.5', '"yes": 0.75, "no": 1')
    revision = project.commit()
    done = project.verify()
    assert done.returncode == 1
    first, *rest = done.stdout.splitlines()
    assert first.startswith("generate: metrics/generate.json: committed ")
    assert rest == [
        "    right.yes: committed 0.5, got 0.75",
        "    right.no: committed nothing, got 1",
        "    generate: its dep make.py isn't the one in dvc.lock",
    ]
    assert done.stderr.splitlines()[-1] == f"1 of 2 outs differ from commit {revision}"
    assert project.clones() == []


@pytest.mark.pipeline
def test_a_figure_edited_by_hand_is_found_though_the_record_repeats(project):
    figures = {"rows": 5, "right": {"yes": 0.9}}
    project.write("metrics/generate.json", json.dumps(figures))
    project.commit()
    done = project.verify()
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "generate: metrics/generate.json: committed beside a dvc.lock that says otherwise",
        "    right.yes: committed 0.9, got 0.5",
    ]


@pytest.mark.pipeline
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_and_leaves_nothing(project, sent):
    body = "import os, time\nopen('started', 'w').write(str(os.getpid()))\ntime.sleep(100)\n"
    project.write("make.py", body)
    project.commit()
    command = [sys.executable, "-m", "vlm", "verify"]
    with subprocess.Popen(
        command, cwd=project.folder, env=project.env, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        started: list[Path] = []
        while not (started and started[0].read_text()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
            started = list(project.folder.glob(".runtime/verify-*/started"))
        stage = int(started[0].read_text())
        process.send_signal(sent)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert project.clones() == []
    with pytest.raises(ProcessLookupError):
        os.kill(stage, 0)
