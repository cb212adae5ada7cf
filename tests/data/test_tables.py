import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from vlm.data import png, writing
from vlm.data.schema import QUESTIONS, SCENES
from vlm.data.tables import read_questions, read_scenes
from vlm.data.writing import write_questions, write_scenes
from vlm.errors import UserError


def pictures(n: int, channels: int = 1, size: int = 12) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, channels, size, size + 3), np.uint8)


def objects_of(n: int) -> list[list[dict[str, Any]]]:
    one = {"shape": "plus", "color": "white", "col": 3, "radius": 4}
    return [[one | {"row": row} for row in range(number % 4)] for number in range(n)]


def write(folder: Path, n: int = 10, asked: int = 2, channels: int = 1) -> np.ndarray:
    images = pictures(n, channels)
    captions = [[f"caption {number}", "other"] for number in range(n)]
    write_scenes(folder, [images], objects_of(n), captions, [["key"] * 2] * n)
    texts = [[f"{name} {i}" for i in range(n * asked)] for name in ("q", "a", "p")]
    write_questions(folder, np.arange(n).repeat(asked), ["count"] * n * asked, *texts)
    return images


def rewrite(path: Path, schema: pa.Schema, change: Any) -> None:
    rows = pq.read_table(path).to_pylist()
    pq.write_table(pa.Table.from_pylist(change(rows), schema), path)


@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_written_is_read(tmp_path: Path, channels: int):
    images = write(tmp_path, channels=channels)
    scenes, questions = read_scenes(tmp_path), read_questions(tmp_path)
    np.testing.assert_array_equal(scenes.images, images)
    assert scenes.images.flags.c_contiguous and scenes.scene_id.tolist() == list(range(10))
    assert scenes.objects == objects_of(10)
    assert scenes.captions[4] == ["caption 4", "other"] and scenes.caption_keys[4] == ["key"] * 2
    assert questions.question_id.tolist() == list(range(20)) and len(questions) == 20
    assert questions.scene_index.tolist() == questions.scene_id.tolist()
    assert questions.phrase[7] == "p 7" and set(questions.family) == {"count"}


def test_schemas_and_bytes(tmp_path: Path):
    for name in ("one", "two"):
        write(tmp_path / name)
    for table, schema in (("scenes", SCENES), ("questions", QUESTIONS)):
        first = tmp_path / "one" / f"{table}-00000.parquet"
        assert first.read_bytes() == (tmp_path / "two" / first.name).read_bytes()
        assert pq.read_schema(first).equals(schema)
        assert pq.read_schema(first).metadata == schema.metadata
        assert str(tmp_path).encode() not in first.read_bytes()
    features = json.loads((SCENES.metadata or {})[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"}


def test_batches_of_pictures_do_not_change_the_file(tmp_path: Path):
    whole = write(tmp_path / "whole")
    captions = [[f"caption {number}", "other"] for number in range(10)]
    parts = (whole[start : start + 3] for start in range(0, 10, 3))
    write_scenes(tmp_path / "parts", parts, objects_of(10), captions, [["key"] * 2] * 10)
    one, other = (tmp_path / name / "scenes-00000.parquet" for name in ("whole", "parts"))
    assert one.read_bytes() == other.read_bytes()


def test_large_tables_have_more_groups_and_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writing, "GROUP_BYTES", 500)
    monkeypatch.setattr(writing, "SHARD_BYTES", 3000)
    images = write(tmp_path, n=40)
    shards = sorted(tmp_path.glob("scenes-*"))
    assert len(shards) > 2 and shards[1].name == "scenes-00001.parquet"
    assert pq.ParquetFile(shards[0]).num_row_groups > 1
    np.testing.assert_array_equal(read_scenes(tmp_path).images, images)
    assert read_questions(tmp_path).question[-1] == "q 79"
    monkeypatch.undo()
    write(tmp_path)  # a smaller table leaves nothing of the larger one
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "questions-00000.parquet",
        "scenes-00000.parquet",
    ]


def test_questions_find_scenes_in_any_order(tmp_path: Path):
    write(tmp_path)
    rewrite(tmp_path / "scenes-00000.parquet", SCENES, lambda rows: rows[::-1])
    questions = read_questions(tmp_path)
    assert questions.scene_index.tolist() == (9 - questions.scene_id).tolist()


