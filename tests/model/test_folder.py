"""A damaged model folder is answered in one line that names the file."""

import json

import pytest

from vlm.errors import UserError
from vlm.model.folder import load_classifier, save_model
from vlm.model.vlm import VLMConfig
from vlm.model.vqa import AnswerClassifier

SIZES = {"image_size": 16, "patch_size": 8, "vision_hidden": 16, "text_hidden": 16}
CONFIG = VLMConfig(**SIZES, vocab_size=9, init_log_tau=2.5)  # exact in six decimals


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
