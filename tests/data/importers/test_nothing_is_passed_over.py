"""Files and texts that an importer might not see, or see twice, and that it must not lose."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mutations import FOLDER, Files, as_json, as_lines, as_parquet, picture, run, write

from vlm.data.importers.paths import below
from vlm.data.tables import read_annotators, read_questions, read_scenes
from vlm.errors import UserError

SPLITS = ("train", "val", "test")
WIDTH = 400  # bytes
LINE = {"caption": "a picture"}


def folders(**more: list[dict[str, Any]]) -> Files:
    """An `imagefolder` of three splits, and the rows of more folders with a picture each."""
    files: Files = {}
    for number, (name, rows) in enumerate([*((s, [LINE]) for s in SPLITS), *more.items()]):
        files[f"{name}/0.png"] = picture(number)
        files[f"{name}/metadata.jsonl"] = as_lines([{"file_name": "0.png"} | row for row in rows])
    return files


def table(first: int, number: int = 3, **columns: list[Any]) -> pa.Table:
    """Rows of pictures numbered from `first`."""
    images = [{"bytes": picture(first + n), "path": None} for n in range(number)]
    asked = {"question": ["is it"] * number, "answer": ["yes"] * number}
    return pa.table({"image": images, **asked, **columns})


def shards(**more: pa.Table) -> Files:
    tables = {f"{split}.parquet": table(3 * n) for n, split in enumerate(SPLITS)}
    return {name: as_parquet(rows) for name, rows in (tables | more).items()}


def test_lines_in_any_folder_are_rows(tmp_path: Path):
    write(folders(Val=[LINE] * 2, more=[LINE] * 3), tmp_path)
    metrics = run("imagefolder", tmp_path)
    assert metrics["rows"] == {"in": 8, "out": 8, "skipped": 0}
    assert [metrics[split]["captions"] for split in SPLITS] == [1 + 3, 1 + 2, 1]


@pytest.mark.parametrize("name", ["a  b.png", " a.png", "a\u202fb.png", "a\u3000b.PNG"])
def test_a_picture_is_found_by_its_name_as_it_stands(name: str, tmp_path: Path):
    files = folders(odd=[LINE | {"file_name": name}])
    write(files | {f"odd/{name}": picture(9)}, tmp_path)
    assert run("imagefolder", tmp_path)["rows"]["out"] == 4


def test_an_empty_list_hides_no_other_field(tmp_path: Path):
    row = {
        "captions": [],
        "text": "said",
        "question": [],
        "query": "why",
        "answer": [],
        "label": "x",
    }
    write(folders(odd=[row]), tmp_path)
    run("imagefolder", tmp_path)
    scenes, asked = (read(tmp_path / "data/train") for read in (read_scenes, read_questions))
    assert ["said"] in scenes.captions and asked.answer.tolist() == ["x"]


def test_a_table_of_any_spelling_is_read(tmp_path: Path):
    write(shards(**{"train-more.PARQUET": table(20)}), tmp_path)
    assert run("hf_parquet", tmp_path)["train"]["scenes"] == 6


def test_an_exported_test_ood_is_no_part_of_test(tmp_path: Path):
    names = ("test_ood.parquet", "test_ood-00000-of-00002.parquet")
    write(shards(**{name: table(20) for name in names}), tmp_path)
    assert run("hf_parquet", tmp_path)["test"]["scenes"] == 3


LINKS: dict[str, tuple[Files, str, Files]] = {
    "imagefolder": (folders(), "more", {"metadata.jsonl": as_lines([LINE])}),
    "hf_parquet": (shards(), "more", {"deep/train.parquet": as_parquet(table(20))}),
    "easy_vqa": (
        {"train/questions.json": as_json([["is it?", "yes", n] for n in range(9)])}
        | {f"train/images/{n}.png": picture(n) for n in range(9)},
        "test",
        {"questions.json": as_json([["is it?", "yes", 0]])},
    ),
    "vqa_v2": (
        {
            "q_train2014_questions.json": as_json(
                {
                    "questions": [
                        {"question_id": n, "image_id": n, "question": "?"} for n in range(9)
                    ]
                }
            )
        }
        | {f"{n:012}.jpg": picture(n) for n in range(9)},
        "more",
        {"q_val2014_questions.json": as_json({"questions": []})},
    ),
}


@pytest.mark.parametrize("source", LINKS)
@pytest.mark.parametrize("dangling", [False, True])
def test_rows_behind_a_link_are_refused_not_left_out(source: str, dangling: bool, tmp_path: Path):
    files, link, behind = LINKS[source]
    write(files, tmp_path)
    shares = (
        {} if source in ("imagefolder", "hf_parquet") else {"val_share": 0.3, "test_share": 0.3}
    )
    run(source, tmp_path, **shares)
    for name, content in behind.items():
        path = tmp_path / "elsewhere" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    target = tmp_path / "elsewhere"
    place = tmp_path / FOLDER / link
    if dangling:  # the file itself is a link that leads nowhere
        if source == "easy_vqa":
            target = tmp_path / "nowhere"
        else:
            place.mkdir()
            place, target = place / Path(next(iter(behind))).name, tmp_path / "nowhere"
    place.symlink_to(target)
    with pytest.raises(UserError, match="got a symbolic link"):
        run(source, tmp_path, on_bad="skip", **shares)


def test_what_no_walk_sees_is_an_error(tmp_path: Path):
    with pytest.raises(UserError, match="expected a folder that can be read"):
        below(tmp_path / "gone", bool)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("imagefolder", "a\nb/metadata.jsonl"),
        ("hf_parquet", "a\rb/x.parquet"),
        ("llava", "x\u0085.json"),
        ("vqa_v2", "a\nb/questions.json"),
        ("clevr", "questions/questions\n.json"),
    ],
)
def test_whatever_a_file_is_called_an_error_is_one_line(source: str, name: str, tmp_path: Path):
    write({name: b"{"}, tmp_path)
    with pytest.raises(UserError) as caught:
        run(source, tmp_path, on_bad="skip")
    assert len(str(caught.value).splitlines()) == 1


def test_captions_come_back_as_often_as_they_were_said(tmp_path: Path):
    captions = [["a", "a", "b"]] * 2 + [["b", "c"]]
    same = pa.array([{"bytes": picture(50), "path": None}] * 3)
    rows = table(0, captions=captions).set_column(0, "image", same)
    write(shards(**{"train.parquet": rows}), tmp_path)
    run("hf_parquet", tmp_path)
    assert read_scenes(tmp_path / "data/train").captions == [["a", "a", "b", "c"]]


def test_an_annotator_who_wrote_nothing_counts(tmp_path: Path):
    told = [["", "", "no"], ["yes", "", "yes"], [{"answer": ""}, {"answer": "b"}]]
    row = [{"question": "is it", "answers": answers} for answers in told]
    bad = [{"question": "is it", "answers": [""]}]
    write(folders(train=row + bad), tmp_path)
    assert run("imagefolder", tmp_path, on_bad="skip")["rows"]["skipped"] == 1
    assert read_questions(tmp_path / "data/train").answer.tolist() == ["no", "yes", "b"]
    assert read_annotators(tmp_path / "data/train") == [*told[:2], ["", "b"]]


@pytest.mark.parametrize("kind", ["date32", "date64", "duration", "timestamp"])
def test_a_time_out_of_range_is_a_bad_row(kind: str, tmp_path: Path):
    of = {
        "date32": (pa.int32(), pa.date32(), 2**31 - 1),
        "date64": (pa.int64(), pa.date64(), 2**62),
        "duration": (pa.int64(), pa.duration("ms"), 2**63 - 1),
        "timestamp": (pa.int64(), pa.timestamp("us"), 2**63 - 1),
    }
    plain, time, value = of[kind]
    column = pa.array([value, value, None], plain).view(time)
    write(shards(**{"train.parquet": table(0).set_column(1, "question", column)}), tmp_path)
    with pytest.raises(UserError, match="no pictures for train"):
        run("hf_parquet", tmp_path, on_bad="skip")


@pytest.mark.parametrize(
    "kind", [pa.binary_view(), pa.binary(WIDTH), pa.dictionary(pa.int32(), pa.binary())]
)
def test_bytes_of_any_kind_are_pictures(kind: pa.DataType, tmp_path: Path):
    pictures = [picture(n).ljust(WIDTH, b"\0") for n in range(3)]
    column = pa.array(pictures, pa.binary())
    is_coded = pa.types.is_dictionary(kind)
    column = column.dictionary_encode() if is_coded else column.cast(kind)
    write(shards(**{"train.parquet": table(0).set_column(0, "image", column)}), tmp_path)
    run("hf_parquet", tmp_path)
    images = read_scenes(tmp_path / "data/train").images
    assert len(np.unique(images.reshape(3, -1), axis=0)) == 3
