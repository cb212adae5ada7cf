"""Two runs' answers to the same questions: which changed, and by how much each figure differs.

Questions about one picture are right or wrong together. The intervals allow for it, since they
resample pictures; McNemar's p over questions doesn't, and is optimistic (too small) wherever a
picture has several questions: there, go by the interval. Figures with one trial a picture (all of
its questions right, its caption exact) have the p that they say.

Q: pairs of rows, I: pictures, F: families.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlm.evaluation.intervals import DEFAULT_RESAMPLES, FloatArray, Interval, sums_by_image
from vlm.evaluation.paired import Statistic, holm, mcnemar, paired_interval
from vlm.evaluation.pairing import Pair, Row
from vlm.evaluation.text_metrics import bleu_from_statistics, bleu_statistics


class Head(NamedTuple):
    """A head, and the columns of what it said, what is true, and how sure it was."""

    name: str
    said: str
    truth: str
    confidence: str

    def right(self, row: Row) -> bool:
        """Whether the head said what is true, to the letter."""
        return row[self.said] == row[self.truth]


DIRECTIONS = ("image_to_text", "text_to_image")
HEADS = (
    Head("classifier", "classifier_answer", "answer", "classifier_confidence"),
    Head("generator", "generator_phrase", "phrase", "generator_confidence"),
)


@dataclass(frozen=True)
class Comparison:
    """One figure of both sides.

    Attributes:
        name: Dotted: the head, `caption` or `retrieval`, then the figure.
        a: The figure of side A, a share of 1.
        b: That of side B.
        interval: Of b - a, paired over pictures. Where no picture differs both ends are 0, which
            says that nothing was seen to differ, not that nothing does.
        only_a: Trials that A alone has right; None where there is no right or wrong.
        only_b: Trials that B alone has right.
        p: McNemar's; None where the figure isn't a plain share of trials.
        p_holm: p corrected for the number of families; None beyond them.
    """

    name: str
    a: float
    b: float
    interval: Interval
    only_a: int | None = None
    only_b: int | None = None
    p: float | None = None
    p_holm: float | None = None

    @property
    def difference(self) -> float:
        """b - a."""
        return self.b - self.a


@dataclass(frozen=True)
class Changes:
    """Pairs whose answer changed, in three kinds, what B is surest of first."""

    lost: list[Pair]  # A right, B wrong
    still_wrong: list[Pair]  # wrong, and now another wrong
    gained: list[Pair]  # A wrong, B right

    def __len__(self) -> int:
        return len(self.lost) + len(self.still_wrong) + len(self.gained)


def compare_questions(
    pairs: Sequence[Pair], resamples: int = DEFAULT_RESAMPLES, seed: int = 0
) -> list[Comparison]:
    """Both heads' figures over questions, at least one: see `Comparison`.

    A head's `exact_match` is the mean over families. McNemar's test weighs every question alike, so
    its p stands at `exact_match_per_question`, of the same pairs. `p_holm` is over a head's
    families: of five, one is likelier to have a small p by luck alone. It doesn't mend what
    McNemar's p over questions lacks.
    """
    asked = _Questions(
        np.array([pair.b["scene_id"] for pair in pairs]),
        np.array([pair.b["family"] for pair in pairs]),
        resamples,
        seed,
    )
    found = []
    for head in HEADS:
        a, b = (np.array([head.right(row) for row in side]) for side in zip(*pairs, strict=True))
        found += asked.head(head.name, a, b)
    texts = [[(row["generator_phrase"], row["phrase"]) for row in pair] for pair in pairs]
    a, b = (_bleu_sums([pair[side] for pair in texts], asked.scene_ids) for side in (0, 1))
    return [*found, _difference("generator.bleu4", a, b, bleu_from_statistics, resamples, seed)]


def compare_captions(
    pairs: Sequence[Pair], resamples: int = DEFAULT_RESAMPLES, seed: int = 0
) -> Comparison:
    """`caption.exact`, of at least one pair: the share that states exactly its scene's facts."""
    a, b = (np.array([row["exact"] for row in side]) for side in zip(*pairs, strict=True))
    return _shares("caption.exact", a, b, np.arange(len(pairs)), None, resamples, seed)


def compare_retrieval(
    pairs: Sequence[Pair], direction: str, resamples: int = DEFAULT_RESAMPLES, seed: int = 0
) -> Comparison:
    """R@1 in one of `DIRECTIONS`, of the captions' pairs of a gallery that both sides searched.

    A tie may make a query's hit a fraction, and then it counts for neither side alone. Scenes with
    one true caption ask for a picture by the same words: as queries from text to picture they are
    one and the same, resampled together, and McNemar's test, which wants independent trials, has
    no p.
    """
    column = recall_column(direction)
    a, b = (np.array([row[column] for row in side]) for side in zip(*pairs, strict=True))
    texts = [pair.a["reference"] for pair in pairs]
    alike = direction == "text_to_image"
    query = np.unique(texts, return_inverse=True)[1] if alike else np.arange(len(pairs))
    of_a, of_b = (np.concatenate(sums_by_image(hits, query), axis=1) for hits in (a, b))
    name = f"retrieval.{column}"
    compared = _difference(name, of_a, of_b, _mean_share, resamples, seed)
    only_a, only_b = (int(((x == 1) & (y == 0)).sum()) for x, y in ((a, b), (b, a)))
    p = None if alike else mcnemar(only_a, only_b)
    return replace(compared, only_a=only_a, only_b=only_b, p=p)


