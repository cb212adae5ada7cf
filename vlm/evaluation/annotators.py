"""Accuracy against several annotators' answers, for data that has them (VQA v2 and its kin).

Shapes: M questions.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
import numpy.typing as npt

from vlm.evaluation.floors import AskedColumns, best_guesses
from vlm.evaluation.intervals import ratio_interval
from vlm.evaluation.predicting import Strings
from vlm.evaluation.scoring import Figures, ends
from vlm.evaluation.vqa_metrics import VqaMode, vqa_accuracy


def score_annotated(
    said: Mapping[str, Strings | Sequence[str]],
    annotators: Sequence[Sequence[str]],
    train: AskedColumns,
    questions: Strings | Sequence[str],
    scene_ids: npt.NDArray[np.int64],
    resamples: int,
    seed: int,
) -> Figures:
    """VQA v2 accuracy of each head in both modes, over the questions that annotators answered.

    Args:
        said: (M,) answers, by head.
        annotators: (M,) the annotators' answers of each question; none for some, or for all.
        train: what the floor learns from, the commonest answer to each question's very words.
        questions, scene_ids: (M,) their words, and their pictures.
        resamples, seed: of the bootstrap over pictures.

    Returns:
        `questions` and `annotators` (mean number) that count, and by head and as
        `question_only_floor` the accuracies `official` and `always`, each head's with its interval;
        empty where no question has annotators.
    """
    rows = [row for row, answers in enumerate(annotators) if answers]
    if not rows:
        return {}
    guesses = best_guesses(train.questions, train.answers, list(questions), train.weights)
    pictures, picture = np.unique(scene_ids[rows], return_inverse=True)
    asked = np.bincount(picture, minlength=len(pictures))[:, None]
    figures: Figures = {
        "questions": len(rows),
        "annotators": float(np.mean([len(annotators[row]) for row in rows])),
        "question_only_floor": {},
        **{head: {} for head in said},
    }
    for mode in get_args(VqaMode):
        for name, answers in {"question_only_floor": guesses, **said}.items():
            scores = [vqa_accuracy(answers[row], annotators[row], mode) for row in rows]
            figures[name][mode] = float(np.mean(scores))
            if name in said:
                sums = np.bincount(picture, scores, len(pictures))[:, None]
                interval = ratio_interval(sums, asked, resamples=resamples, seed=seed)
                figures[name] |= ends(mode, interval)
    return figures
