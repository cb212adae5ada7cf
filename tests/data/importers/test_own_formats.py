"""The formats `easy_vqa`, `imagefolder` and `hf_parquet`: what each says of a dozen rows."""

from pathlib import Path
from typing import Any

import pytest
from mutations import Files, as_json, as_lines, as_parquet, check_mutations, picture

SPLITS = ("train", "val", "test")


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
        names = [f"{split}-{n}.{kind}" for n, kind in enumerate(("png", "jpeg", "webp"))]
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
