"""Training from disk: the same weights whether the pictures fit memory or not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shared_data import CONFIG, PICTURES, SCENES, TOKENIZER, captions, questions, section
from torch import Tensor, nn

from vlm.data import order, writing
from vlm.data.loading import CaptionData, QuestionData
from vlm.data.order import PictureOrder
from vlm.data.tables import Questions
from vlm.data.windows import Windows
from vlm.data.writing import write_questions, write_scenes
from vlm.errors import InterruptedRunError
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.training.checkpoint import Checkpoints
from vlm.training.execution import Execution
from vlm.training.objectives import classification, generation, pretraining
from vlm.training.train import train
from vlm.training.vision_language import VisionLanguageModel

STEPS, BATCH = 14, 4
STOP = 9  # in the second epoch


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small world on disk, in row groups of two pictures and windows of a few groups."""
    monkeypatch.setattr(writing, "GROUP_BYTES", 500)
    monkeypatch.setattr(order, "WINDOW_BYTES", 4000)
    monkeypatch.setattr(order, "WINDOW_BATCHES", 2)
    folder = tmp_path / "data" / "train"
    write_scenes(folder, [SCENES.images], SCENES.objects, SCENES.captions, SCENES.caption_keys)
    scene = np.repeat(np.arange(PICTURES), 2)
    asked = [f"is it a {kind}" for kind in ("circle", "plus", "square", "circle")] * 12
    write_questions(folder, scene, ["f"] * 48, asked, ["yes", "no"] * 24, ["no", "yes"] * 24)
    return folder


def pairs(folder: Path, memory: int) -> tuple[nn.Module, Any, Any, Any]:
    model = VisionLanguageModel(CONFIG)
    data = Windows(folder, lambda scenes: CaptionData(scenes, TOKENIZER, 8), memory)
    return model, pretraining(model, mask_equivalent=True), data, captions()


def _asked(folder: Path, memory: int) -> Windows[QuestionData]:
    asked = Questions(folder)
    return Windows(
        folder,
        lambda s: QuestionData(s, asked.of(s.scene_id), TOKENIZER, 8, ["no", "yes"]),
        memory,
    )


def answers(folder: Path, memory: int) -> tuple[nn.Module, Any, Any, Any]:
    model = AnswerClassifier(CONFIG, ["no", "yes"])
    return model, classification(model), _asked(folder, memory), questions()


def phrases(folder: Path, memory: int) -> tuple[nn.Module, Any, Any, Any]:
    model = PhraseGenerator(CONFIG)
    return model, generation(model), _asked(folder, memory), questions()


def weights(
    make: Callable[[Path, int], tuple[nn.Module, Any, Any, Any]],
    folder: Path,
    memory: int,
    how: Execution | None = None,
) -> dict[str, Tensor]:
    """Those after a training, by name."""
    torch.manual_seed(0)
    model, objective, data, validation = make(folder, memory)
    assert (data.images is None) == (memory == 0)
    assert len(PictureOrder(data.layout, BATCH, 3).windows(0)) > 1
    return train(
        model,
        objective,
        data,
        validation,
        section(steps=STEPS, batch_size=BATCH, eval_every=7, keep="last"),
        how or Execution(),
        source=folder.parent,
        seed=3,
        metrics_path=folder / "m.json",
        curve_path=folder / "c.tsv",
    )


@pytest.mark.parametrize("make", [pairs, answers, phrases])
def test_weights_are_the_same_whether_pictures_fit_or_not(split: Path, make: Any):
    held, streamed = weights(make, split, 1), weights(make, split, 0)
    for name, tensor in held.items():
        assert torch.equal(streamed[name], tensor), name


def test_a_run_from_memory_is_taken_up_by_one_from_disk(split: Path, tmp_path: Path):
    straight = weights(pairs, split, 1)
    asks = iter(range(100))
    saved = Checkpoints(tmp_path / "resume", 1e9)
    halfway = Execution(checkpoints=saved, should_stop=lambda: next(asks) == STOP)
    with pytest.raises(InterruptedRunError):
        weights(pairs, split, 1, halfway)
    resumed: list[int] = []
    rest = weights(pairs, split, 0, Execution(checkpoints=saved, resumed=resumed.append))
    assert resumed == [STOP]
    for name, tensor in straight.items():
        assert torch.equal(rest[name], tensor), name
