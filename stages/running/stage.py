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
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stages.running import stopping
from stages.running.locking import only_run
from vlm.config import Params, RuntimeConfig, load_params
from vlm.errors import InterruptedRunError, StoppedError, UserError
from vlm.files import write_json

if TYPE_CHECKING:
    import torch

    from vlm.training.execution import Row

PARAMS = Path("params.yaml")
RUNTIME = Path(".runtime")  # seconds and memory of each stage's last run; in git nor in DVC
RESUME = Path(".resume")  # locks, and what interrupted trainings left
FAILED, MISTAKE = 1, 2
YIELD = 5.0  # seconds in which the launcher hears of another process's failure, and ends this one
FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk, or this user's share of it
seconds_before: list[float] = []  # that interrupted processes put into what this one ends
# This process's number among those that a launcher started; None where none did.
RANK = int(os.environ["RANK"]) if "RANK" in os.environ else None


@cache
def params_in_force() -> Params:
    """`params.yaml` of the working directory, validated whole; ends the process on a mistake."""
    try:
        return load_params(PARAMS)
    except UserError as error:
        end(str(error), MISTAKE)


def run(name: str, stage: Callable[[Params], None], *, together: bool = False) -> NoReturn:
    """Run a stage's `main` as a process of its own, or as one of several that share it, and exit.

    Exit status: 0; 2 with one line for a user's mistake; 1 with one line for a run that can't go
    on or a full disk; 130 on Ctrl-C, 143 on SIGTERM. Any other error is a fault of ours and keeps
    its traceback.
    """
    params = params_in_force()
    if not together and RANK not in (None, 0):
        sys.exit(0)  # what is not shared is for one process to do
    started = time.perf_counter()
    try:
        stopping.install()
        _set_threads(params.runtime.threads)
        with only_run_of(name):
            stage(params)
        _record(name, sum(seconds_before) + time.perf_counter() - started, params.runtime)
    except UserError as error:
        end(f"{name}: {error}", MISTAKE)
    except InterruptedRunError as error:
        end(f"{name}: {error}", stopping.status())
    except StoppedError as error:
        end(f"{name}: {error}", FAILED)
    except OSError as error:
        if error.errno not in FULL:
            raise
        end(f"{name}: no space left on the disk; nothing half-written was left", FAILED)
    except KeyboardInterrupt:
        end(f"{name}: interrupted; nothing half-written was left", stopping.status())
    except RuntimeError:
        if RANK is not None:  # it may only be that another process has gone; that one speaks first
            if stopping.is_requested():
                end("", stopping.status())  # the launcher, which knows why, ends this one, too
            _let_others_speak()
        raise
    sys.exit(0)


def only_run_of(name: str) -> AbstractContextManager[None]:
    """The stage's lock, which the first of several processes takes for all."""
    if RANK not in (None, 0):
        return nullcontext()
    return only_run(
        RESUME / f"{name}.lock",
        lambda holder: say(f"{name}: process {holder} is still at this stage; waiting for its end"),
    )


def select_device(runtime: RuntimeConfig) -> "torch.device":
    """The device to work on; `auto` is a GPU where there is one."""
    import torch

    has_gpu = torch.cuda.is_available()
    if runtime.device == "cuda" and not has_gpu:
        raise UserError("runtime.device: got cuda, expected cpu or auto: no GPU is available")
    if not has_gpu or runtime.device == "cpu":
        return torch.device("cpu")
    wanted, found = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), torch.cuda.device_count()
    if wanted > found:
        raise UserError(f"runtime.processes: got {wanted}, expected at most {found}: a GPU each")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def select_precision(runtime: RuntimeConfig, device: "torch.device") -> "torch.dtype":
    """What products in training are computed in; `auto` is bf16 on a GPU that has it."""
    import torch

    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
    wanted = {"auto": has_bf16, "bf16": True, "fp32": False}[runtime.precision]
    return torch.bfloat16 if wanted else torch.float32


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


def _record(name: str, seconds: float, runtime: RuntimeConfig) -> None:
    """Write what a stage took, for the report; the first process's word stands for all."""
    if RANK not in (None, 0):
        return
    write_json(
        RUNTIME / f"{name}.json",
        {
            "seconds": seconds,
            "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "threads": runtime.threads,
            "processes": int(os.environ.get("WORLD_SIZE", 1)),
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


def _let_others_speak() -> None:
    """Give the launcher time to end this process, which from here on it does without a word."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    time.sleep(YIELD)


def end(line: str, status: int) -> NoReturn:
    """Exit with `status`, having said `line` where there is one."""
    if RANK:  # the first process says what all of them have to say, and the launcher ends the rest
        _let_others_speak()
        line = f"process {RANK}: {line}"
    if line:
        say(line)
    sys.exit(status)
