"""The seven stages of the pipeline, each run as `python -m stages.NAME`.

Python imports this package before the stage's own module, and that module imports torch, which
takes seconds. So the parameters are checked here: a mistake in them is answered at once. And
Ctrl-C meanwhile is answered in the line that `stages.running.stage` says of it, not in a traceback.
"""

import os
import signal
import sys


def _end_interrupted(*_: object) -> None:
    """Say so and end at once: an import could swallow an exception, and nothing is written yet."""
    name = "_".join(sys.orig_argv[2:]).removeprefix("stages.")
    os.write(2, f"{name}: interrupted; nothing half-written was left\n".encode())
    os._exit(130)


if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2].startswith("stages."):
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it may be ignored
        signal.signal(signal.SIGINT, _end_interrupted)

    from stages.running.stage import params_in_force

    params_in_force()
