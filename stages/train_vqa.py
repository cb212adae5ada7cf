"""Train one of the two heads that answer questions, from the pretrained model or from scratch.

`python -m stages.train_vqa classifier` or `generator`. Reads `data/{train,val}`,
`models/pretrain/` and the params `seed`, `train_vqa.HEAD`; writes `models/train_vqa/HEAD/`,
`metrics/train_vqa_HEAD.json` and the loss curve.
"""

import sys
from pathlib import Path

import torch

from stages.running.training import run_training, training
from vlm.config import ClassifierConfig, GeneratorConfig, Params
from vlm.data.coverage import answer_coverage, answer_vocabulary
from vlm.data.loading import QuestionBatch, QuestionData
from vlm.data.tables import (
    Questions,
    QuestionTable,
    SceneTable,
    iterate_questions,
    read_questions,
    read_scenes,
)
from vlm.data.tokenizer import TextTokenizer
from vlm.data.windows import SceneWindow, Windows
from vlm.errors import UserError
from vlm.model.folder import load_config, load_parts, save_model
from vlm.model.projector import freeze
from vlm.model.vlm import VLMConfig
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.training.execution import Execution
from vlm.training.objectives import classification, generation
from vlm.training.terms import Objective
from vlm.training.train import train

DATA, PRETRAINED = Path("data"), Path("models/pretrain")
HEADS = ("classifier", "generator")
SPLITS = ("train", "val")


def main(params: Params, head: str) -> None:
    section = head_section(params, head)
    sections = {"seed": params.seed, f"train_vqa.{head}": section}
    inputs = [DATA / "train", DATA / "val", PRETRAINED]
    name = f"train_vqa_{head}"
    with training(name, sections, inputs, section.steps, params.runtime) as how:
        train_vqa(params, head, how)


def train_vqa(params: Params, head: str, how: Execution) -> None:
    section = head_section(params, head)
    tokenizer, config = TextTokenizer.load(PRETRAINED), load_config(PRETRAINED)
    answers, padding, figures = [], 0, {}
    if isinstance(section, GeneratorConfig):
        padding = section.pad_phrases
    else:  # the closed vocabulary comes from train alone
        train_answers = iterate_questions(DATA / "train", "answer")
        answers = answer_vocabulary(train_answers, section.max_answers)
        shares = {
            name: answer_coverage(iterate_questions(DATA / name, "answer"), set(answers))
            for name in SPLITS
        }
        figures = {"answer_coverage": shares}

    def rows(scenes: SceneTable | SceneWindow, asked: QuestionTable) -> QuestionData:
        return QuestionData(scenes, asked, tokenizer, config.max_text_len, answers, padding)

    asked = Questions(DATA / "train")
    data = Windows(
        DATA / "train",
        lambda scenes: rows(scenes, asked.of(scenes.scene_id)),
        params.runtime.picture_memory_mib,
    )
    validation = rows(
        read_scenes(DATA / "val", section.val_pictures),
        read_questions(DATA / "val", section.val_pictures),
    )

    torch.manual_seed(params.seed)
    model, objective, pretrained = make_head(section, config, answers)
    model.vision.checkpoint_activations(params.runtime.activation_checkpointing)
    if section.start == "pretrain":
        load_parts(model, PRETRAINED, pretrained)
    if section.freeze_text:
        freeze(model.text)
    weights = train(
        model.to(how.device),
        objective,
        data,
        validation,
        section,
        how,
        source=DATA,
        seed=params.seed,
        metrics_path=Path(f"metrics/train_vqa_{head}.json"),
        curve_path=Path(f"plots/train_vqa_{head}.tsv"),
        figures=figures,
        augment=section.augment,
    )
    if how.world.is_first:
        folder = Path("models/train_vqa") / head
        save_model(folder, model, weights)
        tokenizer.save(folder)


def head_section(params: Params, head: str) -> ClassifierConfig | GeneratorConfig:
    """The parameters of a head."""
    return params.train_vqa.classifier if head == "classifier" else params.train_vqa.generator


def make_head(
    section: ClassifierConfig | GeneratorConfig, config: VLMConfig, answers: list[str]
) -> tuple[AnswerClassifier | PhraseGenerator, Objective[QuestionBatch], list[str]]:
    """A head with random weights, what it minimises, and the parts that pretraining has too."""
    parts = ["vision", "projector", "text"]
    if isinstance(section, ClassifierConfig):
        classifier = AnswerClassifier(
            config,
            answers,
            section.fusion,
            section.fusion_depth,
            section.head_hidden,
            section.question_frequency,
        )
        return classifier, classification(classifier), parts
    generator = PhraseGenerator(config, section.memory, section.context, section.question_frequency)
    return generator, generation(generator), [*parts, "decoder"]


def chosen_head(arguments: list[str]) -> str:
    """The head named on the command line."""
    if len(arguments) != 1 or arguments[0] not in HEADS:
        got = " ".join(arguments) or "nothing"
        raise UserError(f"head: got {got}, expected {' or '.join(HEADS)}")
    return arguments[0]


if __name__ == "__main__":
    run_training(
        f"train_vqa_{'_'.join(sys.argv[1:])}",
        lambda params: main(params, chosen_head(sys.argv[1:])),
    )
