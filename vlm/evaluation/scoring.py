"""From predictions to the figures of `metrics/evaluate.json`, each with interval and floor.

Shapes: M questions, G pictures of the gallery, N captions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vlm.evaluation.floors import AskedColumns, floor_correct, floor_correct_within_families
from vlm.evaluation.intervals import Interval, ratio_interval, share_interval, wilson
from vlm.evaluation.text_metrics import bleu_from_statistics, bleu_statistics
from vlm.evaluation.vqa_metrics import family_accuracy, macro_accuracy

Bools = npt.NDArray[np.bool_]
Figures = dict[str, Any]  # a part of the metrics file
FLOORS = ("majority", "question_only", "image_only")
NOT_COUNTED = -1
PER_QUESTION = "_per_question"  # ends the name of a figure in which every question weighs the same
BLEU_SIGNATURE = "BLEU-4|corpus|case:mixed|tok:none|smooth:none"


@dataclass(frozen=True)
class Scorer:
    """Scores questions that share pictures, by family, or each question alike.

    Attributes:
        families: (M,) the family of each question.
        scene_ids: (M,) its picture.
        resamples: of the bootstrap.
        seed: of the bootstrap.
        pictures: all pictures in ascending order; None for those of the questions.
    """

    families: Sequence[str]
    scene_ids: npt.NDArray[np.int64]
    resamples: int
    seed: int
    pictures: npt.NDArray[np.int64] | None = None

    def accuracy(self, name: str, correct: Bools) -> Figures:
        """The mean over families of the share of right answers, and its interval."""
        interval = self._interval(correct, self._columns)
        return {name: macro_accuracy(correct, self.families), **ends(name, interval)}

    def per_question(self, name: str, correct: Bools) -> Figures:
        """The share of right answers, every question weighing the same, and its interval."""
        if len(np.unique(self.scene_ids)) == len(self.scene_ids):
            return score_proportion(name, correct)  # a question a picture: all are independent
        interval = self._interval(correct, np.zeros(len(correct), np.int64))
        return {name: float(np.mean(correct)), **ends(name, interval)}

    def by_family(self, correct: Bools, prefix: str = "") -> Figures:
        """The share of right answers of each family, and their intervals."""
        low, high = {}, {}
        for column, family in enumerate(sorted(set(self.families))):
            interval = self._interval(correct, np.where(self._columns == column, 0, NOT_COUNTED))
            low[family], high[family] = interval
        return {
            f"{prefix}by_family": family_accuracy(correct, self.families),
            f"{prefix}by_family_low": low,
            f"{prefix}by_family_high": high,
        }

    def of_rows(self, rows: Bools) -> "Scorer":
        """The scorer of some of the questions; the pictures of the others are still resampled."""
        families = np.asarray(self.families)[rows].tolist()
        return replace(self, families=families, scene_ids=self.scene_ids[rows], pictures=self._all)

    def bleu(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Figures:
        """Corpus BLEU-4 of one text a question."""
        return score_bleu(hypotheses, references, self.scene_ids, self.resamples, self.seed)

    @cached_property
    def _all(self) -> npt.NDArray[np.int64]:
        return np.unique(self.scene_ids) if self.pictures is None else self.pictures

    @cached_property
    def _rows(self) -> npt.NDArray[np.int64]:
        """(M,) the place of each question's picture among all."""
        return np.searchsorted(self._all, self.scene_ids)

    @cached_property
    def _columns(self) -> npt.NDArray[np.int64]:
        """(M,) the place of each question's family among their names in order."""
        return np.unique(np.asarray(self.families), return_inverse=True)[1].reshape(-1)

    def _interval(self, correct: Bools, columns: npt.NDArray[np.int64]) -> Interval:
        """Over pictures, since the questions of one picture aren't independent.

        All pictures are drawn from every time, whatever they are asked: a resample of them serves
        every figure of the split.
        """
        size = (len(self._all), int(columns.max()) + 1)
        counted = columns != NOT_COUNTED
        cell = (self._rows * size[1] + columns)[counted]
        right = np.bincount(cell, np.asarray(correct, float)[counted], size[0] * size[1])
        asked = np.bincount(cell, minlength=size[0] * size[1])
        sums = right.reshape(size), asked.reshape(size)
        return ratio_interval(*sums, resamples=self.resamples, seed=self.seed)


