"""Ctrl-C and SIGTERM: at once, or, while a training can be saved, after the step it is at."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """A signal asked the stage to stop; it unwinds, so that what is half-written goes."""


class _Stopping:
    """What the signals so far have asked for."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.patient = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        again, self.signal = self.signal is not None, number
        # Under a launcher one Ctrl-C comes twice, from the terminal and from the launcher, which
        # ends by force whoever takes too long.
        if not self.patient or (again and "RANK" not in os.environ):
            raise Stopped
        if not again and os.environ.get("RANK", "0") == "0":
            more = "" if "RANK" in os.environ else "; once more to stop at once"
            os.write(2, f"stopping once this step is saved{more}\n".encode())


_state = _Stopping()


def install() -> None:
    """From here on signals unwind the stage; one that the caller had ignored stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _state.on_signal)


@contextmanager
def patience() -> Iterator[None]:
    """A block that looks at `is_requested` itself: the first signal doesn't break into it."""
    _state.patient = True
    try:
        yield
    finally:
        _state.patient = False


def is_requested() -> bool:
    """Whether a signal has come."""
    return _state.signal is not None


def status() -> int:
    """What a process that a signal stopped exits with: 128 and the signal's number."""
    return 128 + (_state.signal or signal.SIGINT)
