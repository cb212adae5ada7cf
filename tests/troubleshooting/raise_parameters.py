"""What makes each error of the page's section on parameters appear."""

from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from error_page import Raiser
from project import ROOT, read_preset

from vlm.app import cli
from vlm.config import Params, load_params, parse_params
from vlm.data.order import Layout, PictureOrder
from vlm.data.tokenizer import TextTokenizer
from vlm.model.attention import SelfAttention
from vlm.model.patch_embed import ConvStem, PatchEmbed, sinusoidal_2d
from vlm.scenes.scene import CELLS, cell_name


def tiny(**changes: Any) -> Params:
    """The tiny preset with some keys changed; `__` stands for the dot between them."""
    values = read_preset("tiny")
    for name, value in changes.items():
        *sections, key = name.split("__")
        reduce(getitem, sections, values)[key] = value
    return parse_params(values)


def given(**changes: Any) -> Raiser:
    """Checks the tiny preset so changed."""

    def check() -> None:
        tiny(**changes)

    return check


def world(**changes: Any) -> Raiser:
    """The same for keys of `data.world`."""
    return given(**{f"data__world__{key}": value for key, value in changes.items()})


def without_a_key() -> None:
    values = read_preset("tiny")
    del values["pretrain"]["lm_weight"]
    parse_params(values)


def written(text: str) -> Raiser:
    """Reads a `params.yaml` that holds `text`."""

    def read() -> None:
        Path("params.yaml").write_text(text)
        load_params("params.yaml")

    return read


def a_folder() -> None:
    Path("params.yaml").mkdir()
    load_params("params.yaml")


def weights_that_are_not_there() -> None:
    text = (ROOT / "presets/tiny.yaml").read_text()
    for old, new in {
        "stem: conv": "stem: patch",
        "position: sinusoidal_2d": "position: learned",
        "pretrained: null": "pretrained: data/external/vit.safetensors",
    }.items():
        assert old in text
        text = text.replace(old, new)
    Path("params.yaml").write_text(text)
    cli.check(Path("params.yaml"))


