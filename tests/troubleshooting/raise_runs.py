"""What makes each error of the page's sections on training and on running appear."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from error_page import Raiser
from project import ROOT
from raise_data import CONFIG, TOKENIZER, TRAIN, write_split
from raise_parameters import tiny

from stages import benchmark_kv_cache, train_vqa
from stages.running import sharing, training
from stages.running import stage as runner
from vlm.app import cli, seeds
from vlm.app.compare import compare
from vlm.app.sides import read_side
from vlm.app.verify import verify
from vlm.data.loading import QuestionData
from vlm.data.tables import read_questions, read_scenes
from vlm.errors import StoppedError, UserError
from vlm.evaluation.decoding import check_equality
from vlm.model.decoder import VisionLanguageDecoder
from vlm.model.folder import save_model
from vlm.model.kv_cache import KVCache
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.training.checkpoint import Checkpoints
from vlm.training.distributed import World
from vlm.training.execution import Execution
from vlm.training.fit import fit
from vlm.training.objectives import classification
from vlm.training.train import train

FOLDER = Path(".resume/pretrain/1b7c0f2a")


def trained(how: Execution | None = None, **changes: Any) -> None:
    """Trains a classifier on one batch, time and again."""
    write_split()
    data = QuestionData(read_scenes(TRAIN), read_questions(TRAIN), TOKENIZER, 8, ["yes"])
    model = AnswerClassifier(CONFIG, ["no", "yes"])
    section = tiny().train_vqa.classifier.model_copy(update=changes)
    batch = data.batch(torch.arange(8))
    fit(model, classification(model), lambda step: [batch], [batch], section, how)


def interrupted_at(step: int, how: Execution | None = None) -> None:
    asked = count()
    trained(replace(how or Execution(), should_stop=lambda: next(asked) == step))


def another_checkpoint() -> None:
    """Weights of some other run in the checkpoint's place."""
    Checkpoints(FOLDER.parent / "5d0e9c31").write({}, {})
    FOLDER.parent.joinpath("5d0e9c31").rename(FOLDER)
    trained(Execution(checkpoints=Checkpoints(FOLDER)))


def uneven_shares() -> None:
    write_split()
    data = QuestionData(read_scenes(TRAIN), read_questions(TRAIN), TOKENIZER, 8, ["yes"])
    model = AnswerClassifier(CONFIG, ["no", "yes"])
    train(
        model,
        classification(model),
        data,
        data,
        tiny().train_vqa.classifier.model_copy(update={"accumulate": 2}),
        Execution(world=World(rank=0, size=3)),
        source=Path("data"),
        seed=0,
        metrics_path=Path("metrics.json"),
        curve_path=Path("curve.tsv"),
    )


def process_killed() -> str | None:
    """The line of a stage of two processes, one of which is killed."""
    code = (
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGKILL) if os.environ['RANK'] == '1' else time.sleep(60)"
    )
    said = StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "params_in_force", lambda: tiny(runtime__processes=2))
        patch.setattr(sys, "orig_argv", ["python", "-c", code])
        patch.setattr(training, "RANK", None)
        with pytest.raises(SystemExit) as ended, redirect_stderr(said):
            training.run_training("pretrain", lambda params: None)
    assert ended.value.code == 1
    return said.getvalue().removesuffix("\n")


def arms_that_differ() -> None:
    """The stage, over a cache that gives keys for values."""
    write_split("data/test")
    folder = Path("models/train_vqa/generator")
    save_model(folder, PhraseGenerator(CONFIG))
    TOKENIZER.save(folder)
    advance = KVCache.advance

    def swapped(cache: KVCache, *args: Any) -> None:
        advance(cache, *args)
        cache.keys, cache.values = cache.values, cache.keys

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KVCache, "advance", swapped)
        benchmark_kv_cache.main(tiny(runtime__device="cpu"))


def logits_of_nan() -> None:
    decoder = VisionLanguageDecoder(CONFIG.decoder).eval()
    check_equality(decoder, torch.full((2, 5, CONFIG.text_hidden), float("nan")), 2, 6)


def cuda_without_a_gpu() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        runner.select_device(tiny(runtime__device="cuda").runtime)


def no_compiler() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: None)
        runtime = tiny(runtime__compile=True, runtime__device="cpu").runtime
        with training.training("pretrain", {}, [], 1, runtime):
            raise AssertionError("it began")


def more_processes_than_gpus() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setenv("LOCAL_WORLD_SIZE", "2")
        runner.select_device(tiny(runtime__device="cuda").runtime)


def hosts_that_differ() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "everyones", lambda world, work: [work, {**work, "data": "other"}])
        training.require_same(World(), {"parameters": "ours", "data": "ours"})


