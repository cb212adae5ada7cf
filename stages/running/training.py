"""How the training stages are run: several processes, a place for checkpoints, progress."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from stages.running import stopping
from stages.running.fingerprints import content, digest, modules_in_use, plain
from stages.running.launching import launch, processes_up
from stages.running.stage import (
    RANK,
    RESUME,
    end,
    only_run_of,
    params_in_force,
    progress,
    run,
    say,
    seconds_before,
    select_device,
    select_precision,
)
from vlm.config import Params, RuntimeConfig
from vlm.errors import UserError
from vlm.files import read_json, write_json
from vlm.training.checkpoint import CHECKPOINT, Checkpoints
from vlm.training.distributed import World
from vlm.training.execution import Execution
from vlm.training.fit import InterruptedTrainingError

IDENTITY = "run.json"
COMPILERS = ("c++", "g++", "clang++")  # one of which PyTorch compiles with
LIBRARIES = ("numpy", "tokenizers", "torch")  # that decide what a step does, or to what


def run_training(name: str, stage: Callable[[Params], None]) -> NoReturn:
    """`run` for a stage that trains: as so many processes as `runtime.processes` says.

    A process that PyTorch's launcher started, whoever called that, is one of them.
    """
    params = params_in_force()
    if RANK is not None or params.runtime.processes == 1:
        run(name, stage, together=True)
    with only_run_of(name):
        pass  # the processes would give each other up before an orphan's end
    status, line = launch(params.runtime.processes, sys.orig_argv[1:])
    end(f"{name}: {line}" if line else "", status)


@contextmanager
def training(
    name: str,
    sections: Mapping[str, Any],
    inputs: Sequence[Path],
    steps: int,
    runtime: RuntimeConfig,
) -> Iterator[Execution]:
    """How the stage `name` is to train; once the block has ended well, its checkpoint goes.

    Args:
        name: of the stage.
        sections: the parameters that it reads.
        inputs: the files and folders that it reads.
        steps: of the optimizer, for the progress bar.
        runtime: what the user wants of the machine.

    Raises:
        UserError: a device or a compiler that isn't there, or hosts with other work.
        InterruptedTrainingError: a signal came too late for `fit` to see it. Ending well would let
            DVC go on with the next stage.
    """
    device = select_device(runtime)
    if runtime.compile and device.type == "cpu" and not any(map(shutil.which, COMPILERS)):
        raise UserError(f"runtime.compile: got true, expected a compiler: {' or '.join(COMPILERS)}")
    with processes_up(device) as world, stopping.patience():
        how = Execution(
            device,
            world,
            runtime.parallel,
            select_precision(runtime, device),
            runtime.compile,
            should_stop=stopping.is_requested,
        )
        identity = _identity(sections, inputs)
        require_same(world, {**identity, "runtime": _how_is_shared(runtime)})
        folder = world.from_first(world.is_first and _open_folder(name, identity))
        how = replace(how, checkpoints=Checkpoints(folder, runtime.checkpoint_seconds))
        if world.is_first:
            how = replace(
                how,
                report=progress(name, steps, runtime),
                resumed=lambda step: say(
                    f"{name}: going on after step {step} of {steps}, from {folder}"
                ),
            )
        yield how
        if any(world.sums([stopping.is_requested()], device)):
            raise InterruptedTrainingError(steps, steps, saved=True)
        if how.checkpoints is not None and world.is_first:
            seconds_before.append(how.checkpoints.before)
            how.checkpoints.path.unlink(missing_ok=True)  # before what says whose it is
            shutil.rmtree(folder)


def _identity(sections: Mapping[str, Any], inputs: Sequence[Path]) -> dict[str, str]:
    """What makes a run this one and no other."""
    return {
        "parameters": digest(repr(plain(sections)).encode()),
        "data": digest(*(content(path) for path in inputs)),
        "code": digest(
            *(version(name).encode() for name in LIBRARIES), *map(content, modules_in_use())
        ),
    }


def _how_is_shared(runtime: RuntimeConfig) -> str:
    """What of `runtime` all processes must have alike."""
    return f"{runtime.parallel} {runtime.precision} {runtime.compile}"


def require_same(world: World, work: Mapping[str, str]) -> None:
    """Processes of several hosts must not train on different things.

    Raises:
        UserError: two of them have different work.
    """
    first, *others = world.everyones(work)
    for rank, other in enumerate(others, start=1):
        differs = " and ".join(part for part in first if other[part] != first[part])
        if differs:
            raise UserError(
                f"processes 0 and {rank} were given other {differs}, expected the same on all hosts"
            )


def _open_folder(name: str, identity: Mapping[str, str]) -> Path:
    """The folder of this very run's checkpoint; says which other runs wait beside it, and why."""
    folder = RESUME / name / digest(*(part.encode() for part in identity.values()))
    for left in folder.glob("*.partial"):  # of a process that was killed as it wrote
        left.unlink()
    for other in sorted(file.parent for file in (RESUME / name).glob(f"*/{CHECKPOINT}")):
        if other != folder:
            was = _read_identity(other / IDENTITY)
            differs = " and ".join(part for part in identity if was.get(part) != identity[part])
            say(
                f"{name}: not going on from {other}, a run of other {differs}; delete it or"
                " go back to them"
            )
    write_json(folder / IDENTITY, identity)
    return folder


def _read_identity(path: Path) -> dict[str, str]:
    """What a run wrote of itself; nothing where it was killed as it cleared up."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}
