"""Align the projector: frozen vision encoder, frozen text table, cosine loss.

Reads `data/{train,val}`, weights in `data/external` where `model.vision.pretrained` names some, and
the params `seed`, `model`, `align`; writes `models/align/` (encoder,
projector, text side, tokenizer), `metrics/align.json` and the loss curve.
"""

from pathlib import Path

import torch

from stages.running.training import run_training, training
from vlm.config import Params
from vlm.data.coverage import split_texts, text_coverage
from vlm.data.loading import CaptionData
from vlm.data.tables import read_questions, read_scenes
from vlm.data.tokenizer import TextTokenizer
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
    scenes, questions = read_scenes(DATA / "train"), read_questions(DATA / "train")
    val_scenes, val_questions = read_scenes(DATA / "val"), read_questions(DATA / "val")
    text, length = params.model.text, params.model.text.max_length
    # The one vocabulary of all later stages: every text of the training split.
    told = split_texts(scenes.captions, questions)
    tokenizer = TextTokenizer.fit(told, text.tokenizer, text.max_vocab)
    if text.on_long == "cut":
        tokenizer.cut_at(length)  # which the tokenizer's file says to all later stages
    data = CaptionData(scenes, tokenizer, length)
    validation = CaptionData(val_scenes, tokenizer, length)
    covered = {
        "train": text_coverage(split_texts(scenes.captions, questions), tokenizer),
        "val": text_coverage(split_texts(val_scenes.captions, val_questions), tokenizer),
    }

    torch.manual_seed(params.seed)
    channels, size = scenes.images.shape[1:3]
    model = DualEncoder(vlm_config(params.model, size, channels, tokenizer.vocab_size))
    if params.model.vision.pretrained is not None:
        load_vit(model.vision, params.model.vision.pretrained)
    freeze(model.vision)
    freeze(model.text)
    model.to(how.device)
    # Where the run comes round to a picture again, its features are worth keeping.
    if params.align.steps * params.align.batch_size > len(data):
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


if __name__ == "__main__":
    run_training("align", main)
