"""What evaluation leaves beside its figures: every prediction, and what `dvc plots` draws."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vlm.data.tables import QuestionTable, SceneTable, write_columns
from vlm.evaluation.heads import Replies
from vlm.evaluation.scoring import Bools, Figures
from vlm.files import atomic_path, write_text
from vlm.reporting.pictures import sample_sheet


@dataclass(frozen=True, eq=False)
class Predictions:
    """What the models say about a split: M questions, N pictures."""

    replies: Replies
    captions: list[str]  # (N,)
    exact: Bools  # (N,), whether each caption states exactly the scene's facts


def write_predictions(
    folder: Path, predictions: Predictions, scenes: SceneTable, questions: QuestionTable
) -> None:
    """Every prediction beside its truth."""
    answers, phrases = predictions.replies.answers, predictions.replies.phrases
    write_columns(
        folder / "questions.parquet",
        {
            "question_id": questions.question_id,
            "scene_id": questions.scene_id,
            "family": questions.family,
            "question": questions.question,
            "answer": questions.answer,
            "phrase": questions.phrase,
            "classifier_answer": answers.answer,
            "classifier_confidence": answers.confidence,
            "generator_phrase": phrases,
        },
    )
    write_columns(
        folder / "captions.parquet",
        {
            "scene_id": scenes.scene_id,
            "caption": predictions.captions,
            "reference": [captions[0] for captions in scenes.captions],
            "exact": predictions.exact,
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
    heads = [metrics[head]["by_family"] for head in ("classifier", "generator")]
    rows = [f"{name},{heads[0][name]:.6f},{heads[1][name]:.6f}" for name in heads[0]]
    write_text(folder / "by_family.csv", "\n".join(["family,classifier,generator", *rows]) + "\n")
    answers, phrases = replies.answers.answer, replies.phrases
    pairs = zip(questions.answer, answers, strict=True)
    write_text(
        folder / "confusion.csv", "truth,prediction\n" + "".join(f"{t},{p}\n" for t, p in pairs)
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
            (answers[row], answers[row] == questions.answer[row]),
            (phrases[row], phrases[row] == questions.phrase[row]),
        ]
        for row in shown
    ]
    with atomic_path(folder / "samples.png") as partial:
        partial.write_bytes(sample_sheet(scenes.images[questions.scene_index[shown]], lines))
