"""What every stage does around its own work: parameters, threads, errors, time and memory."""

import atexit
import errno
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vlm.config import Params, RuntimeConfig, load_params
from vlm.errors import StoppedError, UserError
from vlm.files import write_json

if TYPE_CHECKING:
    import torch

    from vlm.training.fit import Row

PARAMS = Path("params.yaml")
RUNTIME = Path(".runtime")  # seconds and memory of each stage's last run; in git nor in DVC
FAILED, MISTAKE, INTERRUPTED = 1, 2, 130
FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk, or this user's share of it


@cache
def params_in_force() -> Params:
    """`params.yaml` of the working directory, validated whole; ends the process on a mistake."""
    try:
        return load_params(PARAMS)
    except UserError as error:
        _end(str(error), MISTAKE)


def run(name: str, stage: Callable[[Params], None]) -> NoReturn:
    """Run a stage's `main` as a process of its own and exit.

    Exit status: 0; 2 with one line for a user's mistake; 1 with one line for a run that can't go
    on or a full disk; 130 on Ctrl-C. Any other error is a fault of ours and keeps its traceback.
    """
    params = params_in_force()
    started = time.perf_counter()
    try:
        _interrupt_by_exception()
        _set_threads(params.runtime.threads)
        stage(params)
        _record(name, time.perf_counter() - started, params.runtime)
    except UserError as error:
        _end(f"{name}: {error}", MISTAKE)
    except StoppedError as error:
        _end(f"{name}: {error}", FAILED)
    except OSError as error:
        if error.errno not in FULL:
            raise
        _end(f"{name}: no space left on the disk; nothing half-written was left", FAILED)
    except KeyboardInterrupt:
        _end(f"{name}: interrupted; nothing half-written was left", INTERRUPTED)
    sys.exit(0)


def select_device(runtime: RuntimeConfig) -> "torch.device":
    """The device to work on; `auto` is a GPU where there is one."""
    import torch

    has_gpu = torch.cuda.is_available()
    if runtime.device == "cuda" and not has_gpu:
        raise UserError("runtime.device: got cuda, expected cpu or auto: no GPU is available")
    return torch.device("cuda" if has_gpu and runtime.device != "cpu" else "cpu")


def progress(name: str, steps: int, runtime: RuntimeConfig) -> "Callable[[int, Row | None], None]":
    """What tells of a training as it goes: a bar on a terminal, and a line per validation."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    on = {"on": True, "off": False, "auto": sys.stderr.isatty()}[runtime.progress]
    bar = Progress(
        name,
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not on,
    )
    task = bar.add_task(name, total=steps)
    atexit.register(bar.stop)  # which gives the cursor back, however the stage ends

    def report(step: int, row: "Row | None") -> None:
        bar.start() if step < steps else bar.stop()
        bar.update(task, completed=step)
        if row is not None:
            losses = "  ".join(f"{key} {value:.4f}" for key, value in row.items() if "loss" in key)
            bar.console.print(f"{name} {step}/{steps}  {losses}", highlight=False)

    return report


def say(line: str) -> None:
    """One line to the person who watches."""
    print(line, file=sys.stderr, flush=True)


def _interrupt_by_exception() -> None:
    """From here on Ctrl-C unwinds, so that what is half-written goes; see `stages/__init__.py`."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _record(name: str, seconds: float, runtime: RuntimeConfig) -> None:
    """Write what a stage took, for the report."""
    write_json(
        RUNTIME / f"{name}.json",
        {
            "seconds": seconds,
            "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "threads": runtime.threads,
            "cores": os.cpu_count() or 0,
            "machine": platform.machine(),
        },
    )


def _set_threads(threads: int) -> None:
    if "torch" in sys.modules:
        import torch
        import torch.utils.deterministic

        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(True)
        # Every tensor of ours is written before it is read; filling them first only costs time.
        setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010


def _end(line: str, status: int) -> NoReturn:
    say(line)
    sys.exit(status)