def loading_interrupted(*stage: str) -> tuple[int, str]:
    """The exit status and stderr of a stage that Ctrl-C meets while it imports torch.

    The torch is one of ours, and swallows the exception as an import could.
    """
    shutil.copyfile(ROOT / "presets/tiny.yaml", "params.yaml")
    Path("torch.py").write_text(
        "import signal\ntry: signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", *stage],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def stage_end(work: Callable[[], object]) -> tuple[int | str | None, str]:
    """The exit status of a stage `pretrain` that does `work`, and the line that it ends with."""
    shutil.copyfile(ROOT / "presets/tiny.yaml", "params.yaml")
    runner.params_in_force.cache_clear()
    said = StringIO()
    with pytest.raises(SystemExit) as ended, redirect_stderr(said):
        runner.run("pretrain", lambda params: work())
    return ended.value.code, said.getvalue().removesuffix("\n")


def fail(error: Exception) -> None:
    raise error


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def full_disk(number: int = errno.ENOSPC) -> None:
    raise OSError(number, os.strerror(number))


ENDS = {
    0: lambda: None,
    1: lambda: fail(StoppedError("stopped")),
    2: lambda: fail(UserError("a mistake")),
    130: interrupt,
    143: lambda: signal.raise_signal(signal.SIGTERM),
}