def test_datasets_decodes_the_pictures_with_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("HF_HOME", "HF_DATASETS_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    datasets = pytest.importorskip("datasets")
    images = write(tmp_path / "data", channels=3)

    def load(table: str) -> Any:
        files = str(tmp_path / "data" / f"{table}-*.parquet")
        return datasets.load_dataset(
            "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
        )

    scene = load("scenes")[7]
    assert isinstance(scene["image"], Image.Image)
    np.testing.assert_array_equal(np.asarray(scene["image"]), images[7].transpose(1, 2, 0))
    assert scene["objects"] == objects_of(10)[7] and scene["captions"] == ["caption 7", "other"]
    assert load("questions")[3]["phrase"] == "p 3"


def refuses(folder: Path, *parts: str, read: Any = read_scenes) -> None:
    with pytest.raises(UserError) as caught:
        read(folder)
    text = str(caught.value)
    assert "\n" not in text and all(part in text for part in parts), text


def test_missing_tables_are_named(tmp_path: Path):
    gone = tmp_path / "gone"
    refuses(gone, str(gone), "no such folder", "expected scenes-00000.parquet")
    write(tmp_path)
    (tmp_path / "questions-00000.parquet").unlink()
    refuses(tmp_path, "got a folder without questions-00000.parquet", read=read_questions)


def test_broken_tables_are_named(tmp_path: Path):
    write(tmp_path)
    path = tmp_path / "scenes-00000.parquet"
    rewrite(path, SCENES, lambda rows: [])
    refuses(tmp_path, str(path), "no rows")
    pq.write_table(pa.table({"scene_id": ["0"]}), path)
    refuses(tmp_path, str(path), "scene_id: got string, expected int64")
    pq.write_table(pa.table({"scene_id": [0]}), path)
    refuses(tmp_path, str(path), "image: got no such column")
    path.write_bytes(b"PAR1 no more")
    refuses(tmp_path, str(path), "expected a Parquet file")


def test_a_question_about_no_scene_is_named(tmp_path: Path):
    write(tmp_path)
    rewrite(tmp_path / "scenes-00000.parquet", SCENES, lambda rows: rows[:4])
    refuses(tmp_path, "row 8: got scene_id 4, expected one of the 4", read=read_questions)


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "null", "text"])
def test_a_broken_picture_is_named_by_its_row(tmp_path: Path, harm: str):
    write(tmp_path)

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        good = bytearray(rows[6]["image"]["bytes"])
        flipped = bytes(good[:60]) + bytes([good[60] ^ 1]) + bytes(good[61:])
        bad = {"cut": bytes(good[:80]), "flip": flipped, "empty": b"", "null": None, "text": b"x"}
        rows[6]["image"]["bytes"] = bad[harm]
        return rows

    rewrite(tmp_path / "scenes-00000.parquet", SCENES, change)
    refuses(tmp_path, "scenes-00000.parquet row 6", "expected a gray or RGB PNG")


def test_pictures_of_two_sizes_are_refused(tmp_path: Path):
    write(tmp_path)

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[2]["image"]["bytes"] = png.encode(pictures(1, size=8)[0])
        return rows

    rewrite(tmp_path / "scenes-00000.parquet", SCENES, change)
    refuses(tmp_path, "row 2", "(8, 11, 1)", "expected (12, 15, 1)")


@pytest.mark.parametrize("channels", [1, 3])
def test_png_of_another_writer_is_read_too(tmp_path: Path, channels: int):
    image = pictures(1, channels)[0]
    picture = Image.fromarray(image[0] if channels == 1 else image.transpose(1, 2, 0))
    picture.save(tmp_path / "a.png", optimize=True, dpi=(72, 72))
    decoded = png.decode((tmp_path / "a.png").read_bytes())
    np.testing.assert_array_equal(decoded.transpose(2, 0, 1), image)
    np.testing.assert_array_equal(png.decode(png.encode(image)).transpose(2, 0, 1), image)


def test_a_png_of_another_mode_is_refused(tmp_path: Path):
    Image.new("RGBA", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"a PNG of uint8 \(H, W, C\) \(4, 4, 4\)"):
        png.decode((tmp_path / "a.png").read_bytes())
