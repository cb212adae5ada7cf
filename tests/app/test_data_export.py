"""The exported table: every row as in the two tables, and loaded by `datasets` with no code."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from vlm.app import data_export
from vlm.app.cli import app
from vlm.data import joined, png, writing
from vlm.data.joined import JOINED
from vlm.data.schema import QUESTIONS, SCENES
from vlm.data.writing import Part, SplitWriter
from vlm.errors import UserError

ASKED = [2, 0, 3, 1, 0, 0, 4, 1, 0]  # questions of each scene: none of some, of the last too


def write(folder: Path, asked: list[int] = ASKED, channels: int = 3) -> list[dict[str, Any]]:
    """Scenes as an import leaves them, some without answers; the rows that an export has of them.

    Returns:
        Rows as a loop over the two tables' rows makes them.
    """
    images = np.random.default_rng(0).integers(0, 256, (len(asked), channels, 9, 11), np.uint8)
    scenes = [
        {
            "image": {"bytes": png.encode(image), "path": None},
            "objects": [],
            "captions": [f"caption {number} $x_{{", "été 猫 🎈"][: number % 3],
            "caption_keys": ["own"] * (number % 3),
        }
        for number, image in enumerate(images)
    ]
    questions = [
        {
            "scene_id": scene,
            "family": ("open", "yes/no")[turn % 2],
            "question": f"what {turn}?",
            "answer": None if turn == 1 else f"a {scene}",
            "phrase": None if turn == 1 else f"it is a {scene}",
            "answers": ["a", "b"] * turn,
        }
        for scene, number in enumerate(asked)
        for turn in range(number)
    ]
    kinds = (SCENES.remove(0), QUESTIONS.remove(0))
    tables = [pa.Table.from_pylist(r, k) for r, k in zip((scenes, questions), kinds, strict=True)]
    with SplitWriter(folder) as writer:
        writer.add(Part(*tables))
    rows, ids = [], iter(range(len(questions)))
    for scene_id, scene in enumerate(scenes):
        mine = [question for question in questions if question["scene_id"] == scene_id]
        for question in mine or [dict.fromkeys(QUESTIONS.names)]:
            number = {"question_id": next(ids) if mine else None}
            rows.append({**question, **number, **scene, "scene_id": scene_id})
    return rows


def export(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["data", "export", *map(str, arguments)])
    if isinstance(result.exception, UserError):
        raise result.exception
    return result


def read(*paths: Path) -> list[dict[str, Any]]:
    return pa.concat_tables([pq.read_table(path) for path in paths]).to_pylist()


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_row_is_a_question_with_its_scene():
    expected = write(Path("data/train"))
    result = export()
    assert result.exit_code == 0 and "9 scenes, 15 rows" in result.output
    schema = pq.read_schema("train.parquet")
    assert schema.equals(JOINED) and schema.metadata == JOINED.metadata
    assert read(Path("train.parquet")) == expected


def test_scenes_without_any_question_are_rows_too():
    expected = write(Path("data/val"), asked=[0, 0, 0])
    assert not list(Path("data/val").glob("questions-*"))
    export("--split", "val", "--out", "out/own.parquet")
    assert read(Path("out/own.parquet")) == expected


def test_small_groups_and_files_change_no_row(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writing, "GROUP_BYTES", 700)
    expected = write(Path("data/train"))
    assert pq.ParquetFile("data/train/scenes-00000.parquet").num_row_groups > 1
    monkeypatch.setattr(joined, "GROUP_BYTES", 500)
    export("--out", "one.parquet")
    assert pq.ParquetFile("one.parquet").num_row_groups > 5
    assert read(Path("one.parquet")) == expected
    monkeypatch.setattr(data_export, "SHARD_BYTES", 4000)
    export("--out", "train.parquet")
    export("--out", "many.parquet")
    files = sorted(Path().glob("many*"))
    assert len(files) > 2 and files[0].name == f"many-00000-of-{len(files):05d}.parquet"
    assert read(*files) == expected
    held = [{row["scene_id"] for row in read(file)} for file in files]
    assert sum(map(len, held)) == len(set().union(*held))  # no scene in two files
    assert [file.read_bytes() for file in files] == [
        file.read_bytes() for file in sorted(Path().glob("train-*"))
    ]


def test_a_later_export_leaves_nothing_of_an_earlier_one(monkeypatch: pytest.MonkeyPatch):
    write(Path("data/train"))
    Path("train-notes.parquet").touch()
    export()
    first = Path("train.parquet").read_bytes()
    with monkeypatch.context() as small:
        small.setattr(joined, "GROUP_BYTES", 500)
        small.setattr(data_export, "SHARD_BYTES", 4000)
        export()
        assert not Path("train.parquet").exists() and len(list(Path().glob("train-*-of-*"))) > 2
    export()
    names = {path.name for path in Path().iterdir()}
    assert names == {"data", "train.parquet", "train-notes.parquet"}
    assert Path("train.parquet").read_bytes() == first


def test_a_picture_is_stored_once_a_group_and_not_in_the_statistics():
    write(Path("data/train"), asked=[40] * 3, channels=3)
    export()
    meta = pq.ParquetFile("train.parquet").metadata
    columns = {
        column.path_in_schema: column
        for column in (meta.row_group(0).column(i) for i in range(meta.num_columns))
    }
    picture = columns["image.bytes"]
    assert picture.compression == "ZSTD" and picture.statistics is None
    once = sum(len(row["image"]["bytes"]) for row in read(Path("train.parquet"))[::40])
    assert picture.total_uncompressed_size < 2 * once


def test_datasets_loads_it_without_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    expected = write(Path("data/train"))
    write(Path("data/test_ood"), channels=1)
    export("--split", "all", "--out", "exported")
    assert {path.name for path in Path("exported").iterdir()} == {
        "train.parquet",
        "test_ood.parquet",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets

        loaded = datasets.load_dataset(
            "parquet",
            data_files={"train": "exported/train.parquet"},
            cache_dir=str(tmp_path / "cache"),
            split="train",
        )
        assert list(loaded.features) == JOINED.names
        assert loaded.features["image"] == datasets.Image()
        row = loaded[4]
    pixels = np.asarray(row.pop("image"))
    np.testing.assert_array_equal(pixels, png.decode(expected[4].pop("image")["bytes"]))
    assert row == {name: expected[4][name] for name in row}


def test_rows_of_another_order_are_refused():
    write(Path("data/train"))
    path = Path("data/train/questions-00000.parquet")
    table = pq.read_table(path)
    pq.write_table(table.take(pa.array([1, 2, 0])), path)  # scenes 0, 2, 0
    with pytest.raises(UserError, match="got scene_id 0 out of place"):
        export()
    for scene_id in (99, -1):
        column = pa.array([scene_id], pa.int64())
        pq.write_table(table.slice(0, 1).set_column(1, "scene_id", column), path)
        with pytest.raises(UserError, match=f"{path}: got scene_id {scene_id} out of place"):
            export()
    assert [path.name for path in Path().iterdir()] == ["data"]


def test_mistakes_are_named():
    with pytest.raises(UserError, match=r"^data/train: got no such folder"):
        export("--split", "all")
    with pytest.raises(UserError, match=r"^data/oak: got no such folder"):
        export("--split", "oak")
    write(Path("data/train"))
    with pytest.raises(UserError, match=r"^--out: got a.parquet with --split all, expected a fo"):
        export("--split", "all", "--out", "a.parquet")
    with pytest.raises(UserError, match=r"^--out: got data/train/a.parquet, expected a folder ot"):
        export("--out", "data/train/a.parquet")
    Path("file").touch()
    with pytest.raises(UserError, match=r"^file/a.parquet: got a file above it"):
        export("--out", "file/a.parquet")
