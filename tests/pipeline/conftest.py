"""One run of the whole pipeline on the tiny preset, through DVC, for all tests of this folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT


class Checkout:
    """A copy of this project in a folder of its own, with the tiny preset in force."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # DVC must see bytecode as users have it, whatever this machine is set to.
        self.env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def changed_stages(self) -> set[str]:
        """The stages that DVC holds for out of date by their own deps and params."""
        status = json.loads(self.run("dvc", "status", "--json").stdout)
        stages = set()
        for name, changes in status.items():
            deps = [
                c["changed deps"] for c in changes if isinstance(c, dict) and "changed deps" in c
            ]
            if deps:
                stages.add(name)
        return stages

    def edit(self, path: str, old: str, new: str) -> "Edit":
        """A change to one file, undone at the end of the `with` block."""
        return Edit(self.folder / path, old, new)


class Edit:
    def __init__(self, path: Path, old: str, new: str) -> None:
        self.path, self.before = path, path.read_text()
        assert old in self.before
        self.after = self.before.replace(old, new, 1)

    def __enter__(self) -> None:
        self.path.write_text(self.after)

    def __exit__(self, *_: object) -> None:
        self.path.write_text(self.before)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory) -> Checkout:
    folder = tmp_path_factory.mktemp("pipeline") / "project"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("metrics/", "plots/", "dvc.lock")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    shutil.copyfile(ROOT / "presets/tiny.yaml", folder / "params.yaml")
    project = Checkout(folder)
    project.run("git", "init", "-q")
    project.run("git", "config", "user.email", "test@example.org")
    project.run("git", "config", "user.name", "test")
    project.run("git", "add", "-A")
    project.run("git", "commit", "-qm", "start")
    return project


@pytest.fixture(scope="session")
def finished(checkout: Checkout) -> Checkout:
    """The same after `dvc repro`."""
    checkout.run("dvc", "repro")
    return checkout
