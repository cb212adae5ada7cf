"""Where the errors are: whole pictures, numbers of objects, and how far counting is off.

Shapes: M questions, N pictures.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vlm.evaluation.floors import AskedColumns
from vlm.evaluation.heads import Replies
from vlm.evaluation.scoring import Bools, Figures, Scorer, score_proportion
from vlm.evaluation.vqa_metrics import family_accuracy

Strings = npt.NDArray[np.object_]
Ints = npt.NDArray[np.int64]
NO_NUMBER = "no number"


def whole_pictures(scene_ids: Ints, correct: Bools) -> Bools:
    """Whether all questions of each picture are right, by picture in ascending order."""
    pictures, place = np.unique(scene_ids, return_inverse=True)
    wrong = np.bincount(place.reshape(-1), ~correct, len(pictures))
    return wrong == 0


def score_whole_pictures(
    scorer: Scorer, right: Mapping[str, Bools], floors: Mapping[str, Bools]
) -> Figures:
    """The share of pictures all of whose questions are right, of each head and each guesser.

    `if_independent` is what a head would have whose errors were spread over the pictures by chance:
    the mean over pictures of the product of their questions' accuracies, each that of its family. A
    share well above it says that errors keep to few pictures.

    Args:
        scorer: of the questions.
        right: by head, (M,) whether its answer is right.
        floors: by floor, (M,) whether the guess is right that knows each question's family.
    """
    figures: Figures = {
        f"{name}_floor": float(whole_pictures(scorer.scene_ids, correct).mean())
        for name, correct in floors.items()
    }
    for head, correct in right.items():
        share = score_proportion("all_right", whole_pictures(scorer.scene_ids, correct))
        figures[head] = share | {"if_independent": _if_independent(scorer, correct)}
    return figures


def _if_independent(scorer: Scorer, correct: Bools) -> float:
    accuracy = family_accuracy(correct, scorer.families)
    _, place = np.unique(scorer.scene_ids, return_inverse=True)
    chance = np.ones(int(place.max()) + 1)
    np.multiply.at(chance, place.reshape(-1), [accuracy[family] for family in scorer.families])
    return float(chance.mean())


def score_unseen(
    scorer: Scorer, right: Mapping[str, Bools], floors: Mapping[str, Bools], unseen: Bools
) -> Figures:
    """Accuracy about pictures whose layout no training picture has: nothing of them is remembered.

    Args:
        scorer: of M questions.
        right: by head, (M,) whether its answer is right.
        floors: as in `score_whole_pictures`.
        unseen: (M,) whether the question's picture has such a layout.
    """
    part = scorer.of_rows(unseen)
    figures: Figures = {"questions": int(unseen.sum())}
    figures |= {
        f"{name}_floor": family_accuracy(correct[unseen], part.families)
        for name, correct in floors.items()
    }
    for head, correct in right.items():
        kept = correct[unseen]
        figures[head] = part.accuracy("exact_match", kept) | part.by_family(kept)
    return figures


def layouts(objects: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[Any, ...]]:
    """What each picture holds and where, whatever the order of its objects."""
    return [tuple(sorted(tuple(sorted(one.items())) for one in scene)) for scene in objects]


def score_by_objects(
    scorer: Scorer, right: Mapping[str, Bools], floors: Mapping[str, Bools], objects: Sequence[int]
) -> Figures:
    """Accuracy by the number of objects in the picture, (M,) one for each question.

    Every question weighs the same. The floors are those of `score_whole_pictures`.
    """
    labels = [str(number) for number in objects]
    grouped = Scorer(labels, scorer.scene_ids, scorer.resamples, scorer.seed)
    figures: Figures = {
        f"{name}_floor": family_accuracy(correct, labels) for name, correct in floors.items()
    }
    for head, correct in right.items():
        scores = grouped.by_family(correct)
        figures[head] = {name.replace("by_family", "by_number"): v for name, v in scores.items()}
    return figures


def score_counting(
    replies: Replies,
    answers: Strings,
    spoken: Mapping[str, str],
    train: AskedColumns,
    scorer: Scorer,
) -> Figures:
    """How far each head's counts are off: the share of errors of each size, said minus true.

    Args:
        replies: to M questions of how many there are.
        answers: (M,) the true numbers, as digits.
        spoken: the number, as digits, of every phrase that says one.
        train: counting questions, from which the floor learns its one number.
        scorer: of these questions.
    """
    truth = answers.astype(int)
    said = {
        "classifier": list(replies.answers.answer),
        "generator": [spoken.get(phrase, "") for phrase in replies.phrases],
    }
    figures: Figures = {"questions": len(truth), "within_one_floor": _constant(train, truth)}
    for head, words in said.items():
        sizes = [
            f"{int(word) - true:+d}" if word.isdigit() else NO_NUMBER
            for word, true in zip(words, truth.tolist(), strict=True)
        ]
        names, counts = np.unique(sizes, return_counts=True)
        shares = dict(zip(names.tolist(), (counts / len(sizes)).tolist(), strict=True))
        near = np.array([size in ("-1", "+0", "+1") for size in sizes])
        figures[head] = {"errors": shares, **scorer.per_question("within_one", near)}
    return figures


def _constant(train: AskedColumns, truth: Ints) -> float:
    """The share within one of the number for which that share is largest in train."""
    seen = np.array(train.answers).astype(int)
    near = {n: np.dot(abs(seen - n) <= 1, train.weights or np.ones(len(seen))) for n in set(seen)}
    best = max(sorted(near), key=lambda number: near[number])
    return float((abs(truth - best) <= 1).mean())
