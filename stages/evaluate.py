"""Score every model on the test split: answers, phrases, captions, retrieval, and the floors.

Reads `data/{train,test}`, all models and the params `seed`, `data`, `evaluate`; writes
`metrics/evaluate.json`, `plots/evaluate/` and `data/predictions/`.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from stages.runner import run, select_device
from vlm.config import EvaluateConfig, Params, WorldConfig
from vlm.data.loading import CaptionData, QuestionData
from vlm.data.tables import (
    QuestionTable,
    SceneTable,
    read_captions,
    read_objects,
    read_questions,
    read_scenes,
    write_columns,
)
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.floors import AskedColumns, best_guesses
from vlm.evaluation.predicting import (
    Answers,
    Strings,
    caption,
    classify,
    phrase,
    similarity,
)
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
from vlm.files import atomic_path, write_json, write_text
from vlm.model.folder import load_captioner, load_classifier, load_generator
from vlm.reporting.pictures import sample_sheet
from vlm.scenes.captions import parse_caption

TRAIN, TEST = Path("data/train"), Path("data/test")
PRETRAINED, HEADS = Path("models/pretrain"), Path("models/train_vqa")
METRICS, PLOTS = Path("metrics/evaluate.json"), Path("plots/evaluate")
PREDICTIONS = Path("data/predictions")


class Predictions(NamedTuple):
    """What the models say about the test split: (M,) questions, (N,) pictures, (G, G) gallery."""

    answers: Answers
    phrases: Strings
    captions: list[str]
    similarity: np.ndarray


def main(params: Params) -> None:
    section, device = params.evaluate, select_device(params.runtime)
    scenes, questions = read_scenes(TEST), read_questions(TEST)
    predictions = predict(scenes, questions, section, device)

    right_answers = np.asarray(predictions.answers.answer == questions.answer, dtype=np.bool_)
    right_phrases = np.asarray(predictions.phrases == questions.phrase, dtype=np.bool_)
    right_captions = captions_are_exact(predictions.captions, scenes, params.data.world)
    scorer = Scorer(list(questions.family), questions.scene_id, section.resamples, params.seed)
    train_questions = read_questions(TRAIN)
    floors = score_floors(
        scorer,
        asked(train_questions, read_objects(TRAIN)),
        asked(questions, scenes.objects),
    )
    keys = [keys[0] for keys in scenes.caption_keys[: len(predictions.similarity)]]
    metrics: Figures = {
        "pictures": len(scenes),
        "questions": len(questions),
        "floors": floors,
        "classifier": {
            **score_head(scorer, right_answers, floors),
            "answers_outside_vocabulary": answers_outside(questions, train_questions),
        },
        "generator": {
            **score_head(scorer, right_phrases, floors),
            **phrase_bleu(predictions.phrases, questions, train_questions, scorer),
        },
        "caption": {
            **score_proportion("exact", right_captions),
            **score_bleu(
                predictions.captions,
                scenes.captions,
                scenes.scene_id,
                section.resamples,
                params.seed,
            ),
            **caption_floors(scenes),
            "bleu_signature": BLEU_SIGNATURE,
        },
        "retrieval": score_retrieval(predictions.similarity, keys, section.resamples, params.seed),
    }
    write_predictions(predictions, scenes, questions, right_captions)
    write_plots(metrics, predictions, scenes, questions, section.samples)
    write_json(METRICS, metrics)


def predict(
    scenes: SceneTable, questions: QuestionTable, section: EvaluateConfig, device: torch.device
) -> Predictions:
    """Every model over the test split, one model in memory at a time."""
    size = section.batch_size
    classifier = load_classifier(HEADS / "classifier").to(device)
    tokenizer, room = TextTokenizer.load(HEADS / "classifier"), classifier.config.max_text_len
    data = QuestionData(scenes, questions, tokenizer, room, classifier.answers)
    answers = classify(classifier, data, size)
    generator = load_generator(HEADS / "generator").to(device)
    phrases = phrase(generator, data, tokenizer, size)
    captioner = load_captioner(PRETRAINED).to(device)
    pairs = CaptionData(scenes, tokenizer, room)
    captions = caption(captioner, pairs.images, tokenizer, size)
    return Predictions(
        answers, phrases, captions, similarity(captioner, pairs, section.gallery, size)
    )


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


def write_predictions(
    predictions: Predictions, scenes: SceneTable, questions: QuestionTable, exact: Bools
) -> None:
    """Every prediction beside its truth."""
    write_columns(
        PREDICTIONS / "questions.parquet",
        {
            "question_id": questions.question_id,
            "scene_id": questions.scene_id,
            "family": questions.family,
            "question": questions.question,
            "answer": questions.answer,
            "phrase": questions.phrase,
            "classifier_answer": predictions.answers.answer,
            "classifier_confidence": predictions.answers.confidence,
            "generator_phrase": predictions.phrases,
        },
    )
    write_columns(
        PREDICTIONS / "captions.parquet",
        {
            "scene_id": scenes.scene_id,
            "caption": predictions.captions,
            "reference": [captions[0] for captions in scenes.captions],
            "exact": exact,
        },
    )


def write_plots(
    metrics: Figures,
    predictions: Predictions,
    scenes: SceneTable,
    questions: QuestionTable,
    samples: int,
) -> None:
    """What `dvc plots` draws: accuracy by family, answer confusion, sample pictures."""
    heads = [metrics[head]["by_family"] for head in ("classifier", "generator")]
    rows = [f"{name},{heads[0][name]:.6f},{heads[1][name]:.6f}" for name in heads[0]]
    write_text(PLOTS / "by_family.csv", "\n".join(["family,classifier,generator", *rows]) + "\n")
    pairs = zip(questions.answer, predictions.answers.answer, strict=True)
    write_text(
        PLOTS / "confusion.csv", "truth,prediction\n" + "".join(f"{t},{p}\n" for t, p in pairs)
    )

    shown = []  # a question of each picture, another one each time
    for picture in range(min(samples, len(scenes))):
        rows_of_picture = np.flatnonzero(questions.scene_index == picture)
        if len(rows_of_picture):
            shown.append(rows_of_picture[picture % len(rows_of_picture)])
    lines = [
        [
            (questions.question[row], None),
            (f"truth: {questions.answer[row]}", None),
            (
                predictions.answers.answer[row],
                predictions.answers.answer[row] == questions.answer[row],
            ),
            (predictions.phrases[row], predictions.phrases[row] == questions.phrase[row]),
        ]
        for row in shown
    ]
    with atomic_path(PLOTS / "samples.png") as partial:
        partial.write_bytes(sample_sheet(scenes.images[questions.scene_index[shown]], lines))


if __name__ == "__main__":
    run("evaluate", main)
