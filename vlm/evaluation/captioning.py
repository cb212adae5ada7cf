"""How well captions describe: word for word, fact for fact, and exactly.

Shapes: N pictures.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from vlm.config.schema import WorldConfig
from vlm.data.tables import SceneTable
from vlm.evaluation.intervals import FloatArray, bootstrap
from vlm.evaluation.rouge import rouge_l, rouge_l_coco
from vlm.evaluation.scoring import (
    BLEU_SIGNATURE,
    Bools,
    Figures,
    bleu_of,
    ends,
    score_bleu,
    score_proportion,
)
from vlm.scenes.captions import key_facts, parse_caption, told_facts

Keys = Sequence[Sequence[str]]  # by picture, a fact key for each of its captions


def exact_captions(captions: Sequence[str], keys: Keys, world: WorldConfig) -> Bools:
    """Whether each caption, parsed back, states exactly the scene's facts: (N,)."""
    pairs = zip(captions, keys, strict=True)
    return np.array([parse_caption(text, world) == own[0] for text, own in pairs], np.bool_)


def fact_counts(captions: Sequence[str], keys: Keys, world: WorldConfig) -> FloatArray:
    """(N, 3): facts told and true, facts told, and true facts, of each picture."""
    rows = np.zeros((len(captions), 3))
    for row, text, own in zip(rows, captions, keys, strict=True):
        told, true = Counter(told_facts(text, world)), Counter(key_facts(own[0]))
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
    scenes: SceneTable,
    guesses: Sequence[str],
    common_key: str,
    world: WorldConfig,
    resamples: int,
    seed: int,
) -> Figures:
    """Every figure of the captions, its interval, and what one caption for all pictures scores.

    Args:
        captions: (N,) what the model wrote.
        scenes: the pictures, their true captions and fact keys.
        guesses: captions to give every picture alike; the best of them is a figure's floor.
        common_key: the commonest fact key of train, for the floor of `exact`.
        world: whose captions can be parsed.
        resamples, seed: of the bootstrap over pictures.
    """
    count = len(captions)
    keys = scenes.caption_keys
    facts = fact_counts(captions, keys, world)
    interval = bootstrap(facts, f1_of_sums, resamples=resamples, seed=seed)
    key_is_common = [own[0] == common_key for own in keys]
    figures: Figures = {
        **score_proportion("exact", exact_captions(captions, keys, world)),
        "exact_floor": float(np.mean(key_is_common)),
        "fact_f1": float(f1_of_sums(facts.sum(axis=0))),
        **ends("fact_f1", interval),
        "fact_f1_floor": max(
            float(f1_of_sums(fact_counts([text] * count, keys, world).sum(axis=0)))
            for text in guesses
        ),
        **score_bleu(captions, scenes.captions, scenes.scene_id, resamples, seed),
        "bleu4_floor": max(bleu_of([text] * count, scenes.captions) for text in guesses),
        "bleu_signature": BLEU_SIGNATURE,
    }
    wanted = [[text.split() for text in texts] for texts in scenes.captions]

    def each(metric: Callable[..., float], said: Sequence[str]) -> FloatArray:
        return np.array([metric(t.split(), w) for t, w in zip(said, wanted, strict=True)])

    for name, metric in (("rouge_l", rouge_l), ("rouge_l_coco", rouge_l_coco)):
        own = each(metric, captions)
        interval = bootstrap(own[:, None], lambda s: s[:, 0] / count, 0.95, resamples, seed)
        figures |= {name: float(own.mean()), **ends(name, interval)}
        means = (float(each(metric, [text] * count).mean()) for text in guesses)
        figures[f"{name}_floor"] = max(means)
    return figures
