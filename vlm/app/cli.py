"""The command line: `vlm`, or `python -m vlm`.

Exit status: 0; 2 for a mistake of the user's, told in one line on stderr.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vlm.config import load_params
from vlm.errors import UserError

MISTAKE = 2

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def about() -> None:
    """A small vision-language model, made from nothing and measured honestly."""


@app.command()
def check(
    params: Annotated[Path, typer.Argument(help="The parameter file.")] = Path("params.yaml"),
) -> None:
    """Validate the parameters, whole, and do nothing else.

    Example: vlm check presets/tiny.yaml
    """
    load_params(params)
    typer.echo(f"{params}: valid")


def main() -> None:
    """Run the command; a `UserError` is one line and exit status 2."""
    try:
        app()
    except UserError as error:
        typer.echo(str(error), err=True)
        sys.exit(MISTAKE)
