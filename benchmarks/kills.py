"""Kills `dvc repro` at random moments until it is done, and compares what it left.

`python -m benchmarks.kills --kills 30 --seed 0`: a copy of the project runs the tiny preset, saved
after each step, under `dvc repro`, undisturbed. Then again in the same copy without those results,
ended by SIGKILL, SIGTERM and SIGINT in turn, of the whole group as a terminal does it or of one of
the stages and DVC alone. Every kill and what was gone on from is printed; the exit status is 1 if a
file differs in the end, or if nothing was ever gone on from. It lies here and not among the tests
since a run takes minutes and no two hit the same moments; `tests/pipeline/test_interrupted.py`
holds the few that matter most.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TARGETS = ("group", "stage", "dvc")
WAIT = (4.0, 20.0)  # seconds, from a run's start to its kill
OUTS = ("data", "models", "metrics", "plots")
# They hold times that were measured.
TIMED = ("metrics/benchmark_kv_cache.json", "plots/benchmark_kv_cache/")
PACE = 100  # steps of each training, so that a kill mostly meets one
LOG = "run.log"
NEWS = re.compile(
    r"^\w+: (?:going on after step \d+ of \d+|not going on .*|process \d+ is still at this stage)",
    re.MULTILINE,
)


@dataclass
class Kill:
    """One end of a run: what was ended, and where."""

    number: signal.Signals
    target: str
    stage: str


def main() -> int:
    """Run, kill, compare; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="kills-") as parent:
        project = copied(Path(parent) / "project")
        started = time.perf_counter()
        finish(project)
        seconds = time.perf_counter() - started
        expected = digests(project)
        forget(project)
        print(f"undisturbed: {seconds:.0f} s, {len(expected)} files", flush=True)
        news = killed(project, expected, arguments.kills, rng)
        finish(project)
        news += news_of(project)
        print("the last run:", "; ".join(news_of(project)) or "nothing to go on from")
        different = differing(project, expected)
    resumed = sum("going on after" in line for line in news)
    print(f"{arguments.kills} kills; gone on {resumed} times; {len(different)} files differ")
    print(*different, sep="\n")
    return 1 if different or not resumed else 0


def copied(folder: Path) -> Path:
    """A repository of its own with the tiny preset, slowed down, and nothing made yet."""
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
    params = (ROOT / "presets/tiny.yaml").read_text()
    params = re.sub(r"^(\s+steps:) \d+", rf"\1 {PACE}", params, flags=re.MULTILINE)
    params = re.sub(r"(checkpoint_seconds:) [\d.]+", r"\1 0.0", params)
    (folder / "params.yaml").write_text(params)
    author = ["-c", "user.name=kills", "-c", "user.email=kills@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "start"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def start(project: Path) -> subprocess.Popen[bytes]:
    """`dvc repro` in a group of its own."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with (project / LOG).open("w") as log:  # an orphan would keep a pipe open
        return subprocess.Popen(
            ["dvc", "repro"],
            cwd=project,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def finish(project: Path) -> None:
    """Run to the end.

    Raises:
        RuntimeError: the run failed.
    """
    if status := start(project).wait():
        said = (project / LOG).read_text()
        raise RuntimeError(f"dvc repro ended with {status}:\n{said}")


def news_of(project: Path) -> list[str]:
    """What the last run said that it goes on from, or waits for."""
    return [match[0] for match in NEWS.finditer((project / LOG).read_text())]


def killed(project: Path, expected: Mapping[str, str], kills: int, rng: random.Random) -> list[str]:
    """Run until so many kills have met a run; all that the runs went on from.

    A run that got to its end is compared, and the next starts from nothing.

    Raises:
        RuntimeError: a run ended badly before its kill, or with other files.
    """
    news: list[str] = []
    done = 0
    while done < kills:
        process = start(project)
        time.sleep(rng.uniform(*WAIT))
        kill = end_by(process, SIGNALS[done % len(SIGNALS)], rng.choice(TARGETS))
        status = process.wait()
        news += (said := news_of(project))
        if kill is None:
            if status or differing(project, expected):
                text = (project / LOG).read_text()
                raise RuntimeError(f"dvc repro ended by itself with {status}:\n{text}")
            print("    at its end, with the same files; from nothing again", flush=True)
            forget(project)
            continue
        done += 1
        told = "; ".join(said) or "nothing to go on from"
        print(f"{done:3} {kill.number.name} to {kill.target} in {kill.stage}: {told}", flush=True)
        if "Traceback" in (text := (project / LOG).read_text()):
            print(text, flush=True)
    return news


def end_by(process: subprocess.Popen[bytes], number: signal.Signals, target: str) -> Kill | None:
    """Send the signal to all of the run, to its stage or to DVC; None if it had ended."""
    if process.poll() is not None:
        return None
    below = psutil.Process(process.pid).children(recursive=True)
    stages = {child.pid: name for child in below if (name := stage_of(child))}
    stage = " ".join(sorted(set(stages.values()))) or "dvc"
    if target == "dvc" and number == signal.SIGINT:
        target = "group"  # DVC alone ignores Ctrl-C while a stage runs
    if target == "group":
        os.killpg(process.pid, number)
    elif target == "stage" and stages:
        for pid in stages:
            os.kill(pid, number)
    else:
        target = "dvc"
        process.send_signal(number)
    return Kill(number, target, stage)


def stage_of(process: psutil.Process) -> str:
    """The stage that a process runs; empty for another, or one that has gone."""
    try:
        words = process.cmdline()
    except psutil.NoSuchProcess:
        return ""
    if "-m" not in words or "python" not in Path(words[0]).name:
        return ""
    return " ".join(words[words.index("-m") + 1 :]).removeprefix("stages.")


def digests(project: Path) -> dict[str, str]:
    """Every out's md5 by its path."""
    files = (path for folder in OUTS for path in (project / folder).rglob("*") if path.is_file())
    named = {path.relative_to(project).as_posix(): path for path in files}
    return {
        name: md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        for name, path in sorted(named.items())
        if not name.startswith(TIMED) and not name.startswith("data/external")
    }


def differing(project: Path, expected: Mapping[str, str]) -> list[str]:
    """The files that are other than `expected`, too few or too many."""
    found = digests(project)
    return sorted(n for n in {*expected, *found} if expected.get(n) != found.get(n))


def forget(project: Path) -> None:
    """Take away all that runs have made, DVC's cache with it."""
    for name in (*OUTS, "reports", ".resume", ".runtime", ".dvc/cache", ".dvc/tmp"):
        shutil.rmtree(project / name, ignore_errors=True)
    (project / "dvc.lock").unlink(missing_ok=True)
    subprocess.run(["git", "checkout", "-q", "."], cwd=project, check=True)


if __name__ == "__main__":
    sys.exit(main())
