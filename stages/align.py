"""Align the projector: frozen vision encoder, frozen text table, cosine loss.

Reads `data/{train,val}`, weights in `data/external` where `model.vision.pretrained` names some, and
the params `seed`, `model`, `align`; writes `models/align/` (encoder,
projector, text side, tokenizer), `metrics/align.json` and the loss curve.
"""

from collections.abc import Iterator
from pathlib import Path

import torch

from stages.running.training import run_training, training
from vlm.config import Params
from vlm.data.coverage import TextCoverage, text_coverage
from vlm.data.loading import CaptionData
from vlm.data.tables import (
    SceneTable,
    iterate_captions,
    iterate_questions,
    read_scenes,
    row_of_text,
)
from vlm.data.tokenizer import LongTextError, TextTokenizer
from vlm.data.windows import SceneWindow, Windows
from vlm.errors import UserError
from vlm.model.build import vlm_config
from vlm.model.folder import save_model
from vlm.model.pretrained import load_vit
from vlm.model.projector import freeze
from vlm.model.vlm import DualEncoder
from vlm.training.execution import Execution
from vlm.training.objectives import alignment, frozen_features
from vlm.training.train import train

DATA = Path("data")
MODEL = Path("models/align")
METRICS, CURVE = Path("metrics/align.json"), Path("plots/align.tsv")


def main(params: Params) -> None:
    sections = {"seed": params.seed, "model": params.model, "align": params.align}
    inputs = [DATA / "train", DATA / "val"]
    if params.model.vision.pretrained is not None:
        inputs.append(Path(params.model.vision.pretrained))
    with training("align", sections, inputs, params.align.steps, params.runtime) as how:
        align(params, how)


def align(params: Params, how: Execution) -> None:
    text, length = params.model.text, params.model.text.max_length
    # The one vocabulary of all later stages: every text that training reads.
    tokenizer = TextTokenizer.fit(texts(DATA / "train"), text.tokenizer, text.max_vocab)
    if text.on_long == "cut":
        tokenizer.cut_at(length)  # which the tokenizer's file says to all later stages
    covered = {name: _covered(DATA / name, tokenizer, length) for name in ("train", "val")}

    def pairs(scenes: SceneTable | SceneWindow) -> CaptionData:
        return CaptionData(scenes, tokenizer, length)

    data = Windows(DATA / "train", pairs, params.runtime.picture_memory_mib)
    validation = pairs(read_scenes(DATA / "val", params.align.val_pictures))

    torch.manual_seed(params.seed)
    channels, size, _ = data.picture_shape
    model = DualEncoder(vlm_config(params.model, size, channels, tokenizer.vocab_size))
    if params.model.vision.pretrained is not None:
        load_vit(model.vision, params.model.vision.pretrained)
    freeze(model.vision)
    freeze(model.text)
    model.to(how.device)
    # Where the run comes round to a picture again, its features are worth keeping.
    if data.images is not None and params.align.steps * params.align.batch_size > len(data):
        data.features = frozen_features(model.vision, data.images, how)
    validation.features = frozen_features(model.vision, validation.images, how)
    weights = train(
        model,
        alignment(model),
        data,
        validation,
        params.align,
        how,
        source=DATA,
        seed=params.seed,
        metrics_path=METRICS,
        curve_path=CURVE,
        figures={
            name: {split: figures[name] for split, figures in covered.items()}
            for name in ("unknown_words", "texts_cut")
        },
    )
    if how.world.is_first:
        save_model(MODEL, model, weights)
        tokenizer.save(MODEL)


def texts(split: Path) -> Iterator[str]:
    """Every text of a split that training reads."""
    yield from iterate_captions(split)
    yield from iterate_questions(split, "question")
    yield from iterate_questions(split, "phrase")


def _covered(split: Path, tokenizer: TextTokenizer, max_length: int) -> TextCoverage:
    """How much of the texts the model can read: what is too long stops now, not after pretraining.

    Raises:
        UserError: the longest text's row, where it is too long and none is cut.
    """
    try:
        return text_coverage(texts(split), tokenizer, max_length)
    except LongTextError as error:
        raise UserError(f"{split}: {row_of_text(split, error.text)}: {error}") from None


if __name__ == "__main__":
    run_training("align", main)
