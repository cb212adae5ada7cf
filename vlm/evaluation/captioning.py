"""How well captions describe: word for word, fact for fact, and exactly.

Every figure is a function of sums over pictures, so that one interval and one floor serve all.

Shapes: N pictures, S sums.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vlm.config.data import WorldConfig
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.intervals import FloatArray, share_interval
from vlm.evaluation.rouge import rouge_l, rouge_l_coco
from vlm.evaluation.scoring import (
    BLEU_SIGNATURE,
    Bools,
    Figures,
    bleu_rows,
    ends,
    score_proportion,
)
from vlm.evaluation.text_metrics import bleu_from_statistics
from vlm.scenes.captions import key_facts, parse_caption, told_facts

COMMONEST = 3  # captions for each number of objects, among which a floor is chosen
CHOSEN_ON = 100  # pictures of val


class Described(NamedTuple):
    """N pictures by what is truly said of them.

    Attributes:
        captions: (N,) each with one or more.
        keys: (N,) the fact key of each caption; those of one picture are equal.
    """

    captions: Sequence[Sequence[str]]
    keys: Sequence[Sequence[str]]


def described(
    captions: Sequence[Sequence[str]], keys: Sequence[Sequence[str]], tokenizer: TextTokenizer
) -> Described:
    """What is truly said of the pictures, as the model would say it."""
    spelling = tokenizer.spelling(text for own in captions for text in own)
    return Described([[spelling[text] for text in own] for own in captions], keys)


@dataclass(frozen=True)
class Guesses:
    """What may be said of every picture alike, learned on train.

    Attributes:
        keys: how many pictures of train state these facts.
        texts: the commonest captions for each number of objects.
    """

    keys: Mapping[str, int]
    texts: Sequence[str]

    @classmethod
    def learned(cls, train: Described) -> "Guesses":
        """From the captions of train."""
        pairs = zip(train.captions, train.keys, strict=True)
        told = Counter(pair for row in pairs for pair in zip(*row, strict=True))
        texts: dict[int, list[str]] = {}
        for (text, key), _ in told.most_common():
            texts.setdefault(len(key_facts(key)), []).append(text)
        commonest = [text for each in texts.values() for text in each[:COMMONEST]]
        return cls(Counter(keys[0] for keys in train.keys), commonest)


class Figure(NamedTuple):
    """One figure of captions: rows (N, S) of texts about pictures, and a function of their sum."""

    rows: Callable[[Sequence[str], Described], FloatArray]
    of_sums: Callable[[FloatArray], FloatArray]

    def of(self, said: Sequence[str], true: Described) -> float:
        """The figure of these texts."""
        return float(self.of_sums(self.rows(said, true).sum(axis=0)))


def exact_captions(captions: Sequence[str], true: Described, world: WorldConfig | None) -> Bools:
    """Whether each caption, parsed back, states exactly the scene's facts: (N,).

    Without a world, whether it is one of the picture's own, word for word.
    """
    if world is None:
        pairs = zip(captions, true.captions, strict=True)
        return np.array([text in own for text, own in pairs], np.bool_)
    pairs = zip(captions, true.keys, strict=True)
    return np.array([parse_caption(text, world) == own[0] for text, own in pairs], np.bool_)


def fact_counts(
    captions: Sequence[str], keys: Sequence[Sequence[str]], world: WorldConfig
) -> FloatArray:
    """(N, 3): facts told and true, facts told, and true facts, of each picture."""
    rows = np.zeros((len(captions), 3))
    read = {text: Counter(told_facts(text, world)) for text in set(captions)}
    for row, text, own in zip(rows, captions, keys, strict=True):
        told, true = read[text], Counter(key_facts(own[0]))
        row[:] = (told & true).total(), told.total(), true.total()
    return rows


def f1_of_sums(sums: FloatArray) -> FloatArray:
    """F1 of summed `fact_counts`, (..., 3) to (...): facts pooled over pictures.

    Where nothing is told and nothing true, 1: silence is right.
    """
    size = sums[..., 1] + sums[..., 2]
    return np.where(size > 0, 2 * sums[..., 0] / np.maximum(1, size), 1.0)


def score_captions(
    captions: Sequence[str],
    true: Described,
    guesses: Guesses,
    val: Described,
    world: WorldConfig | None,
    resamples: int,
    seed: int,
) -> Figures:
    """Every figure of the captions, its interval, and its floor.

    The floor of `exact` is train's commonest fact key, or without a world its commonest caption.
    Any other's is what one caption for all pictures scores, of train's commonest the one that
    scores best on val.

    Args:
        captions: (N,) what the model wrote.
        true: what is true of the pictures.
        guesses: learned on train.
        val: what is true of val, on whose first pictures the floors are chosen.
        world: whose captions can be parsed; None for own pictures, which have no facts.
        resamples, seed: of the bootstrap over pictures.
    """
    few = Described(val.captions[:CHOSEN_ON], val.keys[:CHOSEN_ON])
    figures: Figures = {
        **score_proportion("exact", exact_captions(captions, true, world)),
        "exact_floor": _exact_floor(guesses, true, world),
        "bleu_signature": BLEU_SIGNATURE,
    }
    for name, figure in _figures(world).items():
        rows = figure.rows(captions, true)
        interval = share_interval(rows, figure.of_sums, resamples, seed)
        best = max(guesses.texts, key=lambda text: figure.of([text] * len(few.keys), few))
        figures |= {
            name: float(figure.of_sums(rows.sum(axis=0))),
            **ends(name, interval),
            f"{name}_floor": figure.of([best] * len(true.keys), true),
        }
    return figures


def _exact_floor(guesses: Guesses, true: Described, world: WorldConfig | None) -> float:
    if world is None:
        return float(exact_captions([guesses.texts[0]] * len(true.keys), true, None).mean())
    common = max(sorted(guesses.keys), key=lambda key: guesses.keys[key])
    return float(np.mean([keys[0] == common for keys in true.keys]))


def _figures(world: WorldConfig | None) -> dict[str, Figure]:
    def each(metric: Callable[..., float]) -> Figure:
        """The mean of a figure of single sentences."""

        def rows(said: Sequence[str], true: Described) -> FloatArray:
            pairs = zip(said, true.captions, strict=True)
            return np.array([(metric(t.split(), [w.split() for w in ws]), 1.0) for t, ws in pairs])

        return Figure(rows, lambda sums: sums[..., 0] / sums[..., 1])

    facts = {}
    if world is not None:
        facts["fact_f1"] = Figure(
            lambda said, true: fact_counts(said, true.keys, world), f1_of_sums
        )
    return {
        **facts,
        "bleu4": Figure(
            lambda said, true: bleu_rows(said, true.captions).astype(np.float64),
            bleu_from_statistics,
        ),
        "rouge_l": each(rouge_l),
        "rouge_l_coco": each(rouge_l_coco),
    }