def recall_column(direction: str) -> str:
    """The column of `captions.parquet` with each query's R@1; null beyond the gallery."""
    return f"{direction}_R@1"


def changes(pairs: Iterable[Pair], head: Head) -> Changes:
    """The questions to which the head's answer changed for worse, for no better, and for better.

    Each kind begins with what B is surest of, where a confidence is known; then by ids.
    """
    found = Changes([], [], [])
    for pair in pairs:
        right_a, right_b = head.right(pair.a), head.right(pair.b)
        if right_a and not right_b:
            found.lost.append(pair)
        elif right_b and not right_a:
            found.gained.append(pair)
        elif not right_a and pair.a[head.said] != pair.b[head.said]:
            found.still_wrong.append(pair)
    for kind in (found.lost, found.still_wrong, found.gained):
        kind.sort(key=lambda pair: _surest_first(pair.b, head))
    return found


@dataclass(frozen=True, eq=False)
class _Questions:
    """What all figures over questions have in common."""

    scene_ids: NDArray[np.int64]  # (Q,)
    families: NDArray[np.str_]  # (Q,)
    resamples: int
    seed: int

    def head(self, name: str, a: NDArray[np.bool_], b: NDArray[np.bool_]) -> list[Comparison]:
        """A head's figures, of which questions (Q,) are right on either side."""
        luck = self.resamples, self.seed
        macro = _shares(f"{name}.exact_match", a, b, self.scene_ids, self.families, *luck)
        alike = _shares(f"{name}.exact_match_per_question", a, b, self.scene_ids, None, *luck)
        families = []
        for family in np.unique(self.families):
            rows = self.families == family
            key = f"{name}.by_family.{family}"
            families.append(_shares(key, a[rows], b[rows], self.scene_ids[rows], None, *luck))
        corrected = holm([one.p for one in families if one.p is not None])
        families = [replace(one, p_holm=p) for one, p in zip(families, corrected, strict=True)]
        whole_a, whole_b = (_all_right(right, self.scene_ids) for right in (a, b))
        pictures = np.arange(len(whole_a))
        every = _shares(f"{name}.all_right", whole_a, whole_b, pictures, None, *luck)
        return [macro, alike, *families, every]


def _surest_first(row: Row, head: Head) -> tuple[float, int, int]:
    sure = row.get(head.confidence, 0.0)  # NaN, which has no place in an order, counts as 0
    return 0.0 if math.isnan(sure) else -sure, row["scene_id"], row["question_id"]


def _shares(
    name: str,
    a: NDArray[np.bool_],
    b: NDArray[np.bool_],
    scene_ids: NDArray[np.int64],
    families: NDArray[np.str_] | None,
    resamples: int,
    seed: int,
) -> Comparison:
    """A share of right trials, or with families their mean, which has no p of its own."""
    labels = None if families is None else list(families)
    sums_a, sums_b = (
        np.concatenate(sums_by_image(right, scene_ids, labels), axis=1) for right in (a, b)
    )
    compared = _difference(name, sums_a, sums_b, _mean_share, resamples, seed)
    only_a, only_b = int(np.count_nonzero(a & ~b)), int(np.count_nonzero(b & ~a))
    p = mcnemar(only_a, only_b) if families is None else None
    return replace(compared, only_a=only_a, only_b=only_b, p=p)


def _difference(
    name: str, a: FloatArray, b: FloatArray, function: Statistic, resamples: int, seed: int
) -> Comparison:
    """A function of sums over pictures, (I, S) each."""
    of_a, of_b = (float(function(sums.sum(axis=0))) for sums in (a, b))
    return Comparison(name, of_a, of_b, paired_interval(a, b, function, resamples, seed))


def _mean_share(sums: FloatArray) -> FloatArray:
    """Mean over the families present of right / asked: (..., 2F) to (...)."""
    right, asked = np.split(sums, 2, axis=-1)
    shares = np.divide(right, asked, out=np.zeros_like(right), where=asked > 0)
    return shares.sum(axis=-1) / np.count_nonzero(asked, axis=-1)


def _all_right(right: NDArray[np.bool_], scene_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(I,) whether every question of a picture is right, pictures in sorted order."""
    numerators, denominators = sums_by_image(right, scene_ids)
    return (numerators == denominators)[:, 0]


def _bleu_sums(texts: Iterable[tuple[str, str]], scene_ids: NDArray[np.int64]) -> FloatArray:
    """(I, 10) BLEU's counts by picture, of phrases and what they should be."""
    known: dict[tuple[str, str], NDArray[np.int64]] = {}  # few phrases, often repeated
    rows = []
    for text in texts:
        if text not in known:
            known[text] = bleu_statistics(text[0].split(), [text[1].split()])
        rows.append(known[text])
    pictures, picture = np.unique(scene_ids, return_inverse=True)
    sums = np.zeros((len(pictures), len(rows[0])))
    np.add.at(sums, picture, np.stack(rows))
    return sums
