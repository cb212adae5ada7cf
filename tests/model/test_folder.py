"""A damaged model folder is answered in one line that names the file."""

import errno
import json
import math
import os
import resource

import pytest
from safetensors import SafetensorError

from vlm.errors import UserError
from vlm.model import folder
from vlm.model.folder import load_classifier, load_config, save_model
from vlm.model.vlm import DualEncoder, VLMConfig
from vlm.model.vqa import AnswerClassifier

SIZES = {"image_size": 16, "patch_size": 8, "vision_hidden": 16, "text_hidden": 16}
CONFIG = VLMConfig(**SIZES, vocab_size=9, init_log_tau=math.log(1 / 0.07))


def test_saved_and_loaded_is_the_same(tmp_path):
    model = AnswerClassifier(CONFIG, ["no", "yes"], "concat", question_frequency=2.0)
    save_model(tmp_path, model)
    again = load_classifier(tmp_path)
    assert (again.answers, again.fusion, again.config) == (["no", "yes"], "concat", CONFIG)
    for name, tensor in model.state_dict().items():
        assert (again.state_dict()[name] == tensor).all(), name


@pytest.mark.parametrize(
    "change",
    [
        lambda values: [],
        lambda values: values | {"format": 2},
        lambda values: values | {"model": None},
        lambda values: values | {"model": {"hidden": 3}},
        lambda values: values | {"model": values["model"] | {"oracle": True}},
        lambda values: {key: value for key, value in values.items() if key != "head"},
        lambda values: values | {"head": {"oracle": True}},
    ],
)
def test_a_damaged_configuration(tmp_path, change):
    save_model(tmp_path, AnswerClassifier(CONFIG, ["no", "yes"]))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(UserError, match=r"config\.json: ") as error:
        load_classifier(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text_hidden": 65}, "hidden 65 not divisible by heads 4"),
        ({"vision_heads": 0}, "hidden 16 not divisible by heads 0"),
        ({"patch_size": 0}, "patch_size 0 must divide image_size 16"),
        ({"vision_depth": "two"}, "vision_depth: got 'two', expected a valid integer"),
        ({"vision_depth": True}, "vision_depth: got True, expected a valid integer"),
        ({"text_mlp_ratio": None}, "text_mlp_ratio: got None, expected a valid number"),
        ({"decoder_norm": "rms"}, "decoder_norm: got 'rms', expected 'pre' or 'post'"),
        ({"pixel_mean": 0.5}, "pixel_mean: got 0.5, expected a valid array"),
        ({"pixel_std": [1, "a"]}, "pixel_std.1: got 'a', expected a valid number"),
    ],
)
def test_a_wrong_setting_names_the_file(tmp_path, settings, message):
    save_model(tmp_path, AnswerClassifier(CONFIG, ["no", "yes"]))
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"model": values["model"] | settings}))
    for load in (load_config, load_classifier):
        with pytest.raises(UserError) as error:
            load(tmp_path)
        assert str(error.value) == f"{path}: model: {message}"


def test_settings_come_back_exactly(tmp_path):
    config = VLMConfig(**SIZES, init_log_tau=0.1234567890123, pixel_mean=(0.1, 1 / 3, 2))
    save_model(tmp_path, DualEncoder(config))
    assert load_config(tmp_path) == config


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_os_error(tmp_path, monkeypatch, number):
    def full(*args: object, **kwargs: object) -> None:
        text = f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})"
        raise SafetensorError(text)

    monkeypatch.setattr(folder, "save_file", full)
    with pytest.raises(OSError, match=os.strerror(number)) as error:
        save_model(tmp_path, AnswerClassifier(CONFIG, ["no"]))
    assert error.value.errno == number
    assert not list(tmp_path.iterdir())


def test_the_librarys_own_words_of_a_failed_write_are_understood(tmp_path):
    """A file that may not grow stands for a disk that is full."""
    model = AnswerClassifier(CONFIG, ["no"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError) as error:  # noqa: PT011, its number says which
            save_model(tmp_path, model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.errno == errno.EFBIG
    assert not list(tmp_path.iterdir())


def test_another_fault_of_the_library_is_no_os_error(tmp_path, monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise SafetensorError("another")

    monkeypatch.setattr(folder, "save_file", refuse)
    with pytest.raises(SafetensorError, match="another"):
        save_model(tmp_path, AnswerClassifier(CONFIG, ["no"]))
