"""Parameters: every mistake in one line that names the key, before any work."""

import copy
import subprocess
import sys
import time

import pytest
from project import ROOT, read_preset

from vlm.config import load_params, parse_params
from vlm.errors import UserError


def changed(**values):
    """The tiny preset with dotted keys (written with __) changed."""
    params = copy.deepcopy(read_preset("tiny"))
    for name, value in values.items():
        *sections, key = name.split("__")
        section = params
        for part in sections:
            section = section[part]
        section[key] = value
    return params


def message(**values) -> str:
    with pytest.raises(UserError) as error:
        parse_params(changed(**values))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_key_names_its_nearest_neighbour():
    assert message(train_vqa__classifier__leraning_rate=1e-4) == (
        "train_vqa.classifier.leraning_rate: unknown; did you mean learning_rate?"
    )
    assert message(alighn={}) == "alighn: unknown; did you mean align?"
    assert message(runtime__xyzzy=1).startswith("runtime.xyzzy: unknown; expected one of device")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "fast", None, 2.5, True, []])
def test_a_wrong_batch_size_names_the_key(value):
    text = message(train_vqa__classifier__batch_size=value)
    assert text.startswith("train_vqa.classifier.batch_size: got ")
    assert "expected" in text


@pytest.mark.parametrize("value", [0.0, -1e-3, float("nan"), float("inf"), "1e-3 a step", None])
def test_a_wrong_rate_names_the_key(value):
    assert message(align__learning_rate=value).startswith("align.learning_rate: got ")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"model__vision__pretrained": "vit.safetensors"},
            "model.vision.pretrained: got 'vit.safetensors', expected a path like"
            " data/external/NAME.safetensors",
        ),
        (
            {"data__world__clutter": 300},
            "data.world.clutter: got 300, expected less than or equal to 256",
        ),
        (
            {"pretrain__augment__brightness": 1.0},
            "pretrain.augment.brightness: got 1.0, expected less than 1",
        ),
        ({"data__world__shapes": []}, "data.world.shapes: got [], expected at least 1 item"),
        ({"data__families": {}}, "data.families: got {}, expected at least 1 item"),
        ({"align": None}, "align: got None, expected a section"),
        ({"data__world": [1] * 99}, "data.world: got [1, 1, 1, 1, 1, 1, ...], expected a section"),
        (
            {"model__vision__pixel_mean": [0.5, 0.5]},
            "model.vision.pixel_mean: got 2 values, expected 1",
        ),
    ],
)
def test_what_was_expected_is_said_in_plain_words(values, expected):
    assert message(**values) == expected


def test_a_missing_key_is_named():
    params = read_preset("tiny")
    del params["pretrain"]["lm_weight"]
    with pytest.raises(UserError, match=r"^pretrain.lm_weight: missing$"):
        parse_params(params)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"model__vision__patch_size": 10, "model__vision__stem": "patch"},
            "patch_size 10 must divide image_size 32",
        ),
        (
            {"model__vision__hidden": 68, "model__vision__heads": 8},
            "model.vision: hidden 68 not divisible by heads 8",
        ),
        (
            {"model__vision__hidden": 30, "model__vision__heads": 2},
            "model.vision: sinusoidal_2d dim must be divisible by 4, got 30",
        ),
        ({"model__decoder__heads": 5}, "model: hidden 32 not divisible by heads 5"),
        ({"align__warmup_steps": 21}, "align: warmup_steps 21 exceeds steps 20"),
        (
            {"runtime__processes": 3},
            "align: batch_size 32 not divisible by 3 (accumulate 1 x 3 processes)",
        ),
        (
            {"model__text__max_length": 24},
            "model.text.max_length: got 24, expected at least 25, the longest text of this"
            " world with its begin and end marks",
        ),
        (
            {"data__world__colors": ["red", "blue"]},
            "data.world: colors ['red', 'blue'] need channels 3; with channels 1 only [white]",
        ),
        ({"data__world__margin": 16}, "data.world: margin 16 leaves no room in image_size 32"),
        ({"data__world__min_objects": 4}, "data.world: min_objects 4 exceeds max_objects 3"),
        ({"pretrain__accumulate": 33}, "pretrain: accumulate 33 exceeds batch_size 32"),
        ({"align__batch_size": 600}, "align: batch_size (600) cannot exceed corpus size (512)"),
    ],
)
def test_rules_across_fields(values, expected):
    assert message(**values) == expected


