"""One run of a stage at a time, so that an orphan and a new run never write the same files."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_run(path: Path, waits: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock at `path`, which goes with its process, however that ends.

    Where another process holds it, such as one whose terminal was closed, `waits` is told its
    number and this one waits: both would write the same files, and the later is to be right.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            waits(file.read().strip() or "unknown")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
