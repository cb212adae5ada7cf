"""`python -m vlm` is the `vlm` command."""

from vlm.app.cli import main

main()
