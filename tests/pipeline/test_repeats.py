"""`vlm verify` on the whole pipeline, under the tiny preset."""

import shutil
import sys

import pytest

pytestmark = pytest.mark.pipeline


def test_the_tiny_run_repeats_without_a_cache(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished.folder, copy, ignore=shutil.ignore_patterns("cache"))
    committed = type(finished)(copy)
    committed.run("git", "add", "--all")
    committed.run("git", "commit", "--quiet", "--message", "the run")
    done = committed.run(sys.executable, "-m", "vlm", "verify")
    assert done.stdout == "nothing differs: 21 outs of 6 stages\n"
    assert len(done.stderr.splitlines()[0].split()) == 3  # nothing is uncommitted
    assert not list((copy / ".runtime").glob("verify-*"))
