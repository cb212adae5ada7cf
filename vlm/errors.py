"""The exceptions that a user is meant to read: one line each, no traceback."""


class UserError(ValueError):
    """A mistake in what the user gave; exit status 2.

    The message names the thing, what was got and what was expected.
    """


class StoppedError(RuntimeError):
    """A run that can't go on, and whose results would mean nothing; exit status 1."""


class InterruptedRunError(StoppedError):
    """A run that was asked to stop and did; exit status 130 after Ctrl-C, 143 after SIGTERM."""
