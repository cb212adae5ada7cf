"""Work that comes in many like pieces: shared by the launcher's processes, and by their workers.

Of R processes number r makes the pieces r, r + R, ... and hands them to the first by files; of a
process's W workers number w makes every W-th of those. Pieces are functions of what they are given,
so that it makes no difference who makes them.
"""

import multiprocessing
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from stages.running.fingerprints import content, digest, modules_in_use
from stages.running.stage import RANK, RUNTIME
from vlm.errors import StoppedError
from vlm.files import atomic_path

Make = Callable[..., bytes]
Pieces = Sequence[tuple[Any, ...]]
SIGNALS = (signal.SIGINT, signal.SIGTERM)

WORTH = 16  # pieces for which it is worth the time to start a worker
AHEAD = 4  # pieces that a process hands over before the first has taken any
PATIENCE = 600.0  # seconds that the first process waits for another's piece
POLL = 0.02  # seconds between two looks


@contextmanager
def shared(
    name: str, make: "partial[Any]", pieces: Pieces, workers: int
) -> Iterator[Iterator[bytes] | None]:
    """What `make` gives for each piece, in order; None in a process whose share is handed over.

    Args:
        name: of the stage.
        make: a function of a module, and its first arguments, which every piece has alike.
        pieces: the other arguments of each.
        workers: processes to make them, besides this one; 1 for none.

    Raises:
        StoppedError: a worker was ended, or another process is silent.
    """
    number = int(os.environ["WORLD_SIZE"]) if RANK is not None else 1
    rank = RANK or 0
    parent = RUNTIME / name
    folder = parent / _identity(make, pieces)
    with ExitStack() as stack:
        mine = pieces[rank::number]
        made = stack.enter_context(_made(make, mine, min(workers, len(mine) // WORTH)))
        if rank:
            _hand_over(made, [_path(folder, at) for at in range(rank, len(pieces), number)])
            yield None
            return
        for left in parent.glob("*"):  # of a run that was killed
            if left != folder:
                shutil.rmtree(left)
        yield (
            next(made) if at % number == 0 else _taken(_path(folder, at), at % number)
            for at in range(len(pieces))
        )
        shutil.rmtree(parent, ignore_errors=True)


def _identity(make: "partial[Any]", pieces: Pieces) -> str:
    """A name that processes of one launch share, and no other work or code has."""
    launch = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT")
    told = [make.args, list(pieces), *(os.environ.get(key) for key in launch)]
    return digest(repr(told).encode(), *map(content, modules_in_use()))


def _path(folder: Path, at: int) -> Path:
    return folder / f"piece-{at:06d}"


def _hand_over(made: Iterator[bytes], paths: Sequence[Path]) -> None:
    """Write each piece whole, and never many that the first process hasn't taken yet."""
    for number, (path, piece) in enumerate(zip(paths, made, strict=True)):
        while sum(before.exists() for before in paths[max(number - AHEAD, 0) : number]) == AHEAD:
            time.sleep(POLL)
        with atomic_path(path) as partial_path:
            partial_path.write_bytes(piece)


def _taken(path: Path, rank: int) -> bytes:
    """A piece that another process hands over, once it is there."""
    began = time.monotonic()
    while not path.exists():
        if time.monotonic() - began > PATIENCE:
            raise StoppedError(f"process {rank}: got no {path} for {PATIENCE:.0f} s")
        time.sleep(POLL)
    piece = path.read_bytes()
    path.unlink()
    return piece


@contextmanager
def _made(make: Make, pieces: Pieces, workers: int) -> Iterator[Iterator[bytes]]:
    """What `make` gives for each piece, in order; each worker is at most one piece ahead."""
    if workers < 2:
        yield (make(*piece) for piece in pieces)
        return
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    pipes: list[Any] = []
    try:
        # Signals are for this process to answer. The workers take over that they are held back,
        # from which the start of the tracker, which comes with the first of them, would free them.
        resource_tracker.ensure_running()
        free = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            for worker in range(workers):
                ours, theirs = context.Pipe(duplex=False)
                pipes.append(ours)
                share = pieces[worker::workers]
                process = context.Process(target=_work, args=(make, share, theirs), daemon=True)
                process.start()
                processes.append(process)
                theirs.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, free)
        yield (_received(pipes, processes, at % workers) for at in range(len(pieces)))
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for pipe in pipes:
            pipe.close()


def _received(pipes: Sequence[Any], processes: Sequence[BaseProcess], worker: int) -> bytes:
    """A worker's next piece, or whatever it failed with."""
    try:
        got = pipes[worker].recv()
    except EOFError:
        processes[worker].join()
        status = processes[worker].exitcode or 0
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        raise StoppedError(f"worker {worker} of {len(processes)} was ended by {how}") from None
    if isinstance(got, Exception):
        raise got
    return got


def _work(make: Make, pieces: Pieces, pipe: Connection) -> None:
    """What a worker does: make its pieces one by one, until nobody reads them any more."""
    try:
        for piece in pieces:
            try:
                got: bytes | Exception = make(*piece)
            except Exception as error:
                error.add_note(traceback.format_exc())
                got = error
            pipe.send(got)
            if isinstance(got, Exception):
                return
    except BrokenPipeError:
        return
