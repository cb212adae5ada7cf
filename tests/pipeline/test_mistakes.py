"""Bad input to a stage: one line, exit 2, nothing lost; Ctrl-C: exit 130."""

import json
import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from project import read_preset
from ruamel.yaml import YAML
from safetensors.numpy import load_file, save_file

pytestmark = pytest.mark.pipeline


@pytest.fixture
def copy(finished, tmp_path):
    """A finished run to spoil, without DVC."""
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder, ignore=shutil.ignore_patterns(".dvc", ".git"))
    return type(finished)(folder)


def mistake(copy, *stage: str) -> str:
    """The one line that the stage ends with."""
    done = copy.run("python", "-m", *stage, check=False)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_a_missing_table(copy):
    shutil.rmtree(copy.folder / "data/val")
    before = (copy.folder / "models/align/model.safetensors").read_bytes()
    assert "data/val: got no such folder" in mistake(copy, "stages.align")
    assert (copy.folder / "models/align/model.safetensors").read_bytes() == before


def test_an_empty_table(copy):
    (copy.folder / "data/train/scenes-00000.parquet").write_bytes(b"")
    assert "data/train/scenes-00000.parquet" in mistake(copy, "stages.pretrain")


def test_a_model_folder_of_another_architecture(copy):
    path = copy.folder / "models/pretrain/config.json"
    config = json.loads(path.read_text())
    config["model"]["vision_depth"] = 2
    path.write_text(json.dumps(config))
    text = mistake(copy, "stages.train_vqa", "generator")
    assert "models/pretrain/model.safetensors: tensor vision.blocks.1" in text


def test_a_misshapen_tensor_is_named(copy):
    path = copy.folder / "models/train_vqa/generator/model.safetensors"
    tensors = load_file(path)
    tensors["decoder.head.weight"] = np.zeros((3, 3), np.float32)
    save_file(tensors, path)
    text = mistake(copy, "stages.benchmark_kv_cache")
    assert "tensor decoder.head.weight: got shape (3, 3), expected" in text


def test_a_model_of_another_kind(copy):
    shutil.rmtree(copy.folder / "models/train_vqa/generator")
    shutil.copytree(copy.folder / "models/pretrain", copy.folder / "models/train_vqa/generator")
    text = mistake(copy, "stages.benchmark_kv_cache")
    assert "got a model of kind 'captioner', expected 'generator'" in text


def test_an_unknown_head(copy):
    text = mistake(copy, "stages.train_vqa", "oracle")
    assert "head: got oracle, expected classifier or generator" in text


def test_a_nan_stops_with_its_step_and_writes_no_weights(copy):
    shutil.rmtree(copy.folder / "models/train_vqa/classifier")
    params = read_preset("tiny")
    params["train_vqa"]["classifier"].update(learning_rate=1e30, clip_norm=1e30)
    with (copy.folder / "params.yaml").open("w") as file:
        YAML().dump(params, file)
    done = copy.run("python", "-m", "stages.train_vqa", "classifier", check=False)
    assert done.returncode == 1
    assert "is not finite; no weights were written" in done.stderr.splitlines()[-1]
    metrics = json.loads((copy.folder / "metrics/train_vqa_classifier.json").read_text())
    assert metrics["non_finite"] == 1 and metrics["stopped_at_step"] >= 1
    assert not (copy.folder / "models/train_vqa/classifier").exists()


def test_ctrl_c_exits_130_and_leaves_no_half_file(copy):
    text = (copy.folder / "params.yaml").read_text().replace("steps: 40", "steps: 40000")
    (copy.folder / "params.yaml").write_text(text)
    before = (copy.folder / "models/pretrain/model.safetensors").read_bytes()
    with subprocess.Popen(
        ["python", "-m", "stages.pretrain"],
        cwd=copy.folder,
        env=copy.env,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "pretrain 20/40000" in process.stderr.readline()  # it is at work
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert "interrupted" in process.stderr.read()
    assert (copy.folder / "models/pretrain/model.safetensors").read_bytes() == before
    assert not list(copy.folder.rglob("*.partial"))
