"""Own data as tables: which rows, which split, which texts, and always the same bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from project import read_preset

from stages.generate import import_data
from vlm.config import parse_params
from vlm.config.data import DataConfig
from vlm.data import png
from vlm.data.importing import import_own
from vlm.data.ordered import map_in_order
from vlm.data.tables import read_questions, read_scenes
from vlm.errors import UserError
from vlm.files import read_json

SPLITS = ("train", "val", "test")
TESTS = Path(__file__).parents[1]
SCRIPT = """
import sys
from pathlib import Path
from project import read_preset
from vlm.config.data import DataConfig
from vlm.data.importing import import_own
from vlm.files import write_json

if __name__ == "__main__":
    values = read_preset("tiny")["data"] | {"source": "imagefolder"}
    values["own"]["on_bad"] = "skip"
    folder = Path(sys.argv[2])
    metrics = import_own(DataConfig.model_validate(values), 0, Path(), folder, int(sys.argv[1]))
    write_json(folder / "metrics.json", metrics)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flat(level: int) -> bytes:
    """A picture of one intensity."""
    return png.encode(np.full((1, 5, 5), level, np.uint8))


def write_own(rows: list[dict[str, Any]], pictures: dict[str, bytes]) -> None:
    """An `imagefolder`."""
    root = Path("data/external/own")
    for name, content in pictures.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_numbered(number: int, **more: Any) -> None:
    """Pictures 0 to number - 1, each of another intensity and with one question."""
    rows = [
        {"file_name": f"{n}.png", "question": f"is it {n}", "answer": "yes"} for n in range(number)
    ]
    write_own([row | more for row in rows], {f"{n}.png": flat(n) for n in range(number)})


def run(seed: int = 0, **own: Any) -> dict[str, Any]:
    return import_own(make(**own), seed, Path(), Path("data"), 1)


def make(**own: Any) -> DataConfig:
    values = read_preset("tiny")["data"] | {"source": "imagefolder"}
    values["own"] |= {"image_size": 8, "val_share": 0.3, "test_share": 0.3} | own
    return DataConfig.model_validate(values)


def split_of_questions() -> dict[str, str]:
    """Each question's split."""
    return {
        question: split
        for split in SPLITS
        for question in read_questions(f"data/{split}", answered=False).question
    }


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "external" not in path.parts
    }


def test_ten_rows_of_which_the_seventh_is_cut_off(folder: Path):
    write_numbered(10)
    run()
    before = files(Path("data"))
    Path("data/external/own/6.png").write_bytes(flat(6)[:50])
    line = "data/external/own/metadata.jsonl line 7: picture: got a damaged file"
    with pytest.raises(UserError) as caught:
        run()
    assert str(caught.value).startswith(line)
    assert files(Path("data")) == before  # nothing of the tables that were there is lost
    metrics = run(on_bad="skip")
    assert metrics["rows"] == {"in": 10, "out": 9, "skipped": 1}
    assert [bad["row"] for bad in metrics["skipped"]] == ["metadata.jsonl line 7"]
    assert read_json("data/skipped.jsonl") == metrics["skipped"][0]
    assert sorted(split_of_questions()) == [f"is it {n}" for n in range(10) if n != 6]
    for n in range(10):
        Path(f"data/external/own/{n}.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"metadata.jsonl line 1: picture: got no bytes"):
        run()
    with pytest.raises(
        UserError, match="got no usable row among 10, expected at least one; metadata"
    ):
        run(on_bad="skip")
    assert not list(Path("data").glob(".importing*"))


def test_a_picture_moves_by_its_pixels_and_the_seed_alone():
    write_numbered(60)
    run()
    first = split_of_questions()
    counts = {split: list(first.values()).count(split) for split in SPLITS}
    assert min(counts.values()) > 8 and sum(counts.values()) == 60
    write_numbered(90)
    run()
    more = split_of_questions()
    assert len(more) == 90 and {question: more[question] for question in first} == first
    run(seed=1)
    assert split_of_questions() != more
    run(val_share=0.4, test_share=0.2)
    wider = split_of_questions()
    assert all(wider[question] == "val" for question in more if more[question] == "val")


def test_equal_pictures_go_together_and_the_sources_own_splits_stay():
    pictures = {f"{split}/{n}.png": flat(n) for split in ("train", "test") for n in range(20)}
    pictures |= {f"train/again-{n}.png": flat(n) for n in range(20)}
    rows = [{"file_name": name, "caption": name} for name in pictures]
    write_own(rows, pictures)
    metrics = run(test_share=0.0)
    told = {split: read_scenes(f"data/{split}") for split in SPLITS}
    names = {split: {texts[0] for texts in scenes.captions} for split, scenes in told.items()}
    assert names["test"] == {f"test/{n}.png" for n in range(20)}
    assert {name.replace("again-", "") for name in names["train"]} == names["train"] & {
        f"train/{n}.png" for n in range(20)
    }
    assert metrics["duplicate_pictures_across_splits"] == 20  # all of test's
    assert metrics["train"]["scenes"] + metrics["val"]["scenes"] == 40


def test_what_stands_in_for_captions_phrases_and_answers():
    pictures = {f"{n}.png": flat(n) for n in range(4)}
    rows = [
        {"file_name": "0.png", "question": "Is it  dark", "answer": "Yes"},
        {"file_name": "0.png", "question": "what is it"},
        {"file_name": "1.png", "question": "who is it"},
        {"file_name": "2.png", "caption": "A Picture"},
        {"file_name": "3.png", "question": "is it", "answer": "no", "phrase": "it is not"},
    ]
    for split in SPLITS:
        write_own(rows, pictures)
        root = Path("data/external/own")
        (root / split).mkdir()
        for path in root.glob("*.*"):
            path.rename(root / split / path.name)
    metrics = run(val_share=0.0, test_share=0.0)
    for split in SPLITS:
        scenes, questions = (
            read_scenes(f"data/{split}"),
            read_questions(f"data/{split}", answered=False),
        )
        assert scenes.captions == [["Is it dark Yes"], ["who is it"], ["A Picture"], ["is it no"]]
        assert scenes.caption_keys == [
            ["is it dark yes"],
            ["who is it"],
            ["a picture"],
            ["is it no"],
        ]
        assert list(questions.answer) == ["Yes", None, None, "no"]
        assert list(questions.phrase) == ["Yes", None, None, "it is not"]
        assert set(questions.family) == {"question"}
        assert scenes.objects == [[]] * 4
        assert metrics[split]["unanswered_questions"] == 2
        assert metrics[split]["answers"] == {"question": {"Yes": 0.5, "no": 0.5}}
    assert metrics["test"]["answers_in_train"] == 1.0
    assert list(Path("data/test_ood").iterdir()) == [] and metrics["test_ood"]["scenes"] == 0


@pytest.mark.parametrize("without", SPLITS)
def test_a_split_without_any_answer_is_told_of_at_once(
    without: str, capsys: pytest.CaptureFixture[str]
):
    names = [f"{split}/{n}.png" for split in SPLITS for n in range(2)]
    rows = [{"file_name": name, "question": "is it"} for name in names]
    answered = [row | {"answer": "no"} for row in rows if not row["file_name"].startswith(without)]
    write_own([*rows, *answered], {name: flat(n) for n, name in enumerate(names)})
    values = read_preset("tiny")
    values["data"] = make(val_share=0.0, test_share=0.0).model_dump()
    for section in (values["align"], values["pretrain"], *values["train_vqa"].values()):
        section["batch_size"] = 2
    import_data(parse_params(values))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"generate: no question of {without} has an answer; the stages to come need one"
    ]
    for split in SPLITS:
        if split != without:
            assert len(read_questions(f"data/{split}")) == 2
    with pytest.raises(UserError, match=f"data/{without}: got no question with an answer"):
        read_questions(f"data/{without}")


