"""Align the projector: frozen vision encoder, frozen text table, cosine loss.

Reads `data/{train,val}`, weights in `data/external` where `model.vision.pretrained` names some, and
the params `seed`, `model`, `align`; writes `models/align/` (encoder,
projector, text side, tokenizer), `metrics/align.json` and the loss curve.
"""

from pathlib import Path

import torch

from stages.runner import progress, run, select_device
from vlm.config import Params
from vlm.data.loading import CaptionData
from vlm.data.tables import read_questions, read_scenes
from vlm.data.tokenizer import TextTokenizer
from vlm.model.build import vlm_config
from vlm.model.folder import save_model
from vlm.model.pretrained import load_vit
from vlm.model.projector import freeze
from vlm.model.vlm import DualEncoder
from vlm.training.objectives import alignment
from vlm.training.train import train

DATA = Path("data")
MODEL = Path("models/align")
METRICS, CURVE = Path("metrics/align.json"), Path("plots/align.tsv")


def main(params: Params) -> None:
    device = select_device(params.runtime)
    scenes, questions = read_scenes(DATA / "train"), read_questions(DATA / "train")
    # The one vocabulary of all later stages: every text of the training split.
    captions = [caption for captions in scenes.captions for caption in captions]
    tokenizer = TextTokenizer.fit([*captions, *questions.question, *questions.phrase])
    length = params.model.text.max_length
    data = CaptionData(scenes, tokenizer, length)
    validation = CaptionData(read_scenes(DATA / "val"), tokenizer, length)

    torch.manual_seed(params.seed)
    channels, size = scenes.images.shape[1:3]
    model = DualEncoder(vlm_config(params.model, size, channels, tokenizer.vocab_size)).to(device)
    if params.model.vision.pretrained is not None:
        load_vit(model.vision, params.model.vision.pretrained)
    freeze(model.vision)
    freeze(model.text)
    train(
        model,
        alignment(model),
        data,
        validation,
        params.align,
        source=DATA,
        seed=params.seed,
        device=device,
        metrics_path=METRICS,
        curve_path=CURVE,
        report=progress("align", params.align.steps, params.runtime),
    )
    save_model(MODEL, model)
    tokenizer.save(MODEL)


if __name__ == "__main__":
    run("align", main)
