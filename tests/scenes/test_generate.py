import json
from pathlib import Path

import pytest
from project import read_preset
from worlds import DEFAULT, make_data

from stages import generate
from stages.running import sharing
from vlm.config import parse_params
from vlm.config.data import DataConfig
from vlm.config.schema import Params
from vlm.data.tables import read_questions, read_scenes
from vlm.errors import UserError
from vlm.scenes.sampler import BLOCK

RUNTIME = parse_params(read_preset("tiny")).runtime
SPLITS = {"train": 40, "val": 20, "test": 30, "test_ood": 12}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(data: DataConfig, seed: int = 0, workers: int = 1) -> None:
    runtime = RUNTIME.model_copy(update={"workers": workers})
    generate.main(Params.model_construct(seed=seed, data=data, runtime=runtime))


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_four_splits_and_their_metrics(folder: Path):
    make(make_data())
    metrics = json.loads((folder / "metrics/generate.json").read_text())
    assert metrics["duplicate_pictures_across_splits"] == 0
    assert 0 < metrics["test_layouts_in_train"] < 1
    pixels: set[bytes] = set()
    for split, number in SPLITS.items():
        scenes, questions = read_scenes(folder / "data" / split), read_questions(f"data/{split}")
        assert len(scenes) == number and len(questions) == 8 * number
        assert metrics[split]["scenes"] == number and metrics[split]["questions"] == 8 * number
        yes = (questions.answer[questions.family == "exists"] == "yes").mean()
        assert metrics[split]["answers"]["exists"]["yes"] == pytest.approx(yes)
        assert [len(texts) for texts in scenes.captions] == [3] * number
        pixels |= {image.tobytes() for image in scenes.images}
    assert len(pixels) == sum(SPLITS.values())
    assert metrics["test_ood"]["scenes_with_held_out_combination"] == 0


def test_held_out_combinations_are_in_half_of_the_last_split(folder: Path):
    make(make_data(DEFAULT | {"held_out": ["plus@center"]}))
    metrics = json.loads((folder / "metrics/generate.json").read_text())
    assert metrics["test_ood"]["scenes"] == 12
    assert metrics["test_ood"]["scenes_with_held_out_combination"] == 6
    scenes = read_scenes("data/test_ood")
    assert [len(objects) for objects in scenes.objects[6:]] == [4] * 6


def test_a_split_without_scenes_is_a_folder_without_tables(folder: Path):
    make(make_data())
    assert len(list((folder / "data/test_ood").iterdir())) == 2
    make(make_data(test_ood_scenes=0))  # and what stood there is gone
    assert list((folder / "data/test_ood").iterdir()) == []
    metrics = json.loads((folder / "metrics/generate.json").read_text())
    assert metrics["test_ood"] == {
        "scenes": 0,
        "questions": 0,
        "answers": {},
        "pictures_also_in_train": 0,
        "scenes_with_held_out_combination": 0,
    }


def test_the_same_bytes_again_and_others_for_another_seed(folder: Path):
    make(make_data())
    first = files(folder)
    make(make_data())
    assert files(folder) == first and len(first) == 10
    make(make_data(), seed=1)
    assert files(folder).keys() == first.keys()
    same = [name for name, content in files(folder).items() if content == first[name]]
    assert same == ["data/skipped.jsonl"]  # of a drawn world it is empty


def test_one_worker_or_four_write_the_same_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch):
    data = make_data(train_scenes=BLOCK + 40)
    make(data)
    first = files(folder)
    monkeypatch.setattr(sharing, "WORTH", 1)
    make(data, workers=4)
    assert files(folder) == first


def test_the_first_scenes_do_not_depend_on_how_many_follow(folder: Path):
    make(make_data())
    few = read_scenes(folder / "data/train")
    make(make_data(train_scenes=60))
    many = read_scenes(folder / "data/train")
    assert (many.images[:40] == few.images).all()
    assert many.objects[:40] == few.objects and many.captions[:40] == few.captions


def test_metrics_tell_what_train_says_of_test(folder: Path):
    make(make_data(train_scenes=400))
    metrics = json.loads((folder / "metrics/generate.json").read_text())
    floors = metrics["floors"]
    families = set(metrics["test"]["answers"])
    names = {"majority", "question_only", "image_only"}
    assert set(floors) == names | {"by_family"} and set(floors["by_family"]) == names
    assert all(set(shares) == families for shares in floors["by_family"].values())
    assert floors["by_family"]["image_only"]["count"] == 1.0  # what is shown says how many
    assert metrics["test_answers_not_in_train"] == 0
    assert {metrics[split]["pictures_also_in_train"] for split in SPLITS if split != "train"} == {0}


def test_equal_pictures_are_counted_without_noise_and_refused_with_it(folder: Path):
    make(make_data(DEFAULT | {"noise": 0.0}))
    metrics = json.loads((folder / "metrics/generate.json").read_text())
    assert metrics["duplicate_pictures_across_splits"] > 5  # the empty scenes at least
    with pytest.raises(UserError, match="pictures that an earlier split has too"):
        make(make_data(DEFAULT | {"noise": 1e-9}))
