import json
from pathlib import Path

import pytest
from project import read_preset
from worlds import DEFAULT, make_data

from stages import generate
from vlm.config import parse_params
from vlm.config.data import DataConfig
from vlm.config.schema import Params
from vlm.data.tables import read_questions, read_scenes
from vlm.errors import UserError

RUNTIME = parse_params(read_preset("tiny")).runtime
SPLITS = {"train": 40, "val": 20, "test": 30, "test_ood": 12}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(data: DataConfig, seed: int = 0) -> None:
    generate.main(Params.model_construct(seed=seed, data=data, runtime=RUNTIME))


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
    def files() -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }

    make(make_data())
    first = files()
    make(make_data())
    assert files() == first and len(first) == 9
    make(make_data(), seed=1)
    assert files().keys() == first.keys()
    assert all(content != first[name] for name, content in files().items())


def test_equal_pictures_are_counted_without_noise_and_refused_with_it(folder: Path):
    make(make_data(DEFAULT | {"noise": 0.0}))
    metrics = json.loads((folder / "metrics/generate.json").read_text())
    assert metrics["duplicate_pictures_across_splits"] > 5  # the empty scenes at least
    with pytest.raises(UserError, match="pictures that an earlier split has too"):
        make(make_data(DEFAULT | {"noise": 1e-9}))
