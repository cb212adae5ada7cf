"""The seven stages of the pipeline, each run as `python -m stages.NAME`.

Python imports this package before the stage's own module, and that module imports torch, which
takes seconds. So the parameters are checked here: a mistake in them is answered at once.
"""

import sys

if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2].startswith("stages."):
    from stages.runner import params_in_force

    params_in_force()
