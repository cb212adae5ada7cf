"""Files are written whole or not at all, and JSON is strict."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT

from vlm.files import atomic_path, read_json, write_json, write_text


def test_text_is_written_with_its_folders(tmp_path):
    write_text(tmp_path / "a/b.txt", "ü\n")
    assert (tmp_path / "a/b.txt").read_bytes() == "ü\n".encode()
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    write_text(path, "old")

    def full(self, *args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]


def test_a_kill_in_mid_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.txt"
    write_text(path, "old")
    code = (
        "import os, signal, sys\n"
        "from vlm.files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as partial:\n"
        "    partial.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    left = [p.name for p in tmp_path.iterdir() if p.name != "x.txt"]
    assert all(name.endswith(".partial") for name in left)  # which git and DVC ignore


def test_an_error_in_the_block_leaves_nothing(tmp_path):
    def write_half() -> None:
        with atomic_path(tmp_path / "x") as partial:
            partial.write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write_half()
    assert not list(tmp_path.iterdir())


def test_json_is_sorted_rounded_and_strict(tmp_path):
    path = tmp_path / "m.json"
    values = {
        "b": 1 / 3,
        "a": {"nan": math.nan, "list": [1, math.inf, 0.12345678]},
        "whole": 2,
        "loss": -math.inf,
    }
    assert write_json(path, values) == 3
    text = path.read_text()
    assert "NaN" not in text and "Infinity" not in text
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert read_json(path) == {
        "a": {"list": [1, 0.123457]},
        "b": 0.333333,
        "non_finite": 3,
        "whole": 2,
    }


@pytest.mark.parametrize(("decimals", "kept"), [(None, 0.1234567890123), (2, 0.12)])
def test_json_is_rounded_as_asked(tmp_path, decimals, kept):
    write_json(tmp_path / "m.json", {"a": [0.1234567890123]}, decimals=decimals)
    assert read_json(tmp_path / "m.json") == {"a": [kept]}


def test_the_umask_is_not_the_temporary_files(tmp_path):
    write_text(tmp_path / "x", "")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644