@pytest.mark.parametrize(
    "choice", [{"model__text__on_long": "cut"}, {"model__text__tokenizer": "bpe"}]
)
def test_texts_that_are_cut_or_of_unknown_length_are_left_to_the_data(choice):
    parse_params(changed(model__text__max_length=8, **choice))


def test_relation_needs_two_shapes():
    assert "relation" in message(data__world__shapes=["plus"], data__world__held_out=[])


def test_color_needs_two_colors():
    assert "at least two colors" in message(data__families={"count": 1, "color": 1})


def test_the_texts_of_every_family_need_room():
    asked = {
        "data__families": {"compare": 1},
        "data__captions_per_scene": 1,
        "data__world__max_objects": 1,
        "model__text__max_length": 10,
    }
    assert "expected at least 11, the longest text" in message(**asked)  # nine words, two marks


def test_yaml_1_2_numbers_and_words(tmp_path):
    text = (ROOT / "presets/tiny.yaml").read_text()
    for number in ("1e-4", "1.0e-4"):
        path = tmp_path / "params.yaml"
        path.write_text(text.replace("learning_rate: 0.001", f"learning_rate: {number}"))
        assert load_params(path).align.learning_rate == 1e-4


@pytest.mark.parametrize("text", ["a: [1", "", "- 1", "seed: 1\nseed: 2", "\t"])
def test_broken_files_are_one_line(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        load_params(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty, expected sections"),
        ("# seed: 0\n", "empty, expected sections"),
        ("seed: 0\nalign:\n  steps: 1\n  steps: 2\n", "line 4: duplicate key steps"),
    ],
)
def test_an_empty_file_and_a_key_said_twice(tmp_path, text, expected):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        load_params(path)
    assert str(error.value) == f"{path}: {expected}"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none.yaml: no such file"):
        load_params(tmp_path / "none.yaml")


@pytest.mark.pipeline
@pytest.mark.parametrize("stage", ["generate", "train_vqa"])
def test_a_typo_ends_a_stage_before_it_works(tmp_path, stage):
    text = (ROOT / "presets/tiny.yaml").read_text().replace("fusion_depth", "fusion_dept")
    (tmp_path / "params.yaml").write_text(text)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", f"stages.{stage}", "classifier"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "train_vqa.classifier.fusion_dept: unknown; did you mean fusion_depth?\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]
    assert time.perf_counter() - started < 10  # torch, which takes seconds, isn't imported


@pytest.mark.pipeline
def test_check_command(tmp_path):
    def check(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "params.yaml").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "vlm", "check"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    text = (ROOT / "presets/tiny.yaml").read_text()
    good, bad = check(text), check(text.replace("seed: 0", "seed: -1"))
    assert (good.returncode, good.stdout, good.stderr) == (0, "params.yaml: valid\n", "")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "seed: got -1, expected greater than or equal to 0\n"
    own = check(text.replace("source: scenes", "source: imagefolder"))
    assert (own.returncode, own.stdout) == (2, "")
    assert own.stderr == "data.own.path: got data/external/own, expected a folder that is there\n"


def test_worlds_and_seeds_that_would_fail_late_are_refused_at_once():
    assert message(seed=2**64).startswith("seed: got 18446744073709551616")
    assert message(data__families={"exist": 1}).endswith("did you mean exists?")
    assert "max_radius 16 exceeds image_size 32 / 2" in message(data__world__max_radius=16)
    assert message(model__vision__mlp_ratio=0.001).startswith("model.vision.mlp_ratio: got 0.001")
    twins = {"shapes": ["plus", "square"], "min_radius": 1, "max_radius": 1}
    text = message(**{f"data__world__{key}": value for key, value in twins.items()})
    assert "plus and square look the same at radius 1" in text


def test_a_folder_in_place_of_the_file_is_named(tmp_path):
    with pytest.raises(UserError, match="expected a parameter file"):
        load_params(tmp_path)


def test_equal_sections_have_equal_hashes():
    one, same, other = (parse_params(changed(seed=seed)) for seed in (1, 1, 2))
    assert hash(one) == hash(same) and one == same
    assert hash(one) != hash(other)
    assert len({one.data, same.data, other.data}) == 1
