"""What makes each error of the page's section on models appear."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from error_page import Raiser
from raise_data import CONFIG
from safetensors.torch import load_file, save_file

from vlm.data.tokenizer import TextTokenizer
from vlm.model.folder import load_captioner, load_classifier, load_generator, save_model
from vlm.model.pretrained import load_vit
from vlm.model.vit import VisionEncoder, ViTConfig
from vlm.model.vlm import ContrastiveCaptioner
from vlm.model.vqa import AnswerClassifier

VIT = Path("data/external/vit.safetensors")
VIT_CONFIG = ViTConfig(image_size=16, patch_size=8, hidden=16, depth=1, heads=2, position="learned")
Change = Callable[[Path], Any]  # what happens to a model folder


def captioner(change: Change) -> Raiser:
    """Loads what pretraining left, after a change to its folder."""

    def raiser() -> None:
        folder = Path("models/pretrain")
        save_model(folder, ContrastiveCaptioner(CONFIG))
        change(folder)
        load_captioner(folder)

    return raiser


def settings(**changes: Any) -> Change:
    """Puts other values into `config.json`."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def model_settings(**changes: Any) -> Change:
    """The same for the model's settings in it; None takes one out."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        model = json.loads(path.read_text())["model"] | changes
        kept = {name: value for name, value in model.items() if value is not None}
        settings(model=kept)(folder)

    return change


def tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Change:
    """Changes, in place, the tensors of `model.safetensors`."""

    def rewrite(folder: Path) -> None:
        values = load_file(folder / "model.safetensors")
        change(values)
        save_file(values, folder / "model.safetensors")

    return rewrite


def a_head_of_another_version() -> None:
    folder = Path("models/train_vqa/classifier")
    save_model(folder, AnswerClassifier(CONFIG, ["no", "yes"]))
    settings(head={"oracle": True})(folder)
    load_classifier(folder)


def a_captioner_for_a_generator() -> None:
    save_model("models/train_vqa/generator", ContrastiveCaptioner(CONFIG))
    load_generator("models/train_vqa/generator")


def a_broken_tokenizer() -> None:
    Path("models/align").mkdir(parents=True)
    Path("models/align/tokenizer.json").write_text("{}")
    TextTokenizer.load("models/align")


def vit(name: str) -> Raiser:
    """Starts an encoder from a file with one tensor of this name."""

    def raiser() -> None:
        VIT.parent.mkdir(parents=True)
        save_file({name: torch.zeros(1, 1, 16)}, VIT)
        load_vit(VisionEncoder(VIT_CONFIG), VIT)

    return raiser


MODELS: dict[str, Raiser] = {
    f"{VIT}: got tensors encoder.gate, expected those of a ViT as timm or Transformers names"
    " them": vit("encoder.gate"),
    f"{VIT}: in the layout of timm: tensor pos_embed is missing; …": vit("cls_token"),
    f"{VIT}: no such file; expected a ViT's weights as safetensors": lambda: load_vit(
        VisionEncoder(VIT_CONFIG), VIT
    ),
    "models/align/tokenizer.json: no such file; expected a model folder with tokenizer.json": (
        lambda: TextTokenizer.load("models/align")
    ),
    "models/align/tokenizer.json: not readable as a tokenizer: …": a_broken_tokenizer,
    "models/pretrain/config.json: got a list, expected an object": captioner(
        lambda folder: (folder / "config.json").write_text("[]")
    ),
    "models/pretrain/config.json: got format 2, expected 1": captioner(settings(format=2)),
    "models/pretrain/config.json: model: got None, expected the model's settings": captioner(
        settings(model=None)
    ),
    "models/pretrain/config.json: model: hidden 65 not divisible by heads 4": captioner(
        model_settings(text_hidden=65)
    ),
    "models/pretrain/config.json: model: missing lm_weight, stem": captioner(
        model_settings(lm_weight=None, stem=None)
    ),
    "models/pretrain/config.json: model: unknown oracle": captioner(model_settings(oracle=True)),
    "models/pretrain/config.json: model: vision_depth: got 'two', expected a valid integer": (
        captioner(model_settings(vision_depth="two"))
    ),
    "models/pretrain/config.json: no such file; expected a model folder with config.json": (
        lambda: load_captioner("models/pretrain")
    ),
    "models/pretrain/config.json: not valid JSON; expected a model's configuration": captioner(
        lambda folder: (folder / "config.json").write_text("{")
    ),
    "models/pretrain/model.safetensors: no such file; expected a model folder with"
    " model.safetensors": captioner(lambda folder: (folder / "model.safetensors").unlink()),
    "models/pretrain/model.safetensors: not readable as safetensors: …": captioner(
        lambda folder: (folder / "model.safetensors").write_bytes(b"no more")
    ),
    "models/pretrain/model.safetensors: tensor decoder.gate is unknown to this architecture": (
        captioner(tensors(lambda values: values.update({"decoder.gate": torch.zeros(1)})))
    ),
    "models/pretrain/model.safetensors: tensor decoder.head.weight is missing": captioner(
        tensors(lambda values: values.pop("decoder.head.weight"))
    ),
    "models/pretrain/model.safetensors: tensor decoder.norm.weight: got shape (3,), expected"
    " (16,)": captioner(
        tensors(lambda values: values.update({"decoder.norm.weight": torch.zeros(3)}))
    ),
    "models/train_vqa/classifier/config.json: head: got {'oracle': True}, which doesn't fit: …": (
        a_head_of_another_version
    ),
    "models/train_vqa/generator/config.json: got a model of kind 'captioner', expected"
    " 'generator'": a_captioner_for_a_generator,
}
