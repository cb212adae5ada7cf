"""From predictions to the figures of `metrics/evaluate.json`, each with interval and floor.

Shapes: M questions, G pictures of the gallery, N captions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vlm.evaluation.floors import AskedColumns, floor_correct, floor_correct_within_families
from vlm.evaluation.intervals import Interval, bootstrap, ratio_interval, sums_by_image, wilson
from vlm.evaluation.retrieval import FirstHits, first_hits, retrieval_report
from vlm.evaluation.text_metrics import bleu_from_statistics, bleu_statistics, corpus_bleu4
from vlm.evaluation.vqa_metrics import family_accuracy, macro_accuracy

Bools = npt.NDArray[np.bool_]
Figures = dict[str, Any]  # a part of the metrics file
FLOORS = ("majority", "question_only", "image_only")
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
    """

    families: Sequence[str]
    scene_ids: npt.NDArray[np.int64]
    resamples: int
    seed: int

    def accuracy(self, name: str, correct: Bools) -> Figures:
        """The mean over families of the share of right answers, and its interval."""
        return {
            name: macro_accuracy(correct, self.families),
            **_ends(name, self._interval(correct, self.families)),
        }

    def per_question(self, name: str, correct: Bools) -> Figures:
        """The share of right answers, every question weighing the same, and its interval."""
        if len(np.unique(self.scene_ids)) == len(self.scene_ids):
            return score_proportion(name, correct)  # a question a picture: all are independent
        interval = self._interval(correct, None)
        return {name: float(np.mean(correct)), **_ends(name, interval)}

    def by_family(self, correct: Bools, prefix: str = "") -> Figures:
        """The share of right answers of each family, and their intervals."""
        low, high = {}, {}
        labels = np.asarray(self.families)
        for family in sorted(set(self.families)):
            rows = labels == family
            interval = self._interval(correct[rows], None, rows)
            low[family], high[family] = interval
        return {
            f"{prefix}by_family": family_accuracy(correct, self.families),
            f"{prefix}by_family_low": low,
            f"{prefix}by_family_high": high,
        }

    def bleu(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Figures:
        """Corpus BLEU-4 of one text a question."""
        return score_bleu(hypotheses, references, self.scene_ids, self.resamples, self.seed)

    def _interval(
        self, correct: Bools, families: Sequence[str] | None, rows: Bools | None = None
    ) -> Interval:
        """Over pictures, since the questions of one picture aren't independent."""
        scene_ids = self.scene_ids if rows is None else self.scene_ids[rows]
        sums = sums_by_image(correct, scene_ids, families)
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
    tokens = [text.split() for text in hypotheses]
    wanted = [[text.split() for text in texts] for texts in references]
    rows = [bleu_statistics(t, w) for t, w in zip(tokens, wanted, strict=True)]
    pictures, picture = np.unique(scene_ids, return_inverse=True)
    sums = np.zeros((len(pictures), len(rows[0])), dtype=np.int64)
    np.add.at(sums, picture, np.stack(rows))
    interval = bootstrap(sums, bleu_from_statistics, resamples=resamples, seed=seed)
    return {"bleu4": corpus_bleu4(tokens, wanted), **_ends("bleu4", interval)}


def score_proportion(name: str, correct: Bools) -> Figures:
    """A share of independent trials, and Wilson's interval."""
    right = int(np.count_nonzero(correct))
    return {name: right / len(correct), **_ends(name, wilson(right, len(correct)))}


def score_retrieval(
    similarity: npt.NDArray[np.float64], keys: Sequence[str], resamples: int, seed: int
) -> Figures:
    """Both directions, equal captions counted as hits; and strictly by id.

    Args:
        similarity: (G, G), pictures by captions.
        keys: (G,) fact keys; equal keys are equivalent captions.
        resamples, seed: of the bootstrap.
    """
    ids = np.arange(len(keys))
    figures: Figures = {"gallery": len(keys)}
    for direction, scores in (("image_to_text", similarity), ("text_to_image", similarity.T)):
        hits = first_hits(scores, np.asarray(keys), np.asarray(keys))
        report = retrieval_report(hits)
        for k in (1, 5, 10):
            name = f"{direction}_R@{k}"
            figures |= {name: report[f"R@{k}"], **_ends(name, _hit_interval(hits, k))}
            figures[f"chance_R@{k}"] = report[f"chance_R@{k}"]
        ranks = hits.reciprocal_rank()
        interval = bootstrap(ranks[:, None], lambda s: s[:, 0] / len(ids), 0.95, resamples, seed)
        name = f"{direction}_MRR"
        figures |= {name: report["MRR"], **_ends(name, interval)}
        figures["chance_MRR"] = float(hits.by_chance().reciprocal_rank().mean())
        figures[f"{direction}_median_rank"] = report["median_rank"]
        figures[f"{direction}_id_R@1"] = retrieval_report(first_hits(scores, ids, ids))["R@1"]
    return figures


def _hit_interval(hits: FirstHits, k: int) -> Interval:
    within = hits.within(k)
    return wilson(float(within.sum()), len(within))


def _ends(name: str, interval: Interval) -> dict[str, float]:
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}
