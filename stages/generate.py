"""Draw scenes, captions and questions for every split, or import the user's own.

Reads `params.yaml` (`seed`, `data`) and the folder that `data.own.path` names; writes
`data/{train,val,test,test_ood}/`, `data/skipped.jsonl` and `metrics/generate.json`.
"""

from functools import partial
from math import ceil
from pathlib import Path

from stages.running.sharing import shared
from stages.running.stage import RANK, run, say
from vlm.config.data import DataConfig
from vlm.config.schema import Params
from vlm.data.drawn import draw_block, unlike_scenes, unpack
from vlm.data.imported import SPLITS
from vlm.data.importing import SKIPPED, import_own
from vlm.data.writing import SplitWriter
from vlm.errors import UserError
from vlm.evaluation.census import Census
from vlm.files import write_json, write_text
from vlm.scenes.out_of_distribution import SPLIT as UNLIKE
from vlm.scenes.out_of_distribution import has_held_out
from vlm.scenes.sampler import BLOCK

DATA = Path("data")
METRICS = Path("metrics/generate.json")


def main(params: Params) -> None:
    if params.data.is_drawn:
        draw_data(params)
    else:
        import_data(params)


def draw_data(params: Params) -> None:
    """Draw every split, block by block."""
    data, seed = params.data, params.seed
    unlikes = unlike_scenes(data, seed, data.test_ood_scenes)
    # Held-out splits first, so that of train nothing need be kept to compare it with them.
    sizes = {
        "val": data.val_scenes,
        "test": data.test_scenes,
        UNLIKE: len(unlikes),
        "train": data.train_scenes,
    }
    blocks = {split: range(ceil(number / BLOCK)) for split, number in sizes.items()}
    wanted = sizes | {UNLIKE: data.test_ood_scenes}
    pieces = [(split, block, wanted[split]) for split in sizes for block in blocks[split]]
    workers = params.runtime.workers
    with shared("generate", partial(draw_packed, data, seed), pieces, workers) as made:
        if made is None:
            return
        census = Census(sizes)
        for split, numbers in blocks.items():
            # A split that a world has no room for, or nobody asked for, is a folder without tables.
            with SplitWriter(DATA / split) as writer:
                for _ in numbers:
                    block = unpack(next(made))
                    writer.add(block.part)
                    census.add(split, block)
    _refuse_repeated(census, data)
    _refuse_silent(census)
    figures = census.figures()
    held_out = int(has_held_out(unlikes, data.world).sum())
    figures[UNLIKE]["scenes_with_held_out_combination"] = held_out
    write_text(DATA / SKIPPED, "")  # a drawn world has no rows that can't be used
    write_json(METRICS, figures)


def draw_packed(data: DataConfig, seed: int, split: str, block: int, number: int) -> bytes:
    """A block in a form that travels between processes."""
    return draw_block(data, seed, split, block, number).packed()


def _refuse_repeated(census: Census, data: DataConfig) -> None:
    """Raise UserError where splits share pictures that noise should have told apart."""
    for split in ("val", "test", UNLIKE):
        repeated = census.repeated(split)
        if repeated and data.world.noise > 0:
            raise UserError(
                f"{DATA / split}: got {repeated} pictures that an earlier split has too,"
                f" expected none with data.world.noise {data.world.noise}"
            )


def _refuse_silent(census: Census) -> None:
    """Raise UserError where a split that is trained on or scored asks nothing."""
    for split in ("train", "val", "test"):
        if not census.questions(split):
            raise UserError(
                f"{DATA / split}: got no question about its {census.scenes(split)} scenes, expected"
                " at least one"
            )


def import_data(params: Params) -> None:
    """Import the user's own; of several processes the first does it all."""
    if RANK not in (None, 0):
        return
    metrics = import_own(params.data, params.seed, Path(), DATA, params.runtime.workers)
    write_json(METRICS, metrics)
    for split in SPLITS:
        if metrics[split]["questions"] == metrics[split]["unanswered_questions"]:
            say(f"generate: no question of {split} has an answer; the stages to come need one")
    rows = metrics["rows"]
    if rows["skipped"]:
        listed = DATA / SKIPPED
        say(f"generate: {rows['skipped']} of {rows['in']} rows left out; {listed} lists them")
    params.check_batches(metrics["train"]["scenes"])  # now, and not after hours of training


if __name__ == "__main__":
    run("generate", main, together=True)
