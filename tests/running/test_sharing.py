"""Work in pieces: who makes them makes no difference, and no one who fails goes unheard."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from project import ROOT, read_preset
from ruamel.yaml import YAML

from stages.running import sharing
from stages.running.sharing import shared

SCRIPT = """
from functools import partial
from stages.running import sharing, stage
from test_sharing import slow

def main(params):
    with sharing.shared("generate", partial(slow), [(n,) for n in range(1000)], 2) as made:
        for piece in made:
            print(piece.decode(), flush=True)

if __name__ == "__main__":
    sharing.WORTH = 1
    stage.run("generate", main, together=True)
"""


def told(word: str, number: int) -> bytes:
    return f"{word} {number}".encode()


def failing(number: int) -> bytes:
    if number == 3:
        raise KeyError("a fault of ours")
    return b""


def slow(number: int) -> bytes:
    time.sleep(0.1)
    return str(number).encode()


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sharing, "WORTH", 1)


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, number: int = 2) -> None:
    monkeypatch.setattr(sharing, "RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", str(number))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_pieces_come_in_order_whoever_makes_them(workers: int):
    pieces = [(number,) for number in range(7)]
    with shared("generate", partial(told, "piece"), pieces, workers) as made:
        assert made is not None
        assert list(made) == [told("piece", number) for number in range(7)]
    assert not multiprocessing.active_children()


def test_few_pieces_start_no_worker(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharing, "WORTH", 4)
    monkeypatch.delattr(multiprocessing, "get_context")
    with shared("generate", partial(told, "piece"), [(number,) for number in range(7)], 4) as made:
        assert len(list(made or ())) == 7


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_is_raised_as_it_is(workers: int):
    with (
        pytest.raises(KeyError, match="a fault of ours") as caught,
        shared("generate", partial(failing), [(number,) for number in range(9)], workers) as made,
    ):
        list(made or ())
    assert not multiprocessing.active_children()
    if workers > 1:  # what the worker was at is in the traceback that a person reads
        assert "in failing" in caught.value.__notes__[0]


def test_whoever_stops_reading_leaves_no_worker():
    with shared("generate", partial(slow), [(number,) for number in range(900)], 2) as made:
        assert made is not None
        assert next(made) == b"0"
    assert not multiprocessing.active_children()


def test_the_first_process_takes_what_the_others_hand_over(monkeypatch: pytest.MonkeyPatch):
    pieces = [(number,) for number in range(8)]
    for rank in (1, 2):
        as_rank(monkeypatch, rank, 3)
        with shared("generate", partial(told, "piece"), pieces, 1) as made:
            assert made is None
    stale = Path(".runtime/generate/of-another-run/piece-000001")
    stale.parent.mkdir()
    stale.write_bytes(b"stale")
    as_rank(monkeypatch, 0, 3)
    with shared("generate", partial(told, "piece"), pieces, 1) as made:
        assert made is not None
        assert [next(made) for _ in range(3)] == [told("piece", number) for number in range(3)]
        assert not stale.exists()
        assert list(made) == [told("piece", number) for number in range(3, 8)]
    assert not Path(".runtime/generate").exists()


def test_other_work_another_launch_and_other_code_have_other_names(monkeypatch: pytest.MonkeyPatch):
    def name(word: str = "piece") -> str:
        return sharing._identity(partial(told, word), [(1,)])

    assert name() == name() != name("other")
    before = name()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert name() != before
    monkeypatch.undo()
    monkeypatch.setattr(sharing, "modules_in_use", list)
    assert name() != before


def test_no_process_hands_over_far_ahead(tmp_path: Path):
    paths = [tmp_path / f"piece-{number}" for number in range(12)]
    pieces = iter([str(number).encode() for number in range(12)])
    thread = threading.Thread(target=sharing._hand_over, args=(pieces, paths))
    thread.start()
    most = 0
    for path in paths:
        time.sleep(0.03)
        most = max(most, len(list(tmp_path.glob("piece-*"))))
        assert sharing._taken(path, 1) == path.name.removeprefix("piece-").encode()
    thread.join()
    assert 1 <= most <= sharing.AHEAD + 1


def project_with(folder: Path, **data: int) -> None:
    values = read_preset("tiny")
    values["data"] |= data
    YAML().dump(values, folder / "params.yaml")


def files(folder: Path) -> dict[str, bytes]:
    found = [*folder.glob("data/**/*"), *folder.glob("metrics/*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.is_file()}


def test_two_processes_and_any_hash_seed_write_the_same_bytes(tmp_path: Path):
    """Four runs at once: a process alone under two hash seeds, and two that share the work."""
    launch = {"WORLD_SIZE": "2", "MASTER_PORT": "1"}
    environments = {"one": [{"PYTHONHASHSEED": "1"}], "two": [{"PYTHONHASHSEED": "2"}]}
    environments["ranks"] = [launch | {"RANK": "0"}, launch | {"RANK": "1"}]
    running = []
    for name, processes in environments.items():
        (tmp_path / name).mkdir()
        project_with(tmp_path / name, train_scenes=3000)
        for more in processes:
            env = {**os.environ, "PYTHONPATH": str(ROOT), **more}
            command = [sys.executable, "-m", "stages.generate"]
            running.append(subprocess.Popen(command, cwd=tmp_path / name, env=env))
    assert [process.wait(timeout=100) for process in running] == [0] * 4
    one = files(tmp_path / "one")
    assert len(one) == 10
    assert files(tmp_path / "two") == one
    assert files(tmp_path / "ranks") == one
    took = json.loads((tmp_path / "ranks/.runtime/generate.json").read_text())
    assert took["processes"] == 2


def test_what_is_not_shared_is_for_the_first_process(tmp_path: Path):
    project_with(tmp_path)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RANK": "1", "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "stages.report"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_all_with_one_line(number: signal.Signals, tmp_path: Path):
    """A terminal's reaches all of them; a kill only the first, whose workers go with it."""
    project_with(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    paths = [ROOT, ROOT / "tests", Path(__file__).parent]
    env = {**os.environ, "PYTHONPATH": ":".join(map(str, paths))}
    with subprocess.Popen(
        [sys.executable, "script.py"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        if number == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, number)
        said = process.communicate(timeout=30)[1]
    if number == signal.SIGKILL:
        assert process.returncode == -number
        assert not re.search("Traceback|Error", said)
    else:
        assert process.returncode == 128 + number
        assert said == "generate: interrupted; nothing half-written was left\n"
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a process is left")
