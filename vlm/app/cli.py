"""The command line: `vlm`, or `python -m vlm`.

Exit status: 0; 2 for a mistake of the user's and 1 for a run that can't go on, told in one line on
stderr; 130 on Ctrl-C.
"""

import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from vlm.app.seeds import run_seed, table
from vlm.app.verify import verify as run_again
from vlm.config import load_params
from vlm.data.importers.paths import check_folder
from vlm.errors import StoppedError, UserError

FAILED, MISTAKE = 1, 2
SEEDS = Path(".runtime/seeds")

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)
data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data", help="Look at the data, or take them elsewhere.")


@app.callback()
def about() -> None:
    """A small vision-language model, made from nothing and measured honestly."""


@app.command()
def check(
    params: Annotated[Path, typer.Argument(help="The parameter file.")] = Path("params.yaml"),
) -> None:
    """Validate the parameters, whole, and that the files they name are there; do nothing else.

    Example: vlm check presets/tiny.yaml
    """
    values = load_params(params)
    if not values.data.is_drawn:
        check_folder("data.own.path", Path(values.data.own.path))
    weights = values.model.vision.pretrained
    if weights is not None and not Path(weights).is_file():
        raise UserError(f"model.vision.pretrained: got {weights}, expected a file that is there")
    typer.echo(f"{params}: valid")


@app.command()
def shapes(
    params: Annotated[Path, typer.Argument(help="The parameter file.")] = Path("params.yaml"),
    step: Annotated[bool, typer.Option("--step", help="Time a step of pretraining too.")] = False,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Pictures in that step.", show_default="pretrain.batch_size"),
    ] = None,
) -> None:
    """Print each module's shapes and parameters, and the arithmetic behind them.

    Reads no data and trains nothing. Example: vlm shapes presets/tiny.yaml --step --batch 8
    """
    values = load_params(params)
    if batch is not None and not step:
        raise UserError(f"--batch: got {batch} without --step, expected both")
    # Here, since torch takes seconds, which `check` and `--help` need not wait for.
    from vlm.app.shapes import config_in_force, count_vocabulary, page

    words = count_vocabulary(values)
    typer.echo(page(params, values, words))
    if step:
        from vlm.app.step import time_step

        pictures = values.pretrain.batch_size if batch is None else batch
        typer.echo(f"timing a step, batch {pictures} ...", err=True)
        config = config_in_force(values, words)
        typer.echo("\n" + "\n".join(time_step(values, config, pictures)))


@app.command()
def seeds(
    params: Annotated[Path, typer.Argument(help="The parameter file.")] = Path("params.yaml"),
    count: Annotated[int, typer.Option(min=1, help="Seeds 0 to COUNT - 1.")] = 3,
) -> None:
    """Run the whole pipeline under several seeds, and print every figure's mean and spread.

    Works in .runtime/seeds, beside the pipeline's own results. Example: vlm seeds
    presets/notebook.yaml --count 3
    """
    load_params(params)  # before the last results go
    if SEEDS.exists():
        shutil.rmtree(SEEDS)
    runs = {seed: run_seed(params, seed, SEEDS / f"seed-{seed}") for seed in range(count)}
    typer.echo(table(runs))


@app.command()
def verify(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the clone in .runtime/.")] = False,
) -> None:
    """Run the committed pipeline anew in a clone, and compare every out with dvc.lock.

    All stages but the two whose outs hold times, so it takes nearly as long as `make`. Exit
    status 1 where an out differs.
    """
    for ends in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C does: nothing runs on, nothing stays
        signal.signal(ends, signal.default_int_handler)
    typer.echo(run_again(keep))


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="Side A: a path, workspace, or a revision.")],
    b: Annotated[str, typer.Argument(help="Side B, likewise.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The page.")] = Path("compare.html"),
    limit: Annotated[int, typer.Option(min=0, help="Cards a head and kind of change.")] = 60,
    json: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the figures there as JSON too.")
    ] = None,
) -> None:
    """Compare two runs question by question: every figure's difference, and what changed.

    A side is a revision (a commit, tag, branch, or an experiment of `dvc exp show`), `workspace`
    for the files as they are now, or a path: a folder like data/predictions, or a file like its
    questions.parquet. A path that exists wins over a revision of that name. Nothing is checked
    out. Example: vlm compare HEAD workspace
    """
    from vlm.app import compare as comparing  # here, since matplotlib and DVC take a second

    text, remarks = comparing.compare(a, b, out, limit, json)
    for remark in remarks:
        typer.echo(remark, err=True)
    typer.echo(text)


@data_app.command("show")
def data_show(
    params: Annotated[Path, typer.Argument(help="The parameter file.")] = Path("params.yaml"),
    split: Annotated[str, typer.Option(help="train, val, test or test_ood.")] = "train",
    count: Annotated[int, typer.Option(min=1, max=200, help="Scenes on the sheet.")] = 12,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draw with that seed.", show_default="seed")
    ] = None,
    out: Annotated[Path, typer.Option(dir_okay=False, help="The PNG.")] = Path("data_sheet.png"),
    from_disk: Annotated[
        bool, typer.Option("--from-disk", help="Read data/SPLIT; always so with own data.")
    ] = False,
) -> None:
    """Make a sheet of a split's first scenes, with what is said and asked about them.

    They are drawn in memory, so that no stage need have run. Prints how the answers are spread.
    Example: vlm data show presets/tiny.yaml --split test_ood
    """
    from vlm.app.data_show import show  # here, since pyarrow and the font take a moment

    values = load_params(params)
    typer.echo(show(values, split, count, seed, out, Path("data") if from_disk else None))


@data_app.command("export")
def data_export(
    split: Annotated[str, typer.Option(help="A folder below DATA, or all that are there.")] = (
        "train"
    ),
    data: Annotated[Path, typer.Option(help="The folder of the splits.")] = Path("data"),
    out: Annotated[
        Path | None,
        typer.Option(help="The file; with all, their folder.", show_default="SPLIT.parquet"),
    ] = None,
) -> None:
    """Write a split as one Parquet file, a row a question, for Hugging Face's datasets.

    The pictures keep their bytes. What passes 512 MiB becomes several files, numbered as in
    train-00000-of-00003.parquet. Example: vlm data export --split all --out exported
    """
    from vlm.app.data_export import export  # here, since pyarrow takes a moment

    typer.echo("\n".join(export(split, data, out)))


def main() -> None:
    """Run the command; a `UserError` is one line and exit status 2, a `StoppedError` 1."""
    try:
        app()
    except UserError as error:
        typer.echo(str(error), err=True)
        sys.exit(MISTAKE)
    except StoppedError as error:
        typer.echo(str(error), err=True)
        sys.exit(FAILED)