def score_floors(scorer: Scorer, train: AskedColumns, test: AskedColumns) -> Figures:
    """The floors that any accuracy must clear: overall, and learned within each family."""
    figures = score_floors_per_question(scorer, train, test, PER_QUESTION)
    for name, correct in floor_correct(train, test).items():
        figures |= scorer.accuracy(name, correct)
    within = floor_correct_within_families(train, test)
    figures["by_family"] = {
        name: family_accuracy(correct, test.families) for name, correct in within.items()
    }
    for name, correct in within.items():
        figures |= scorer.accuracy(f"{name}_by_family_mean", correct)
    return figures


def score_floors_per_question(
    scorer: Scorer, train: AskedColumns, test: AskedColumns, suffix: str = ""
) -> Figures:
    """The floors under a share of all questions, and learned for it."""
    figures: Figures = {}
    for name, correct in floor_correct(train, test, families_alike=False).items():
        figures |= scorer.per_question(name + suffix, correct)
    return figures


def score_head(scorer: Scorer, correct: Bools, floors: Figures) -> Figures:
    """One head's exact match, its lift over the largest floor, and the families.

    `exact_match` is the mean over families; beside it stands the share of all questions. A phrase
    is right only as a whole, and the floors are of short answers: for the generator, then, the
    lift is on the low side.
    """
    figures = scorer.accuracy("exact_match", correct)
    figures |= {"lift": lift(figures["exact_match"], floors)}
    figures |= scorer.per_question(f"exact_match{PER_QUESTION}", correct)
    return figures | scorer.by_family(correct)


def lift(value: float, floors: Figures) -> float:
    """How far an accuracy lies above the largest of its floors."""
    return value - max(floors[name] for name in FLOORS if name in floors)


def score_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    scene_ids: npt.NDArray[np.int64],
    resamples: int,
    seed: int,
) -> Figures:
    """Corpus BLEU-4 of texts about pictures, and its interval over pictures."""
    rows = bleu_rows(hypotheses, references)
    pictures, picture = np.unique(scene_ids, return_inverse=True)
    sums = np.zeros((len(pictures), rows.shape[1]), dtype=np.int64)
    np.add.at(sums, picture.reshape(-1), rows)
    interval = share_interval(sums, bleu_from_statistics, resamples, seed)
    return {"bleu4": float(bleu_from_statistics(sums.sum(axis=0))), **ends("bleu4", interval)}


def bleu_of(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Corpus BLEU-4 of texts, split at white space."""
    return float(bleu_from_statistics(bleu_rows(hypotheses, references).sum(axis=0)))


def bleu_rows(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> npt.NDArray[np.int64]:
    """`bleu_statistics` of each text; few of a split's texts differ, so each is counted once."""
    known: dict[tuple[str, ...], npt.NDArray[np.int64]] = {}
    rows = []
    for text, texts in zip(hypotheses, references, strict=True):
        pair = (text, *texts)
        if pair not in known:
            known[pair] = bleu_statistics(text.split(), [each.split() for each in texts])
        rows.append(known[pair])
    return np.stack(rows)


def score_proportion(name: str, correct: Bools) -> Figures:
    """A share of independent trials, and Wilson's interval."""
    right = int(np.count_nonzero(correct))
    return {name: right / len(correct), **ends(name, wilson(right, len(correct)))}


def ends(name: str, interval: Interval) -> dict[str, float]:
    """The two ends of a figure's interval, under their names."""
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}