def test_answers_that_train_lacks_and_files_that_no_row_names():
    names = [f"{split}/{n}.png" for split in SPLITS for n in range(4)]
    rows = [
        {"file_name": name, "question": "which", "answer": "a" if int(name[-5]) % 2 else name[0]}
        for name in names
    ]
    write_own(
        rows,
        {name: flat(n) for n, name in enumerate(names)} | {"train/spare.JPG": b"", "b.txt": b""},
    )
    metrics = run(val_share=0.0, test_share=0.0)
    assert metrics["unreferenced_files"] == 1
    assert metrics["val"]["answers_in_train"] == 0.5
    assert metrics["test"]["answers_in_train"] == 1.0  # "t" as "train" begins with
    assert "answers_in_train" not in metrics["train"]


def test_a_split_without_pictures_names_the_share():
    write_numbered(12)
    for split, own in (("val", {"val_share": 0.0}), ("test", {"test_share": 0.0})):
        with pytest.raises(
            UserError, match=f"no pictures for {split}, .*; raise data.own.{split}_share"
        ):
            run(**own)
    with pytest.raises(UserError, match=r"no pictures for train, .*; lower data.own.val_share and"):
        run(val_share=0.49, test_share=0.5)
    with pytest.raises(
        UserError, match=r"^data.own.path: got data/external/none, expected a folder"
    ):
        run(path="data/external/none")


def test_the_same_bytes_whatever_the_workers_and_the_hash_seed(folder: Path):
    write_numbered(100, family="kind", answers=["a", "b"])
    Path("data/external/own/31.png").write_bytes(b"GIF")
    (folder / "script.py").write_text(SCRIPT)
    made = []
    for seed, workers in ((1, 1), (2, 4)):
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        environment["PYTHONPATH"] = os.pathsep.join([str(TESTS.parent), str(TESTS)])
        command = [sys.executable, "script.py", str(workers), f"made-{seed}"]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        made.append(files(folder / f"made-{seed}"))
    assert made[0] == made[1] and len(made[0]) == 8
    assert read_json(f"made-{seed}/metrics.json")["rows"] == {"in": 100, "out": 99, "skipped": 1}


def test_results_come_in_order_and_only_a_few_items_are_taken_ahead():
    taken = []

    def items():
        for number in range(40):
            taken.append(number)
            yield -number

    for done, pair in enumerate(map_in_order(abs, items(), 2)):
        assert pair == (-done, done)
        assert len(taken) <= done + 4
    assert list(map_in_order(abs, [-2, 3], 1)) == [(-2, 2), (3, 3)]
