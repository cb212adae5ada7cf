"""Whether the committed run repeats: the commit's pipeline runs anew in a clone, and every out's
hash is held against the committed `dvc.lock`.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import typer
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from vlm.app.figures import flat
from vlm.app.locks import Difference, Lock, count_outs, differing_outs, reasons
from vlm.errors import StoppedError, UserError

TIMINGS = ("benchmark_kv_cache", "report")  # stages whose outs hold times, which never repeat
LOCK = "dvc.lock"
EXTERNAL = "data/external"  # what a user brought along; git may not know it
RUNTIME = Path(".runtime")  # git and DVC look past it
# No cache that a user shares between projects: its results would spare this run work. And no
# process of DVC's that outlives it.
SETTINGS = """\
[cache]
    dir = cache
[core]
    analytics = false
    check_update = false
"""
SHOWN = 5  # values of a metrics file, and changed paths
PATIENCE = 30  # seconds that an interrupted stage has to end


def verify(keep: bool = False) -> str:
    """Run HEAD's stages in a clone, all but those of `TIMINGS`, and compare their outs.

    Differences are printed. The clone lies beside the project and goes at the end, unless `keep`.

    Returns:
        The line that says that nothing differs.

    Raises:
        UserError: no DVC, no commit, or no run committed with it.
        StoppedError: DVC or a stage failed, or an out differs.
    """
    if importlib.util.find_spec("dvc") is None:
        raise UserError("DVC: got none beside this Python, expected the environment of make")
    revision = _head()
    committed = _read_lock(_git("show", f"HEAD:./{LOCK}"))
    typer.echo(_what_is_verified(revision), err=True)
    with _clone(revision, keep) as project:
        listed = _dvc(project, "stage", "list", "--name-only").split()
        stages = [name for name in listed if name not in TIMINGS]
        # Without a commit to DVC's cache: the outs are hashed all the same.
        _dvc(project, "repro", "--force", "--no-commit", *stages)
        got = _read_lock((project / LOCK).read_text(encoding="utf-8"))
        differing = differing_outs(committed, got, stages)
        differing += _differing_files(project, committed, stages, differing)
        for line in _lines(project, committed, got, differing):
            typer.echo(line)
    outs = count_outs(committed, got, stages)
    if differing:
        raise StoppedError(f"{len(differing)} of {outs} outs differ from commit {revision[:7]}")
    return f"nothing differs: {outs} outs of {len(stages)} stages"


def _head() -> str:
    """The commit that is checked out."""
    revision = _git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()
    if not revision:
        raise UserError("HEAD: got no commit here, expected the project's folder in its clone")
    return revision


def _read_lock(text: str) -> Lock:
    """The stages of a `dvc.lock`."""
    try:
        return YAML(typ="safe").load(text)["stages"]
    except (YAMLError, TypeError, KeyError) as error:
        raise UserError(f"{LOCK} at HEAD: got no stages, expected a run's record") from error


def _what_is_verified(revision: str) -> str:
    brought = f"?? {_git('rev-parse', '--show-prefix').strip()}{EXTERNAL}/"
    changed = [line[3:] for line in _status(Path(), ".") if not line.startswith(brought)]
    if not changed:
        return f"verifying HEAD {revision[:7]}"
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    paths = ", ".join(changed[:SHOWN])
    return f"verifying HEAD {revision[:7]}; uncommitted changes in {paths}{more} are not part of it"


@contextmanager
def _clone(revision: str, keep: bool) -> Iterator[Path]:
    """The project at that commit in a folder of its own, with the user's data but no results."""
    RUNTIME.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="verify-", dir=RUNTIME)).resolve()
    try:
        top = _git("rev-parse", "--show-toplevel").strip()
        for command in (
            ["clone", "--quiet", "--no-checkout", top, str(folder)],
            ["-C", str(folder), "checkout", "--quiet", "--detach", revision],
        ):
            _check("git clone", subprocess.run(["git", *command], check=False).returncode)
        project = folder / _git("rev-parse", "--show-prefix").strip()
        for name in _git("ls-files", "--others", "-z", "--", EXTERNAL).split("\0")[:-1]:
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if Path(name).is_dir() else shutil.copyfile
            copy(name, project / name)
        (project / ".dvc").mkdir(exist_ok=True)
        (project / ".dvc/config.local").write_text(SETTINGS, encoding="utf-8")
        yield project
    finally:
        if keep:
            typer.echo(f"kept: {folder}", err=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _differing_files(
    project: Path, committed: Lock, stages: Sequence[str], known: Sequence[Difference]
) -> Iterator[Difference]:
    """Outs in git that are as `dvc.lock` says, while the commit holds something else."""
    told = {difference.path for difference in known}
    for stage in stages:
        for path in (out["path"] for out in committed.get(stage, {}).get("outs", [])):
            if path not in told and _status(project, path):
                yield Difference(stage, path, f"committed beside a {LOCK} that says otherwise")


def _lines(
    project: Path, committed: Lock, got: Lock, differing: Sequence[Difference]
) -> Iterator[str]:
    """Each difference, the values that differ, and after a stage's last one what explains it."""
    for number, difference in enumerate(differing, start=1):
        yield str(difference)
        if difference.path.endswith(".json"):
            yield from (f"    {line}" for line in _differing_values(project, difference.path))
        if all(later.stage != difference.stage for later in differing[number:]):
            stage = difference.stage
            yield from (f"    {stage}: {why}" for why in reasons(committed, got, stage))


def _differing_values(project: Path, path: str) -> list[str]:
    """The values of a JSON file that aren't the commit's; none where either has no such file."""
    committed = _git("show", f"HEAD:./{path}", folder=project)
    if not committed or not (project / path).is_file():
        return []
    before = dict(flat(json.loads(committed)))
    after = dict(flat(json.loads((project / path).read_text(encoding="utf-8"))))
    lines = [
        f"{name}: committed {before.get(name, 'nothing')}, got {after.get(name, 'nothing')}"
        for name in {**before, **after}
        if name not in before or name not in after or before[name] != after[name]
    ]
    return lines[:SHOWN] + ([f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])


def _git(*arguments: str, folder: Path = Path()) -> str:
    """What git prints; nothing where it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def _status(folder: Path, path: str) -> list[str]:
    """What differs from HEAD there, or isn't in git: two letters, a blank and the path."""
    return _git("status", "--porcelain", "--no-renames", "--", path, folder=folder).splitlines()


def _dvc(project: Path, *arguments: str) -> str:
    """Run DVC in the clone, with its Python and its code, and return what `stage list` prints.

    All that it starts is one group, which ends with this process.

    Raises:
        StoppedError: it failed.
    """
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{project}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "DVC_SITE_CACHE_DIR": str(project / ".dvc/tmp/site"),
    }
    listing = arguments[0] == "stage"
    with subprocess.Popen(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=project,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if listing else sys.__stderr__,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate()
        except KeyboardInterrupt:
            _end(process)
            raise
    _check(f"dvc {arguments[0]}", process.returncode)
    return printed or ""


def _check(command: str, status: int) -> None:
    if status:
        raise StoppedError(f"{command} ended with {status}; what it says stands above")


def _end(process: "subprocess.Popen[str]") -> None:
    """Interrupt a process and all of its group; kill what doesn't end."""
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt, ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
