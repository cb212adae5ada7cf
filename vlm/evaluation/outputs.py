"""What evaluation leaves beside its figures: every prediction, and what `dvc plots` draws."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np

from vlm.data.tables import QuestionTable, SceneTable, write_columns
from vlm.evaluation.breakdowns import NO_NUMBER
from vlm.evaluation.calibration import reliability
from vlm.evaluation.confidence import Calibrated
from vlm.evaluation.heads import HEADS, Replies
from vlm.evaluation.retrieval import FirstHits
from vlm.evaluation.scoring import Bools, Figures
from vlm.files import atomic_path, write_text
from vlm.reporting.pictures import sample_sheet


@dataclass(frozen=True, eq=False)
class Predictions:
    """What the models say about a split: M questions, N pictures."""

    replies: Replies
    captions: list[str]  # (N,)
    exact: Bools  # (N,), whether each caption states exactly the scene's facts
    found: Mapping[str, FirstHits]  # by direction, of the gallery: the first of the N


def write_predictions(
    folder: Path,
    predictions: Predictions,
    scenes: SceneTable,
    questions: QuestionTable,
    names: Sequence[str | None],
) -> None:
    """Every prediction beside its truth; R@1 of a picture beyond the gallery is null.

    Where pictures have names (one for each scene of the split), every question says that of its.
    """
    named = {}
    if any(name is not None for name in names):
        named["picture"] = [names[scene] for scene in questions.scene_index]
    answers, phrases = predictions.replies.answers, predictions.replies.phrases
    write_columns(
        folder / "questions.parquet",
        {
            "question_id": questions.question_id,
            "scene_id": questions.scene_id,
            **named,
            "family": questions.family,
            "question": questions.question,
            "answer": questions.answer,
            "phrase": questions.phrase,
            "classifier_answer": answers.answer,
            "classifier_confidence": answers.confidence,
            "generator_phrase": phrases,
            "generator_confidence": predictions.replies.spoken.confidence,
        },
    )
    beyond = len(scenes) - len(predictions.found["image_to_text"].ahead)
    write_columns(
        folder / "captions.parquet",
        {
            "scene_id": scenes.scene_id,
            "caption": predictions.captions,
            "reference": [captions[0] for captions in scenes.captions],
            "exact": predictions.exact,
            **{
                f"{direction}_R@1": [*hits.within(1).tolist(), *[None] * beyond]
                for direction, hits in predictions.found.items()
            },
        },
    )


def write_plots(
    folder: Path,
    metrics: Figures,
    replies: Replies,
    scenes: SceneTable,
    questions: QuestionTable,
    samples: int,
) -> None:
    """Accuracy by family, answer confusion, and a sheet of sample pictures."""
    heads = [metrics[head]["by_family"] for head in HEADS]
    rows = [[name, *(each[name] for each in heads)] for name in heads[0]]
    _write_csv(folder / "by_family.csv", ["family", *HEADS], rows)
    answers, phrases = replies.answers.answer, replies.phrases
    pairs = zip(questions.answer, answers, strict=True)
    _write_csv(folder / "confusion.csv", ["truth", "prediction"], pairs)

    shown = []  # a question of each picture, another one each time
    for picture in np.unique(questions.scene_index)[:samples]:
        rows_of_picture = np.flatnonzero(questions.scene_index == picture)
        shown.append(rows_of_picture[picture % len(rows_of_picture)])
    lines = [
        [
            (questions.question[row], None),
            (f"truth: {questions.answer[row]}", None),
            (f"classifier: {answers[row]}", answers[row] == questions.answer[row]),
            (f"generator: {phrases[row]}", phrases[row] == questions.phrase[row]),
        ]
        for row in shown
    ]
    with atomic_path(folder / "samples.png") as partial:
        partial.write_bytes(sample_sheet(scenes.images[questions.scene_index[shown]], lines))


def write_curves(
    folder: Path,
    metrics: Figures,
    calibrated: Mapping[str, Calibrated],
    right: Mapping[str, Bools],
) -> None:
    """What `dvc plots` draws of the probes: a table each, where there is such a figure.

    Confidence against accuracy, a point a bin that has any prediction; accuracy by number of
    objects; errors of counting by size; and what follows each change of picture or question.
    """
    for head, found in calibrated.items():
        for name, confidence in (("before", found.before), ("after", found.after)):
            bins = reliability(confidence, right[head])
            rows = [
                [mean, accuracy, number]
                for number, mean, accuracy in zip(*bins, strict=True)
                if number
            ]
            path = folder / f"calibration_{head}_{name}.csv"
            _write_csv(path, ["confidence", "accuracy", "questions"], rows)
    if "by_objects" in metrics:
        by_objects = metrics["by_objects"]
        shares = [by_objects[head]["by_number"] for head in HEADS]
        floor = by_objects["question_only_floor"]
        rows = [[number, *(each[number] for each in shares), floor[number]] for number in shares[0]]
        _write_csv(folder / "by_objects.csv", ["objects", *HEADS, "question_only"], rows)
    if "counting" in metrics:
        errors = [metrics["counting"][head]["errors"] for head in HEADS]
        sizes = sorted({size for each in errors for size in each}, key=_size)
        rows = [[size, *(each.get(size, 0.0) for each in errors)] for size in sizes]
        _write_csv(folder / "counting.csv", ["error", *HEADS], rows)
    if "probes" not in metrics:
        return
    rows = [
        [name, *(figures[head].get("follows", figures[head].get("holds")) for head in HEADS)]
        for name, figures in metrics["probes"].items()
    ]
    _write_csv(folder / "probes.csv", ["probe", *HEADS], rows)


def _size(name: str) -> tuple[bool, int]:
    """Errors of counting in order, what is no number last."""
    return (True, 0) if name == NO_NUMBER else (False, int(name))


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(f"{cell:.6f}" if isinstance(cell, float) else cell for cell in row)
    write_text(path, text.getvalue())
