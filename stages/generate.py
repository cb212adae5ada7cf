"""Draw scenes, captions and questions for every split, or import the user's own.

Reads `params.yaml` (`seed`, `data`) and the folder that `data.own.path` names; writes
`data/{train,val,test,test_ood}/` and `metrics/generate.json`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stages.running.stage import run, say
from vlm.config.data import WorldConfig
from vlm.config.schema import Params
from vlm.data.drawn import DrawnSplit, picture_hash, tell
from vlm.data.importing import import_own
from vlm.data.writing import write_questions, write_scenes
from vlm.errors import UserError
from vlm.files import write_json
from vlm.scenes.asking import AskedQuestions
from vlm.scenes.out_of_distribution import SPLIT as UNLIKE
from vlm.scenes.out_of_distribution import has_held_out, sample_unlike
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import Scenes

DATA = Path("data")
METRICS = Path("metrics/generate.json")


def main(params: Params) -> None:
    if not params.data.is_drawn:
        _import(params)
        return
    data, seed = params.data, params.seed
    sizes = {"train": data.train_scenes, "val": data.val_scenes, "test": data.test_scenes}
    scenes = {split: sample_scenes(data.world, seed, split, n) for split, n in sizes.items()}
    scenes[UNLIKE] = sample_unlike(data.world, seed, data.test_ood_scenes)
    metrics: dict[str, Any] = {}
    seen: set[bytes] = set()  # the pictures of the splits so far
    duplicates = 0

    for split, members in scenes.items():
        # A split that a world has no room for, or nobody asked for, is a folder without tables.
        (DATA / split).mkdir(parents=True, exist_ok=True)
        metrics[split] = {"scenes": len(members), "questions": 0, "answers": {}}
        if not len(members):
            for stale in (DATA / split).glob("*.parquet"):
                stale.unlink()
            continue
        drawn = tell(data, seed, split, members)
        hashes = _write(DATA / split, drawn)
        repeated = sum(digest in seen for digest in hashes)
        if repeated and data.world.noise > 0:
            raise UserError(
                f"{DATA / split}: got {repeated} pictures that an earlier split has too,"
                f" expected none with data.world.noise {data.world.noise}"
            )
        duplicates += repeated
        seen.update(hashes)
        metrics[split]["questions"] = len(drawn.questions.scene_id)
        metrics[split]["answers"] = _answer_shares(drawn.questions)

    held_out = int(has_held_out(scenes[UNLIKE], data.world).sum())
    metrics[UNLIKE]["scenes_with_held_out_combination"] = held_out
    train = set(_layouts(scenes["train"], data.world))
    known = [layout in train for layout in _layouts(scenes["test"], data.world)]
    metrics["test_layouts_in_train"] = float(np.mean(known))
    metrics["duplicate_pictures_across_splits"] = duplicates
    write_json(METRICS, metrics)


def _import(params: Params) -> None:
    metrics = import_own(params.data, params.seed, Path(), DATA, params.runtime.workers)
    write_json(METRICS, metrics)
    if skipped := metrics["rows"]["skipped"]:
        say(f"generate: {skipped} of {metrics['rows']['in']} rows left out; {METRICS} lists them")


def _write(folder: Path, drawn: DrawnSplit) -> list[bytes]:
    """Write a split's tables; a hash of each picture's pixels."""
    hashes: list[bytes] = []
    pictures = _hashed(drawn.pictures(), hashes)
    write_scenes(folder, pictures, drawn.objects, drawn.captions, drawn.caption_keys)
    asked = drawn.questions
    write_questions(
        folder, asked.scene_id, asked.family, asked.question, asked.answer, asked.phrase
    )
    return hashes


def _hashed(
    batches: Iterator[npt.NDArray[np.uint8]], hashes: list[bytes]
) -> Iterator[npt.NDArray[np.uint8]]:
    """Pass pictures on, and add a hash of each one's pixels to `hashes`."""
    for batch in batches:
        hashes += [picture_hash(image) for image in batch]
        yield batch


def _layouts(scenes: Scenes, world: WorldConfig) -> list[bytes]:
    """What each scene holds, whatever the order of its objects: equal iff layouts are equal."""
    columns = (scenes.shape, scenes.color, scenes.row, scenes.col, scenes.radius)
    side = world.image_size
    sizes = (len(world.shapes), len(world.colors), side, side, world.max_radius + 1)
    present = [np.where(scenes.present, column, 0) for column in columns]
    codes = np.ravel_multi_index(present, sizes)
    codes = np.sort(np.where(scenes.present, codes, -1), axis=1)
    return [row.tobytes() for row in codes]


def _answer_shares(questions: AskedQuestions) -> dict[str, dict[str, float]]:
    """How often each answer occurs among the questions of a family."""
    shares = {}
    for family in dict.fromkeys(questions.family):
        answers, counts = np.unique(
            questions.answer[questions.family == family].astype(str), return_counts=True
        )
        shares[family] = dict(zip(answers.tolist(), (counts / counts.sum()).tolist(), strict=True))
    return shares


if __name__ == "__main__":
    run("generate", main)
