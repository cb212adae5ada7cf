"""What is exported comes back through the import of one's own data, but for what only we know."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from project import read_preset

from stages import generate
from vlm.app import data_export
from vlm.app.data_export import export
from vlm.config import parse_params
from vlm.config.data import DataConfig
from vlm.config.schema import Params
from vlm.data import joined
from vlm.data.importing import import_own
from vlm.data.tables import TEXT_COLUMNS, read_questions, read_scenes

RUNTIME = parse_params(read_preset("tiny")).runtime
SPLITS = ("train", "val", "test")
FOLDERS = ("data", "again")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def settings(**own: Any) -> DataConfig:
    values = read_preset("tiny")
    data = values["data"]
    data |= {"train_scenes": 40, "val_scenes": 9, "test_scenes": 8, "test_ood_scenes": 0}
    world = data["world"]
    data["own"] |= {"image_size": world["image_size"], "channels": world["channels"]}
    data["own"] |= {"val_share": 0, "test_share": 0, **own}
    return parse_params(values).data


def export_and_import(data: DataConfig) -> dict[str, Any]:
    for split in SPLITS:
        export(split, Path("data"), Path(f"{data.own.path}/{split}.parquet"))
    own = data.model_copy(update={"source": "hf_parquet"})
    return import_own(own, 0, Path(), Path("again"), workers=1)


def same() -> None:
    """Every split is what it was."""
    for split in SPLITS:
        one, other = read_scenes(f"data/{split}"), read_scenes(f"again/{split}")
        np.testing.assert_array_equal(one.images, other.images)
        assert one.scene_id.tolist() == other.scene_id.tolist()
        assert one.captions == other.captions
        one, other = (
            read_questions(f"{folder}/{split}", answered=False) for folder in ("data", "again")
        )
        for name in ("scene_id", "question_id", *TEXT_COLUMNS):
            assert getattr(one, name).tolist() == getattr(other, name).tolist(), name


@pytest.mark.parametrize("small", [False, True])
def test_a_drawn_world_comes_back(small: bool, monkeypatch: pytest.MonkeyPatch):
    data = settings()
    generate.main(Params.model_construct(seed=1, data=data, runtime=RUNTIME))
    if small:
        monkeypatch.setattr(joined, "GROUP_BYTES", 3000)
        monkeypatch.setattr(data_export, "SHARD_BYTES", 9000)
    export_and_import(data)
    assert (len(list(Path(data.own.path).glob("train-*-of-*"))) > 2) == small
    same()


def test_unanswered_questions_and_scenes_without_any_come_back():
    data = settings()
    generate.main(Params.model_construct(seed=1, data=data, runtime=RUNTIME))
    for split in SPLITS:
        path = Path(f"data/{split}/questions-00000.parquet")
        table = pq.read_table(path)
        rows = [row for row in table.to_pylist() if row["scene_id"] % 3]
        for number, row in enumerate(rows):
            row["question_id"] = number
        for row in rows[::2]:
            row |= {"answer": None, "phrase": None}
        for row in rows[1::4]:
            row["answers"] = ["a", "b", "a"]
        pq.write_table(table.from_pylist(rows, table.schema), path)
    metrics = export_and_import(data)
    assert metrics["rows"]["in"] == metrics["rows"]["out"]
    same()
    for split in SPLITS:  # annotators' answers too
        one, other = (pq.read_table(f"{f}/{split}/questions-00000.parquet") for f in FOLDERS)
        assert one.equals(other)
