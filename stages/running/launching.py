"""The processes of a training stage, started by PyTorch's own launcher or found under it."""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from vlm.training.distributed import ALONE, World

SILENCE = timedelta(minutes=5)  # that a process may keep before the others give it up
SAVING = 50  # seconds that a process has to save itself once it is to stop


def launch(processes: int, arguments: list[str]) -> tuple[int, str]:
    """Run `python ARGUMENTS` as so many processes of one job.

    Returns:
        The exit status, that of the process which failed first, and a line that says what ended
        it, empty where the process will have said so itself.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # we speak for it
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=uuid.uuid4().hex,
        max_restarts=0,
        shutdown_timeout=SAVING,
    )
    try:
        elastic_launch(config, sys.executable)(*arguments)
    except SignalException as error:
        return 128 + error.sigval, ""
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            name = signal.Signals(-failure.exitcode).name
            return 1, f"process {rank} of {processes} was ended by {name}"
        return failure.exitcode, ""
    return 0, ""


@contextmanager
def processes_up(device: torch.device) -> Iterator[World]:
    """This process's place among those that a launcher started, with communication up between them.

    One that no launcher started is alone.
    """
    if "RANK" not in os.environ:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=SILENCE)
    yield World(dist.get_rank(), dist.get_world_size())
    dist.barrier()  # no one leaves while another still needs it
    # After a failure the connections last as long as the process, so that the others hear of it
    # only when this one has said what it has to say.
    dist.destroy_process_group()
