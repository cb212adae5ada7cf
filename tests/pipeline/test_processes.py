"""Training stages as several processes: the same figures, and one line where one of them dies."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from conftest import Checkout

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

# A stage whose second process ends at the tenth step, as its argument says.
DYING = """
import os, signal, sys
from stages import pretrain
from stages.running.training import run_training
from vlm.training import fit

step = fit._Run.update

def update(run, batches):
    if run.done == 10 and os.environ.get("RANK") == "1":
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("a fault of ours")
    step(run, batches)

fit._Run.update = update
run_training("pretrain", pretrain.main)
"""


@pytest.fixture(scope="module")
def original(checkout: Checkout, tmp_path_factory) -> Checkout:
    """Data, the aligned model and one process's pretraining, in a folder of their own."""
    folder = tmp_path_factory.mktemp("processes") / "project"
    unneeded = shutil.ignore_patterns(".dvc", ".git", "data", "models", "reports")
    shutil.copytree(checkout.folder, folder, ignore=unneeded)
    project = Checkout(folder)
    project.env["PYTHONPATH"] = str(folder)
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace("threads: 2", "threads: 1"))
    for name in ("generate", "align", "pretrain"):
        project.run("python", "-m", f"stages.{name}")
    return project


@pytest.fixture
def copy(original: Checkout, tmp_path) -> Checkout:
    """The same, to be trained anew by two processes."""
    folder = tmp_path / "copy"
    shutil.copytree(original.folder, folder)
    for name in ("metrics/pretrain.json", "plots/pretrain.tsv"):
        (folder / name).unlink()
    shutil.rmtree(folder / "models/pretrain")
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace("processes: 1", "processes: 2"))
    project = Checkout(folder)
    project.env["PYTHONPATH"] = str(folder)
    return project


def assert_same_figures(copy: Checkout, original: Checkout) -> None:
    ours, theirs = (
        json.loads((project.folder / "metrics/pretrain.json").read_text())
        for project in (copy, original)
    )
    assert ours.pop("val") == pytest.approx(theirs.pop("val"), abs=1e-4)
    assert ours == pytest.approx(theirs, abs=1e-4)
    weights = [
        (project.folder / "models/pretrain/model.safetensors").stat().st_size
        for project in (copy, original)
    ]
    assert weights[0] == weights[1]
    assert not list((copy.folder / ".resume/pretrain").glob("*"))


@pytest.mark.parametrize("parallel", ["replicate", "shard"])
def test_two_processes_give_the_figures_of_one(copy, original, parallel):
    with copy.edit("params.yaml", "parallel: replicate", f"parallel: {parallel}"):
        copy.run("python", "-m", "stages.pretrain")
    assert_same_figures(copy, original)
    took = json.loads((copy.folder / ".runtime/pretrain.json").read_text())
    assert took["processes"] == 2


def test_a_process_that_is_killed_ends_the_job_and_is_named(copy):
    (copy.folder / "dying.py").write_text(DYING)
    began = time.monotonic()
    done = copy.run("python", "dying.py", "killed", check=False)
    assert time.monotonic() - began < 60
    assert done.returncode == 1
    # PyTorch's own log may add a line on a lost connection; no process speaks before the cause.
    assert "pretrain: process 1 of 2 was ended by SIGKILL" in done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    assert not (copy.folder / "models/pretrain").exists()


def test_a_process_that_fails_speaks_and_the_others_keep_silent(copy):
    (copy.folder / "dying.py").write_text(DYING)
    done = copy.run("python", "dying.py", "fails", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("RuntimeError: a fault of ours")
    assert done.stderr.count("Traceback") == 1 and "[rank0]" not in done.stderr


def test_a_mistake_is_told_once(copy):
    """Every process meets it."""
    shutil.rmtree(copy.folder / "models/align")
    done = copy.run("python", "-m", "stages.pretrain", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("pretrain: models/align/")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_saves_and_the_next_run_goes_on(copy):
    params = copy.folder / "params.yaml"
    params.write_text(params.read_text().replace("steps: 40", "steps: 4000"))
    with subprocess.Popen(
        ["python", "-m", "stages.pretrain"],
        cwd=copy.folder,
        env=copy.env,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert "pretrain 20/4000" in process.stderr.readline()  # it is at work
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
        said = process.stderr.read()
        assert process.wait(timeout=60) == 130
    assert "saved; run it again to go on from there" in said and "Traceback" not in said
    assert len(list((copy.folder / ".resume/pretrain").rglob("checkpoint.safetensors"))) == 1


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def on_two_hosts(folders: list[Path], env: dict[str, str], *module: str) -> list[tuple[int, str]]:
    """Status and stderr of a torchrun agent in each folder, as on two machines."""
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}"]
    command = ["torchrun", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "run", *meeting]
    agents = [
        subprocess.Popen(
            [*command, "-m", *module],
            cwd=folder,
            env=env | {"PYTHONPATH": str(folder)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for folder in folders
    ]
    ends = [agent.communicate(timeout=120)[1] for agent in agents]
    return [(agent.returncode, said) for agent, said in zip(agents, ends, strict=True)]


def test_two_agents_with_one_rendezvous_give_the_figures_of_one_process(copy, original):
    for status, said in on_two_hosts([copy.folder] * 2, copy.env, "stages.pretrain"):
        assert status == 0, said
    assert_same_figures(copy, original)


def test_hosts_with_other_data_are_told_so(copy, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(copy.folder, other)
    shard = next((other / "data/val").glob("scenes-*"))
    shard.rename(shard.with_name("scenes-00001.parquet"))
    ends = on_two_hosts([copy.folder, other], copy.env, "stages.pretrain")
    assert all(status != 0 for status, _ in ends)
    line = "pretrain: processes 0 and 1 were given other data, expected the same on all hosts\n"
    assert any(said.startswith(line) for _, said in ends), ends  # and then come the agents' words


def test_two_processes_draw_the_data_of_one(copy, original):
    shutil.rmtree(copy.folder / "data")
    done = copy.run("torchrun", "--nproc-per-node", "2", "-m", "stages.generate")
    assert "Traceback" not in done.stderr
    took = json.loads((copy.folder / ".runtime/generate.json").read_text())
    assert took["processes"] == 2
    drawn, expected = (
        {
            path.relative_to(project.folder): path.read_bytes()
            for path in (project.folder / "data").rglob("*.parquet")
        }
        for project in (copy, original)
    )
    assert drawn == expected and len(drawn) == 8
