"""A small world of three shapes, for trainings that several processes do."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vlm.config import OptimizerConfig
from vlm.data.loading import EVERY, CaptionData, QuestionData
from vlm.data.order import Layout
from vlm.data.shards import Ints
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import TextTokenizer
from vlm.model.vlm import VLMConfig
from vlm.training.terms import Objective

PICTURES, BATCH = 24, 8
KINDS = ("plus", "circle", "square")
CAPTIONS = [[f"a {KINDS[i % 3]}", f"one {KINDS[i % 3]}", "one shape"] for i in range(PICTURES)]
SCENES = SceneTable(
    scene_id=np.arange(PICTURES),
    images=np.random.default_rng(0).integers(0, 256, (PICTURES, 1, 16, 16), np.uint8),
    objects=[[] for _ in CAPTIONS],
    captions=CAPTIONS,
    caption_keys=[[KINDS[i % 3]] * 3 for i in range(PICTURES)],
)
TOKENIZER = TextTokenizer.fit([t for texts in CAPTIONS for t in texts] + ["is it yes no maybe"])
CONFIG = VLMConfig(
    image_size=16,
    patch_size=8,
    in_channels=1,
    vision_hidden=16,
    vision_depth=1,
    vision_heads=2,
    text_hidden=16,
    text_heads=2,
    text_depth=1,
    decoder_heads=2,
    projection_hidden=16,
    vocab_size=TOKENIZER.vocab_size,
    max_text_len=8,
)


def section(**changes: Any) -> OptimizerConfig:
    """Ten steps with all there is: accumulation, clipping, a validation each step."""
    values = {
        "steps": 10,
        "batch_size": BATCH,
        "learning_rate": 0.005,
        "final_rate": 0.0,
        "warmup_steps": 2,
        "weight_decay": 0.05,
        "beta2": 0.99,
        "clip_norm": 0.5,
        "accumulate": 2,
        "eval_every": 1,
        "val_pictures": PICTURES,
        "keep": "best",
    }
    return OptimizerConfig(**{**values, **changes})


def captions() -> CaptionData:
    return CaptionData(SCENES, TOKENIZER, 8)


def questions(unasked: int = 0) -> QuestionData:
    """Two questions a picture, of whose answers a half is unknown: that of all odd pictures.

    The last `unasked` pictures have no question.
    """
    scene = np.repeat(np.arange(PICTURES - unasked), 2)
    answers = np.array(
        ["maybe" if s % 2 else ("yes", "no")[i % 2] for i, s in enumerate(scene)], dtype=object
    )
    asked = [f"is it a {KINDS[i % 3]}" for i in range(len(scene))]
    table = QuestionTable(
        question_id=np.arange(len(scene)),
        scene_id=scene,
        scene_index=scene,
        family=np.full(len(scene), "exists", dtype=object),
        question=np.array(asked, dtype=object),
        answer=answers,
        phrase=answers,
    )
    return QuestionData(SCENES, table, TOKENIZER, 8, ["no", "yes"])


@dataclass(frozen=True)
class Seen:
    """A batch that tells which pictures it holds; one number each to learn from."""

    images: Tensor
    counts: dict[str, int]


class Watched:
    """Data that writes down what it was asked for."""

    def __init__(self, poisoned: bool = False) -> None:
        self.seen: list[Tensor] = []
        self.draws: list[Tensor] = []
        self.poisoned = poisoned

    layout = Layout.whole(PICTURES)

    def __len__(self) -> int:
        return PICTURES

    def window(self, groups: Ints) -> "Watched":
        return self

    def batch(self, pictures: Tensor, draws: Tensor | None = None, own: slice = EVERY) -> Seen:
        pictures = pictures[own]
        if draws is not None:
            self.seen.append(pictures)
            self.draws.append(draws[own])
        values = pictures[:, None].double()
        if self.poisoned and len(self.seen) == 4 and draws is not None:
            values = values * torch.nan
        return Seen(values.float(), {"square": len(pictures)})


def squares(model: nn.Module) -> Objective[Any]:
    return Objective(lambda b: {"square": (model(b.images) - 3).square().mean()}, {"square": 1.0})