def made(*arguments: str, path: str | None = None) -> str:
    """The first line that a failing `make` says of what went wrong."""
    shutil.copyfile(ROOT / "Makefile", "Makefile")
    done = subprocess.run(
        [shutil.which("make") or "make", *arguments],
        env=os.environ if path is None else {**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr.splitlines()[0]


def without_python() -> str:
    for name in ("requirements.lock", "pyproject.toml"):
        Path(name).touch()
    return made(".venv/core", path="")


def preset(*arguments: str, committed: bool = True) -> Raiser:
    """`make preset` in a checkout that is set up, with an edit of its own in `params.yaml`."""

    def raiser() -> str:
        for folder in ("presets", ".venv"):
            Path(folder).mkdir()
        for name in ("default", "notebook", "tiny"):
            Path(f"presets/{name}.yaml").write_text("seed: 0\n")
        Path("params.yaml").write_text("seed: 0\n")
        commands = ["init", "add params.yaml", "commit --message start"]
        for command in commands if committed else commands[:1]:
            author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
            subprocess.run(["git", *author, *command.split()], check=True, capture_output=True)
        Path("params.yaml").write_text("seed: 7\n")
        for file in ("requirements.lock", "pyproject.toml", ".venv/core"):  # the last the newest
            Path(file).touch()
        return made("preset", *arguments)

    return raiser


def a_seed_that_ends_early() -> str:
    """A run of several seeds, in which pretraining finds nothing to read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeds, "STAGES", (["pretrain"],))
        with pytest.raises(StoppedError) as stopped:
            seeds.run_seed(ROOT / "presets/tiny.yaml", 1, Path("seed-1"))
    return str(stopped.value)


def batch_without_step() -> None:
    shutil.copyfile(ROOT / "presets/tiny.yaml", "params.yaml")
    cli.shapes(Path("params.yaml"), step=False, batch=8)


def repository(dvc_file: str | None = None) -> None:
    """A repository of Git and DVC with a tag `v2` alone, or with a `v1` that has this file."""
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    Path(".dvc").mkdir()
    Path(".dvc/config").touch()
    if dvc_file is not None:
        Path("data").mkdir()
        Path("data/predictions.dvc").write_text(dvc_file)
    tag = "v2" if dvc_file is None else "v1"
    for command in ("init", "add --all", "commit --message start", f"tag {tag}"):
        subprocess.run(["git", *author, *command.split()], check=True, capture_output=True)


def comparing_at(revision: str, *dvc_file: str | None) -> Raiser:
    """Reads a side of `vlm compare` in a repository; without a file's text, outside of any."""

    def raiser() -> None:
        for text in dvc_file:
            repository(text)
        read_side(revision)

    return raiser


def comparing_onto(page: str, json: str) -> Raiser:
    """Compares, with these paths to write to, beside a file of notes."""

    def raiser() -> None:
        Path("notes.txt").touch()
        compare("one", "two", Path(page), 1, Path(json))

    return raiser


def without_dvc() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        verify()


def without_a_record() -> None:
    repository(None)
    verify()


def verifying(command: str) -> Raiser:
    """Verifies a commit whose one stage runs `command`, though its record has another out."""

    def raiser() -> str:
        stage = f"{{stages: {{one: {{cmd: '{command}', outs: [one.txt]}}}}}}"
        Path("dvc.yaml").write_text(stage)
        record = "{schema: '2.0', stages: {one: {cmd: old, outs: [{path: one.txt, md5: none}]}}}"
        Path("dvc.lock").write_text(record)
        repository(None)
        with pytest.raises(StoppedError) as stopped:
            verify()
        return str(stopped.value)

    return raiser


TRAINING: dict[str, Raiser] = {
    "batch_size 32 not divisible by 6 (accumulate 2 x 3 processes)": uneven_shares,
    "step 2: loss 'answer' is not finite; no weights were written. A lower learning_rate or"
    " clip_norm may help": lambda: trained(learning_rate=1e30, clip_norm=1e30, warmup_steps=0),
    "the arms differ: tokens_equal …, largest logit difference …, tolerance …; nothing was timed": (
        arms_that_differ
    ),
    "the decoder's logits aren't finite; there is nothing to compare": logits_of_nan,
}


def silent_process() -> None:
    clock = SimpleNamespace(monotonic=count(0, 1000).__next__, sleep=lambda seconds: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "RANK", 0)
        patch.setattr(sharing, "time", clock)
        patch.setattr(sharing, "_identity", lambda *work: "1b7c0f2a")
        patch.setenv("WORLD_SIZE", "2")
        with sharing.shared("generate", partial(bytes), [(1,), (2,)], 1) as made:
            list(made or ())


def killed_worker() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "WORTH", 1)
        pieces = [(signal.SIGCONT,), (signal.SIGKILL,)]
        with sharing.shared("generate", partial(signal.raise_signal), pieces, 2) as made:
            list(made or ())


RUNNING: dict[str, Raiser] = {
    ".resume/pretrain/1b7c0f2a/checkpoint.safetensors: got another file, or a damaged one, expected"
    " this run's checkpoint; delete it to train from the start": another_checkpoint,
    "--batch: got 8 without --step, expected both": batch_without_step,
    "--json: got page.html, expected a path of its own, not --out's": comparing_onto(
        "page.html", "page.html"
    ),
    "DVC: got none beside this Python, expected the environment of make": without_dvc,
    "dvc.lock at HEAD: got no stages, expected a run's record": without_a_record,
    "HEAD: got no commit here, expected the project's folder in its clone": verify,
    "head: got oracle, expected classifier or generator": lambda: train_vqa.chosen_head(["oracle"]),
    "interrupted after step 12 of 40: nothing was kept": lambda: interrupted_at(12),
    "interrupted after step 12 of 40: saved; run it again to go on from there": lambda: (
        interrupted_at(12, Execution(checkpoints=Checkpoints(FOLDER)))
    ),
    "notes.txt/page.html: got a file above it, expected a path that can be written": (
        comparing_onto("notes.txt/page.html", "figures.json")
    ),
    "pretrain: interrupted; nothing half-written was left": lambda: stage_end(interrupt)[1],
    "pretrain: no space left on the disk; nothing half-written was left": lambda: stage_end(
        full_disk
    )[1],
    "process 1: got no .runtime/generate/1b7c0f2a/piece-000001 for 600 s": silent_process,
    "processes 0 and 1 were given other data, expected the same on all hosts": hosts_that_differ,
    "runtime.compile: got true, expected a compiler: c++ or g++ or clang++": no_compiler,
    "runtime.device: got cuda, expected cpu or auto: no GPU is available": cuda_without_a_gpu,
    "runtime.processes: got 2, expected at most 1: a GPU each": more_processes_than_gpus,
    "v1: data/predictions isn't in DVC's cache; check that revision out and run dvc repro, or dvc"
    " exp apply it": comparing_at("v1", f"outs:\n- md5: {'0' * 32}.dir\n  path: predictions\n"),
    "v1: DVC can't read it: got no data/predictions among its outs": comparing_at("v1", "outs: []"),
    "v1: DVC can't read it: …": comparing_at("v1", "<<<<<<< HEAD\n"),
    "v1: no such path, and no revision without a repository of Git and DVC here": comparing_at(
        "v1"
    ),
    "v3: no such path, revision or experiment; did you mean v2?": comparing_at("v3", None),
    "worker 1 of 2 was ended by SIGKILL": killed_worker,
}

# Those that need a process of their own.
MAKING: dict[str, Raiser] = {
    "/bin/sh…python3.11…not found": without_python,
    "1 of 1 outs differ from commit …": verifying("echo 1 > one.txt"),
    "dvc repro ended with 255; what it says stands above": verifying("false"),
    "make preset NAME=tiy: expected one of default, …": preset("NAME=tiy"),
    "params.yaml has uncommitted edits; commit them, or add FORCE=1": preset("NAME=tiny"),
    "pretrain: process 1 of 2 was ended by SIGKILL": process_killed,
    "seed 1: stage pretrain ended with 2": a_seed_that_ends_early,
}
