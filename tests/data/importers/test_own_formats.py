"""The formats `easy_vqa`, `imagefolder` and `hf_parquet`: what each says of a dozen rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mutations import Files, as_json, as_lines, as_parquet, check_mutations, picture, run, write

from vlm.data import png
from vlm.data.importers.pictures import load_picture
from vlm.data.tables import read_questions, read_scenes

SPLITS = ("train", "val", "test")
KINDS = ("png", "jpeg", "webp")


def easy_vqa() -> Files:
    questions = {
        "train": [
            ["what is the blue shape?", "circle", 0],
            ["what color is the shape?", "blue", 0],
            ["is there a red shape?", "no", 1],
            ["does the image contain a circle?", "yes", 0],
            *([f"is there a shape {n}?", "yes", n % 4] for n in range(5)),
        ],
        "test": [["what shape is present?", "circle", 0], ["is there no circle?", "no", 0]],
    }
    files = {f"{split}/questions.json": as_json(rows) for split, rows in questions.items()}
    files |= {f"train/images/{n}.png": picture(n) for n in range(4)}
    return files | {"test/images/0.png": picture(9)}


def imagefolder() -> Files:
    files: Files = {}
    for number, split in enumerate(SPLITS):
        names = [f"{split}-{n}.{kind}" for n, kind in enumerate(KINDS)]
        rows: list[dict[str, Any]] = [
            {"file_name": names[0], "text": "a small  picture"},
            {"file_name": names[0], "question": "is it small", "answer": "yes", "phrase": "it is"},
            {"file_name": names[1], "captions": ["one", "two"], "query": "how many", "label": "3"},
            {
                "file_name": names[2],
                "questions": [
                    {"question": "what"},
                    {"question": "who", "answers": ["a", "b", "b"]},
                ],
            },
        ]
        files[f"{split}/metadata.jsonl"] = as_lines(rows)
        for n, name in enumerate(names):
            files[f"{split}/{name}"] = picture(3 * number + n, name.partition(".")[2].upper())
    return files


def hf_parquet() -> Files:
    files: Files = {}
    for number, split in enumerate(("train", "validation", "test")):
        rows = [
            {
                "image": {"bytes": picture(5 * number + n // 2), "path": None},
                "scene_id": n // 2,
                "question": f"is it {n}",
                "answer": "yes" if n % 2 else "no",
                "captions": ["a picture"],
                "answers": ["yes", "no"],
            }
            for n in range(5)
        ]
        files[f"{split}-00000-of-00001.parquet"] = as_parquet(rows, row_group_size=2)
    return files


@pytest.mark.parametrize("build", [easy_vqa, imagefolder, hf_parquet])
def test_a_broken_data_set_ends_in_tables_or_in_one_line(build: Any, tmp_path: Path):
    val_share = 0.55 if build is easy_vqa else 0.0
    check_mutations(build.__name__, build(), tmp_path, val_share=val_share)


def imported(source: str, files: Files, folder: Path, **own: Any) -> dict[str, Any]:
    """What the tables of each split hold, after an import of these files."""
    write(files, folder)
    run(source, folder, **own)
    tables: dict[str, Any] = {}
    for split in SPLITS:
        scenes, asked = (
            read_scenes(folder / "data" / split),
            read_questions(folder / "data" / split, answered=False),
        )
        columns = (asked.scene_id, asked.family, asked.question, asked.answer, asked.phrase)
        tables[split] = {
            "captions": scenes.captions,
            "questions": list(zip(*(column.tolist() for column in columns), strict=True)),
            "images": scenes.images,
        }
    return tables


def squared(encoded: bytes) -> Any:
    return load_picture(encoded, 8, 3, "pad", 1000)


@pytest.mark.parametrize("base", ["", "data/"])
def test_easy_vqa_by_its_package_or_its_data(base: str, tmp_path: Path):
    files = {f"{base}{name}": content for name, content in easy_vqa().items()}
    got = imported("easy_vqa", files, tmp_path, val_share=0.55)
    assert len(got["train"]["images"]) == 3 and len(got["val"]["images"]) == 1
    assert (got["train"]["images"][0] == squared(picture(0))).all()
    assert got["train"]["questions"][:4] == [
        (0, "shape", "what is the blue shape?", "circle", "circle"),
        (0, "color", "what color is the shape?", "blue", "blue"),
        (0, "yes_no", "does the image contain a circle?", "yes", "yes"),
        (0, "yes_no", "is there a shape 0?", "yes", "yes"),
    ]
    assert got["test"]["captions"] == [["what shape is present? circle", "is there no circle? no"]]


def test_imagefolder_in_folders_or_by_paths(tmp_path: Path):
    files = imagefolder()
    got = imported("imagefolder", files, tmp_path)
    for number, split in enumerate(SPLITS):
        pictures = [squared(files[f"{split}/{split}-{n}.{kind}"]) for n, kind in enumerate(KINDS)]
        assert (got[split]["images"] == np.stack(pictures)).all(), number
        assert got[split]["captions"] == [["a small picture"], ["one", "two"], ["who b"]]
        assert got[split]["questions"] == [
            (0, "question", "is it small", "yes", "it is"),
            (1, "question", "how many", "3", "3"),
            (2, "question", "what", None, None),
            (2, "question", "who", "b", "b"),
        ]
    whole: list[dict[str, Any]] = []
    for split in SPLITS:
        for line in files.pop(f"{split}/metadata.jsonl").splitlines():
            row = json.loads(line)
            whole.append(row | {"file_name": f"{split}/{row['file_name']}"})
    again = imported("imagefolder", files | {"metadata.jsonl": as_lines(whole)}, tmp_path)
    assert repr(again) == repr(got)


def exported(split: int) -> tuple[list[dict[str, Any]], list[Any]]:
    """A table as we export it, a row a question, and the pixels of its pictures."""
    pixels = np.random.default_rng(split).integers(0, 256, (3, 3, 8, 8), np.uint8)
    rows = []
    for scene, question, family, answer in (
        *((0, "is it 0", "exists", "yes"), (0, "is it 1", "count", "2")),
        *((1, None, None, None), (2, "is it 3", "exists", None)),
    ):
        rows.append(
            {
                "scene_id": scene,
                "image": {"bytes": png.encode(pixels[scene]), "path": None},
                "objects": [{"shape": "plus", "row": 3}],
                "question_id": len(rows),
                "family": family,
                "question": question,
                "answer": answer,
                "phrase": answer and f"it is {answer}",
                "answers": [],
                "captions": [f"scene {scene}", f"picture {scene}"],
                "caption_keys": ["a", "a"],
            }
        )
    return rows, pixels


def test_our_own_export_comes_back_unchanged(tmp_path: Path):
    tables = {split: exported(number) for number, split in enumerate(SPLITS)}
    files = {f"{split}.parquet": as_parquet(rows) for split, (rows, _) in tables.items()}
    got = imported("hf_parquet", files, tmp_path)
    for split, (_, pixels) in tables.items():
        assert (got[split]["images"] == pixels).all()
        assert got[split]["captions"] == [[f"scene {n}", f"picture {n}"] for n in range(3)]
        assert got[split]["questions"] == [
            (0, "exists", "is it 0", "yes", "it is yes"),
            (0, "count", "is it 1", "2", "it is 2"),
            (2, "exists", "is it 3", None, None),
        ]


@pytest.mark.parametrize("column", ["bytes", "struct", "path"])
def test_the_column_of_pictures_is_found(column: str, tmp_path: Path):
    rows = [{"query": f"is it {n}", "label": ["yes"], "other": b"no picture"} for n in range(4)]
    files: Files = {}
    for number, split in enumerate(("train", "validation", "test")):
        names = [f"pictures/{number}-{n}.png" for n in range(4)]
        held = {name: picture(9 * number + n) for n, name in enumerate(names)}
        cells: list[Any] = [{"bytes": content, "path": name} for name, content in held.items()]
        if column == "bytes":
            cells = list(held.values())
        if column == "path":
            files |= held
            cells = [{"bytes": None, "path": name} for name in names]
        key = "jpg" if column == "bytes" else "odd"
        table = [row | {key: cell} for row, cell in zip(rows, cells, strict=True)]
        table[3][key] = table[2][key]  # the same picture, so the same scene
        kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        schema = {"query": pa.string(), "label": pa.list_(pa.string()), "other": pa.binary()}
        schema[key] = pa.binary() if column == "bytes" else kind
        files[f"{split}/0000.parquet"] = as_parquet(pa.Table.from_pylist(table, pa.schema(schema)))
    got = imported("hf_parquet", files, tmp_path)
    for number, split in enumerate(SPLITS):
        expected = [squared(picture(9 * number + n)) for n in range(3)]
        assert (got[split]["images"] == np.stack(expected)).all()
        asked = [(min(n, 2), "question", f"is it {n}", "yes", "yes") for n in range(4)]
        assert got[split]["questions"] == asked


def test_the_cauldron_with_exactly_one_picture(tmp_path: Path):
    turns = [{"user": "what is it", "assistant": "a cat", "source": "pets"}]
    rows = [
        {"images": [{"bytes": picture(n), "path": None}], "texts": turns * (1 + n % 2)}
        for n in range(30)
    ]
    rows[3]["images"] *= 2
    rows[4]["images"] = []
    rows[5]["texts"] = []
    files = {"train-00000-of-00001.parquet": as_parquet(rows)}
    write(files, tmp_path)
    metrics = run("hf_parquet", tmp_path, on_bad="skip", val_share=0.3, test_share=0.3)
    assert metrics["rows"] == {"in": 30, "out": 27, "skipped": 3}
    name = "train-00000-of-00001.parquet row"
    assert metrics["skipped"] == [
        {"row": f"{name} 4", "reason": "images: got 2 pictures, expected exactly one"},
        {"row": f"{name} 5", "reason": "images: got 0 pictures, expected exactly one"},
        {"row": f"{name} 6", "reason": "got neither a caption nor a question, expected one"},
    ]
    assert metrics["train"]["families"].keys() == {"pets"}
    assert read_scenes(tmp_path / "data/train").captions[0] == ["what is it a cat"]


def test_the_hugging_face_features_say_which_column_it_is(tmp_path: Path):
    rows = [{"image": b"a mask", "photo": picture(n), "text": f"picture {n}"} for n in range(9)]
    features = {"image": {"_type": "Value"}, "photo": {"_type": "Image"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.Table.from_pylist(rows).replace_schema_metadata(metadata)
    files = {f"{split}.parquet": as_parquet(table) for split in SPLITS}
    write(files, tmp_path)
    run("hf_parquet", tmp_path)
    scenes = read_scenes(tmp_path / "data/val")
    assert scenes.captions == [[f"picture {n}"] for n in range(9)]
    assert (scenes.images[3] == squared(picture(3))).all()
