"""Work shared by processes, whose results come in the order of the items."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import TypeVar

from vlm.errors import StoppedError

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2  # items for each process, at work or waiting; so memory stays bounded


def map_in_order(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with what `work` makes of it; how many processes share the work changes nothing.

    Args:
        work: a function of a module, or a `partial` of one: it goes to the processes by name.
        items: taken as they are needed.
        workers: processes; 1 works in this one.

    Raises:
        StoppedError: a process was ended from outside.
    """
    if workers == 1:
        for item in items:
            yield item, work(item)
        return
    # Not forked: a copy of a process whose libraries have threads may hang.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _serve)
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            if len(waiting) >= AHEAD * workers:
                first, future = waiting.popleft()
                yield first, future.result()
        for item, future in waiting:
            yield item, future.result()
    except BrokenProcessPool:
        raise StoppedError(
            f"one of runtime.workers {workers} was ended from outside, as the system does when"
            " memory runs out; fewer need less"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _serve() -> None:
    """Leave Ctrl-C to the parent, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
