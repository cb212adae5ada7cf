"""What makes each error of `vlm data show` and `vlm data export` appear."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from error_page import Raiser
from raise_data import TRAIN, write_split
from raise_parameters import tiny

from vlm.app.data_export import export
from vlm.app.data_show import show

OUT = Path("sheet.png")


def questions_out_of_order() -> None:
    write_split()
    shard = Path(TRAIN) / "questions-00000.parquet"
    pq.write_table(pq.read_table(shard).take(pa.array([3, 1])), shard)
    export("train", Path("data"), None)


def exported(split: str, out: str) -> None:
    write_split()
    export(split, Path("data"), Path(out))


SHOWING: dict[str, Raiser] = {
    "--out: got a.parquet with --split all, expected a folder": lambda: exported(
        "all", "a.parquet"
    ),
    "--out: got data/train/a.parquet, expected a folder other than those of a split's tables": (
        lambda: exported("train", "data/train/a.parquet")
    ),
    "--seed: got 1, expected none where scenes are read from data": lambda: show(
        tiny(), "train", 3, 1, OUT, Path("data")
    ),
    "--split: got oak, expected one of train, val, test, test_ood": lambda: show(
        tiny(), "oak", 3, None, OUT, None
    ),
    "--split: got test_ood, which has no scenes, expected one that has some": lambda: show(
        tiny(data__test_ood_scenes=0), "test_ood", 3, None, OUT, None
    ),
    "data/train/questions-00000.parquet: got scene_id 0 out of place, expected the scene table's,"
    " and rising": questions_out_of_order,
    "data/train: got no such folder, expected scenes-00000.parquet in it; run the stage generate"
    " first": lambda: show(tiny(), "train", 3, None, OUT, Path("data")),
}
