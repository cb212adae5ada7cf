"""Score every model on the test split: answers, phrases, captions, retrieval, and the floors.

Reads `data/{train,test}`, all models and the params `seed`, `data`, `evaluate`; writes
`metrics/evaluate.json`, `plots/evaluate/` and `data/predictions/`.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from stages.runner import run, select_device
from vlm.config import DataConfig, EvaluateConfig, Params, WorldConfig
from vlm.data.drawn import draw
from vlm.data.loading import CaptionData
from vlm.data.tables import (
    QuestionTable,
    SceneTable,
    read_captions,
    read_objects,
    read_questions,
    read_scenes,
)
from vlm.evaluation.floors import AskedColumns, best_guesses
from vlm.evaluation.fresh import count_shared, score_fresh
from vlm.evaluation.heads import Heads
from vlm.evaluation.outputs import Predictions, write_plots, write_predictions
from vlm.evaluation.predicting import Floats, Strings, caption, similarity
from vlm.evaluation.scoring import (
    BLEU_SIGNATURE,
    Bools,
    Figures,
    Scorer,
    score_bleu,
    score_floors,
    score_head,
    score_proportion,
    score_retrieval,
)
from vlm.evaluation.text_metrics import corpus_bleu4
from vlm.evaluation.word_order import score_word_order
from vlm.files import write_json
from vlm.model.folder import load_captioner
from vlm.scenes.captions import parse_caption

TRAIN, TEST = Path("data/train"), Path("data/test")
PRETRAINED, HEADS = Path("models/pretrain"), Path("models/train_vqa")
METRICS, PLOTS = Path("metrics/evaluate.json"), Path("plots/evaluate")
PREDICTIONS = Path("data/predictions")


def main(params: Params) -> None:
    section, seed, device = params.evaluate, params.seed, select_device(params.runtime)
    scenes, questions = read_scenes(TEST), read_questions(TEST)
    heads = Heads.load(HEADS, section.batch_size, device)
    replies = heads.reply(scenes, questions)
    right = replies.right(questions)
    captions, gallery = describe(scenes, heads, section, device)
    exact = captions_are_exact(captions, scenes, params.data.world)

    train_questions = read_questions(TRAIN)
    train = asked(train_questions, read_objects(TRAIN))
    scorer = Scorer(list(questions.family), questions.scene_id, section.resamples, seed)
    floors = score_floors(scorer, train, asked(questions, scenes.objects))
    keys = [keys[0] for keys in scenes.caption_keys[: len(gallery)]]
    metrics: Figures = {
        "pictures": len(scenes),
        "questions": len(questions),
        "floors": floors,
        "classifier": {
            **score_head(scorer, right["classifier"], floors),
            "answers_outside_vocabulary": answers_outside(questions, train_questions),
        },
        "generator": {
            **score_head(scorer, right["generator"], floors),
            **phrase_bleu(replies.phrases, questions, train_questions, scorer),
        },
        "caption": {
            **score_proportion("exact", exact),
            **score_bleu(captions, scenes.captions, scenes.scene_id, section.resamples, seed),
            **caption_floors(scenes),
            "bleu_signature": BLEU_SIGNATURE,
        },
        "retrieval": score_retrieval(gallery, keys, section.resamples, seed),
        "word_order": score_word_order(heads, scenes, questions, replies, scorer, floors),
    }
    if section.fresh_scenes:
        metrics["fresh"] = fresh_figures(heads, params.data, section, seed, train)
    write_predictions(PREDICTIONS, Predictions(replies, captions, exact), scenes, questions)
    write_plots(PLOTS, metrics, replies, scenes, questions, section.samples)
    write_json(METRICS, metrics)


def describe(
    scenes: SceneTable, heads: Heads, section: EvaluateConfig, device: torch.device
) -> tuple[list[str], Floats]:
    """The pretrained model's captions, and (G, G) how well the gallery's captions fit."""
    captioner = load_captioner(PRETRAINED).to(device)
    pairs = CaptionData(scenes, heads.tokenizer, heads.max_length)
    captions = caption(captioner, pairs.images, heads.tokenizer, section.batch_size)
    return captions, similarity(captioner, pairs, section.gallery, section.batch_size)


def fresh_figures(
    heads: Heads, data: DataConfig, section: EvaluateConfig, seed: int, train: AskedColumns
) -> Figures:
    """Both heads on scenes that no split holds, drawn in memory."""
    scenes, questions = draw(data, seed, "fresh", section.fresh_scenes).tables()
    scorer = Scorer(list(questions.family), questions.scene_id, section.resamples, seed)
    right = heads.reply(scenes, questions).right(questions)
    return {
        "scenes": len(scenes),
        "questions": len(questions),
        "pictures_also_in_train": count_shared(scenes.images, read_scenes(TRAIN).images),
        **score_fresh(scorer, right, train, asked(questions, scenes.objects)),
    }


def captions_are_exact(captions: Sequence[str], scenes: SceneTable, world: WorldConfig) -> Bools:
    """Whether each caption, parsed back, states exactly the scene's facts."""
    truths = [keys[0] for keys in scenes.caption_keys]
    return np.array(
        [parse_caption(c, world) == key for c, key in zip(captions, truths, strict=True)],
        dtype=np.bool_,
    )


def asked(questions: QuestionTable, objects: Sequence[Sequence[dict]]) -> AskedColumns:
    """What the floors see: question, answer, and the shapes and colours of the scene."""
    facts = [tuple(sorted((o["shape"], o["color"]) for o in scene)) for scene in objects]
    return AskedColumns(
        list(questions.question),
        list(questions.answer),
        list(questions.family),
        [facts[scene] for scene in questions.scene_index],
    )


def answers_outside(questions: QuestionTable, train: QuestionTable) -> float:
    """The share of test questions whose answer train never gives; no classifier gets them."""
    known = set(train.answer)
    return float(np.mean([answer not in known for answer in questions.answer]))


def phrase_bleu(
    phrases: Strings, questions: QuestionTable, train: QuestionTable, scorer: Scorer
) -> Figures:
    """Corpus BLEU-4 of the phrases; beside it, that of the commonest phrase to each question."""
    references = [[text] for text in questions.phrase]
    guesses = best_guesses(list(train.question), list(train.phrase), list(questions.question))
    floor = corpus_bleu4(
        [guess.split() for guess in guesses], [[text.split()] for text in questions.phrase]
    )
    return {**scorer.bleu(list(phrases), references), "bleu4_floor": floor}


def caption_floors(scenes: SceneTable) -> Figures:
    """What one scores with train's commonest caption for every picture."""
    captions, keys = read_captions(TRAIN)
    common = Counter(c for texts in captions for c in texts).most_common(1)[0][0]
    key = Counter(keys[0] for keys in keys).most_common(1)[0][0]
    exact = np.mean([keys[0] == key for keys in scenes.caption_keys])
    wanted = [[text.split() for text in texts] for texts in scenes.captions]
    bleu = corpus_bleu4([common.split()] * len(scenes), wanted)
    return {"exact_floor": float(exact), "bleu4_floor": bleu}


if __name__ == "__main__":
    run("evaluate", main)
