"""Pretrain on captions: InfoNCE and next-token loss; everything learns.

Reads `data/{train,val}`, `models/align/` (which says what the model is) and the params `seed`,
`pretrain`; writes `models/pretrain/`, `metrics/pretrain.json` and the loss curve.
"""

import math
from dataclasses import replace
from pathlib import Path

import torch

from stages.running.training import run_training, training
from vlm.config import Params
from vlm.data.loading import CaptionData
from vlm.data.tables import SceneTable, read_scenes
from vlm.data.tokenizer import TextTokenizer
from vlm.data.windows import SceneWindow, Windows
from vlm.model.folder import load_config, load_parts, save_model
from vlm.training.execution import Execution
from vlm.training.objectives import pretraining
from vlm.training.train import train
from vlm.training.vision_language import VisionLanguageModel

DATA = Path("data")
ALIGNED, MODEL = Path("models/align"), Path("models/pretrain")
METRICS, CURVE = Path("metrics/pretrain.json"), Path("plots/pretrain.tsv")


def main(params: Params) -> None:
    sections = {"seed": params.seed, "pretrain": params.pretrain}
    inputs = [DATA / "train", DATA / "val", ALIGNED]
    with training("pretrain", sections, inputs, params.pretrain.steps, params.runtime) as how:
        pretrain(params, how)


def pretrain(params: Params, how: Execution) -> None:
    section = params.pretrain
    tokenizer = TextTokenizer.load(ALIGNED)
    config = replace(
        load_config(ALIGNED),
        lm_weight=section.lm_weight,
        init_log_tau=math.log(1 / section.init_temperature),
    )

    def pairs(scenes: SceneTable | SceneWindow) -> CaptionData:
        return CaptionData(scenes, tokenizer, config.max_text_len)

    data = Windows(DATA / "train", pairs, params.runtime.picture_memory_mib)
    validation = pairs(read_scenes(DATA / "val", section.val_pictures))

    torch.manual_seed(params.seed)
    model = VisionLanguageModel(config)
    model.vision.checkpoint_activations(params.runtime.activation_checkpointing)
    # A fresh encoder would make the aligned projector meaningless.
    load_parts(model, ALIGNED, ["vision", "projector", "text"])
    weights = train(
        model.to(how.device),
        pretraining(model, section.mask_equivalent, how.world),
        data,
        validation,
        section,
        how,
        source=DATA,
        seed=params.seed,
        metrics_path=METRICS,
        curve_path=CURVE,
        augment=section.augment,
    )
    if how.world.is_first:
        save_model(MODEL, model, weights)
        tokenizer.save(MODEL)


if __name__ == "__main__":
    run_training("pretrain", main)