PARAMETERS: dict[str, Raiser] = {
    "model.vision.pretrained: got data/external/vit.safetensors, expected a file that is there": (
        weights_that_are_not_there
    ),
    "train_vqa.generator.pad_phrases: got 40, expected at most model.text.max_length 32": given(
        train_vqa__generator__pad_phrases=40
    ),
    "align.learning_rate: got 0.0, expected greater than 0": given(align__learning_rate=0.0),
    "align: accumulate 33 exceeds batch_size 32": given(align__accumulate=33),
    "align: got None, expected a section": given(align=None),
    "align: warmup_steps 21 exceeds steps 20": given(align__warmup_steps=21),
    "benchmark_kv_cache: lengths [8, 8] holds a size twice": given(
        benchmark_kv_cache__lengths=[8, 8]
    ),
    "batch_size (300) cannot exceed corpus size (200)": lambda: PictureOrder(
        Layout.whole(200), 300, 0
    ),
    "conv stem needs patch_size a power of two, got 12": lambda: ConvStem(24, 12, 1, 16),
    "data.families.exist: unknown; did you mean exists?": given(data__families={"exist": 1}),
    "data.families.relation has no question to ask with data.world.shapes ['plus'],"
    " expected at least two shapes": world(shapes=["plus"], held_out=[]),
    "data.world.held_out: got every cell for plus, expected one left for training": world(
        held_out=[f"plus@{cell_name(cell)}" for cell in CELLS]
    ),
    "data.world.held_out: got plus@top-rigth, expected SHAPE@CELL with a shape of plus, circle"
    " and a cell of …": world(held_out=["plus@top-rigth"]),
    "data.world.min_radius 1: plus and square look the same at radius 1,"
    " expected at least 2": world(shapes=["plus", "square"], min_radius=1),
    "data.world.shapes: got [], expected at least 1 item": world(shapes=[]),
    "data.world: colors ['red', 'blue'] need channels 3; with channels 1 only [white]": world(
        colors=["red", "blue"]
    ),
    "data.world: colors ['red', 'red'] holds a color twice": world(
        channels=3, colors=["red", "red"]
    ),
    "data.own.path: got '/home/me', expected a path like data/external/NAME": given(
        data__own__path="/home/me"
    ),
    "data.own: val_share 0.6 and test_share 0.5 leave train nothing": given(
        data__own__val_share=0.6, data__own__test_share=0.5
    ),
    "evaluate.fresh_scenes: got 100 with data.source imagefolder, expected 0: only scenes can be"
    " drawn anew": given(
        data__source="imagefolder",
        evaluate__fresh_scenes=100,
        model__vision__pixel_mean=[0.5],
    ),
    "pretrain.augment.shift: got 64, expected less than the picture's 64 pixels": given(
        data__source="imagefolder",
        model__vision__pixel_mean=[0.5],
        pretrain__augment__shift=64,
    ),
    "train_vqa.classifier.augment.flip: got True, expected it off: a flipped picture makes"
    " questions of the families position, relation untrue": given(
        train_vqa__classifier__augment__flip=True
    ),
    "train_vqa.generator.augment.shift: got 5, expected at most 2, data.world.margin less"
    " max_radius: objects would leave the picture": given(
        data__families={"count": 1.0}, train_vqa__generator__augment__shift=5
    ),
    "data.world: margin 16 leaves no room in image_size 32": world(margin=16),
    "data.world: max_radius 16 exceeds image_size 32 / 2": world(max_radius=16),
    "data.world: min_objects 4 exceeds max_objects 3": world(min_objects=4),
    "data.world: min_radius 5 exceeds max_radius 4": world(min_radius=5),
    "data.world: shapes ['plus', 'plus'] holds a shape twice": world(shapes=["plus", "plus"]),
    "hidden 65 not divisible by heads 4": lambda: SelfAttention(65, 4),
    "max_vocab 100 is too small, expected at least 260 with tokenizer bpe": lambda: (
        TextTokenizer.fit([], "bpe", 100)
    ),
    "model.vision.pixel_mean: got 2 values, expected 1 or 3, one a channel": given(
        data__world__channels=3, model__vision__pixel_mean=[0.5, 0.5]
    ),
    "model.vision.pretrained: got 'vit.safetensors', expected a path like"
    " data/external/NAME.safetensors": given(model__vision__pretrained="vit.safetensors"),
    "model.vision: stem: got conv, expected patch with pretrained weights": given(
        model__vision__pretrained="data/external/vit.safetensors"
    ),
    "model.text.max_length: got 24, expected at least 25, the longest text of this world with"
    " its begin and end marks": given(model__text__max_length=24),
    "params.yaml: empty, expected sections": written(""),
    "params.yaml: Is a directory; expected a parameter file": a_folder,
    "params.yaml: line 2: duplicate key seed": written("seed: 0\nseed: 1\n"),
    "params.yaml: no such file; expected a parameter file": lambda: load_params("params.yaml"),
    "params.yaml: not valid YAML: …": written("seed: [0\n"),
    "params: got list, expected sections": written("- seed\n"),
    "patch_size 15 must divide image_size 224": lambda: PatchEmbed(224, 15),
    "pretrain.lm_weight: missing": without_a_key,
    "runtime.colour: unknown; expected one of …": given(runtime__colour=True),
    "runtime.device: got 'gpu', expected 'auto', 'cpu' or 'cuda'": given(runtime__device="gpu"),
    "sinusoidal_2d dim must be divisible by 4, got 30": lambda: sinusoidal_2d(2, 2, 30),
    "train_vqa.classifier.freeze_text: got 'yes', expected a valid boolean": given(
        train_vqa__classifier__freeze_text="yes"
    ),
    "train_vqa.classifier.leraning_rate: unknown; did you mean learning_rate?": given(
        train_vqa__classifier__leraning_rate=0.001
    ),
}

# These rules hold for the library's classes too, which can't know the section.
RULES: dict[str, Raiser] = {
    "align: batch_size (513) cannot exceed corpus size (512)": given(align__batch_size=513),
    "model.text: max_vocab 100 is too small, expected at least 260 with tokenizer bpe": given(
        model__text__max_vocab=100, model__text__tokenizer="bpe"
    ),
    "model.vision: conv stem needs patch_size a power of two, got 12": given(
        model__vision__patch_size=12
    ),
    "model.vision: hidden 30 not divisible by heads 4": given(model__vision__hidden=30),
    "model.vision: sinusoidal_2d dim must be divisible by 4, got 30": given(
        model__vision__hidden=30, model__vision__heads=2
    ),
    "pretrain.augment.turn: got True, expected it off: a turned picture makes captions"
    " untrue": given(pretrain__augment__turn=True),
    "train_vqa.generator.augment.flip: got True, expected it off: a flipped picture makes questions"
    " untrue": given(data__source="clevr", train_vqa__generator__augment__flip=True),
    "patch_size 5 must divide image_size 32": given(
        model__vision__patch_size=5, model__vision__stem="patch"
    ),
}
