"""BLEU-4 of one sentence and of a corpus, over tokens that are words or ids.

Everything starts from ten integers a sentence (`bleu_statistics`), which add up over sentences:
a corpus score is a function of their sum, and a bootstrap over images is a matrix product.

BLEU: Papineni et al., 2002. Smoothing: Chen and Cherry, 2014, method 1.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vlm.errors import UserError

# Lists, tuples, and arrays or tensors of ids; a string is refused.
Tokens = Iterable[Hashable]

MAX_ORDER = 4
NUM_STATISTICS = 2 * MAX_ORDER + 2
# Count that stands in for zero matches of an order: epsilon of Chen and Cherry's method 1, at
# NLTK's value.
SMOOTHING_EPSILON = 0.1


class BleuScore(NamedTuple):
    """Corpus BLEU-4 with the parts it is made of.

    Attributes:
        score: In [0, 1].
        precisions: Of 1- to 4-grams, each in [0, 1]; 0 for an order that no hypothesis has.
        brevity_penalty: In [0, 1].
        has_four_grams: False where every hypothesis is shorter than 4 tokens: the score is then 0
            whatever they say, and another metric should be read.
    """

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    has_four_grams: bool


def bleu4(generated: Tokens, references: Sequence[Tokens], smoothing: bool = True) -> float:
    """BLEU-4 of one sentence against one or more references, in [0, 1].

    Agrees with NLTK's `sentence_bleu` (method 1) from 4 tokens on. A shorter candidate is scored
    on the orders it has, so that a right one-word answer is worth 1; NLTK counts each order that it
    can't have as 0.1 matches of 1, and gives that answer 0.178. Without smoothing this is
    sacrebleu's sentence score with `effective_order`.

    Example: `bleu4("there are three shapes".split(), ["there are two shapes".split()])` is
    (3/4 * 1/3 * 0.1/2 * 0.1/1) ** (1/4) = 0.188.

    Args:
        generated: Tokens of the candidate; none scores 0.
        references: One or more token sequences.
        smoothing: Count an order without a match as 0.1 matches; else it makes the score 0.

    Raises:
        UserError: no references (a ValueError).
        TypeError: a string where tokens belong.
    """
    statistics = bleu_statistics(generated, references)
    matches, totals = statistics[:MAX_ORDER], statistics[MAX_ORDER : 2 * MAX_ORDER]
    # Without one common token even the smoothed score is 0, as NLTK has it; the empty candidate
    # ends here too.
    if matches[0] == 0:
        return 0.0
    present = totals > 0
    counts = np.where(matches > 0, matches, SMOOTHING_EPSILON if smoothing else 0.0)[present]
    if not counts.all():
        return 0.0
    log_precision = np.log(counts / totals[present]).mean()
    return float(_brevity_penalty(statistics) * np.exp(log_precision))


def corpus_bleu(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> BleuScore:
    """Corpus BLEU-4: counts pooled over sentences, unsmoothed (sacrebleu's `tok:none`).

    NLTK's `corpus_bleu` differs where a sentence is shorter than 4 tokens: it counts one n-gram of
    each order that the sentence is too short to have, so that short right answers lower the score.

    Example: of `[["the"] * 7]` against `[["the cat is on the mat".split()]]`, the unigram
    precision is 2/7: a token counts at most as often as a reference has it.

    Args:
        hypotheses: One token sequence a sentence.
        references: For each sentence, one or more token sequences.

    Raises:
        UserError: no sentence, lengths that differ, or a sentence without references.
        TypeError: a string where tokens belong.
    """
    if len(hypotheses) != len(references):
        raise UserError(f"got {len(hypotheses)} hypotheses but {len(references)} reference lists")
    if len(hypotheses) == 0:
        raise UserError("corpus BLEU needs at least 1 sentence, got 0")
    pooled = np.sum(
        [bleu_statistics(*pair) for pair in zip(hypotheses, references, strict=True)], axis=0
    )
    matches, totals = pooled[:MAX_ORDER], pooled[MAX_ORDER : 2 * MAX_ORDER]
    return BleuScore(
        score=float(bleu_from_statistics(pooled)),
        precisions=tuple((matches / np.maximum(totals, 1)).tolist()),
        brevity_penalty=float(_brevity_penalty(pooled)),
        has_four_grams=bool(totals[-1] > 0),
    )


def corpus_bleu4(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> float:
    """The score of `corpus_bleu` alone, in [0, 1]."""
    return corpus_bleu(hypotheses, references).score


def bleu_statistics(hypothesis: Tokens, references: Sequence[Tokens]) -> NDArray[np.int64]:
    """The counts of one sentence, which add up to those of a corpus.

    Returns:
        (10,): clipped matches of 1- to 4-grams, the hypothesis's 1- to 4-grams, its length, and
        the length of the reference closest in length (the shorter of two as close).

    Raises:
        UserError: no references.
        TypeError: a string where tokens belong.
    """
    tokens, targets = as_tokens(hypothesis), as_references(references, "BLEU")
    statistics = np.zeros(NUM_STATISTICS, dtype=np.int64)
    for order in range(1, MAX_ORDER + 1):
        allowed: Counter[tuple[Hashable, ...]] = Counter()
        for target in targets:
            allowed |= _ngrams(target, order)
        statistics[order - 1] = (_ngrams(tokens, order) & allowed).total()
        statistics[MAX_ORDER + order - 1] = max(len(tokens) - order + 1, 0)
    closest = min(
        (len(target) for target in targets), key=lambda size: (abs(size - len(tokens)), size)
    )
    statistics[-2:] = len(tokens), closest
    return statistics


def bleu_from_statistics(statistics: ArrayLike) -> NDArray[np.float64]:
    """Unsmoothed BLEU-4 of summed statistics: (..., 10) to (...), in [0, 1].

    With (R, N) resampling counts and (N, 10) statistics, `bleu_from_statistics(counts @ stats)`
    is R corpus scores at once. An order without a match makes the score 0.
    """
    sums = np.asarray(statistics, dtype=np.float64)
    matches, totals = sums[..., :MAX_ORDER], sums[..., MAX_ORDER : 2 * MAX_ORDER]
    complete = (matches > 0).all(axis=-1)
    ratios = np.where(matches > 0, matches, 1.0) / np.maximum(totals, 1.0)
    return np.where(complete, np.exp(np.log(ratios).mean(axis=-1)), 0.0) * _brevity_penalty(sums)


def _brevity_penalty(statistics: NDArray[np.generic]) -> NDArray[np.float64]:
    """exp(1 - reference / hypothesis) for a hypothesis that is too short, else 1: (..., 10)."""
    hypothesis = np.asarray(statistics[..., -2], dtype=np.float64)
    reference = np.asarray(statistics[..., -1], dtype=np.float64)
    penalty = np.exp(np.minimum(0.0, 1.0 - reference / np.maximum(hypothesis, 1.0)))
    return np.where(hypothesis > 0, penalty, 0.0)


def _ngrams(tokens: tuple[Hashable, ...], order: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(tokens[i : i + order] for i in range(len(tokens) - order + 1))


def as_references(references: Sequence[Tokens], metric: str) -> list[tuple[Hashable, ...]]:
    """Each reference as by `as_tokens`; a sentence without one can't be scored.

    Raises:
        UserError: no references.
        TypeError: a string where tokens belong.
    """
    targets = [as_tokens(reference) for reference in references]
    if not targets:
        raise UserError(f"{metric} needs at least 1 reference, got 0")
    return targets


def as_tokens(tokens: Tokens) -> tuple[Hashable, ...]:
    """Copies tokens into a tuple, refusing a string: it would be scored by its letters."""
    if isinstance(tokens, str | bytes):
        raise TypeError(f"expected a sequence of tokens, got the string {tokens!r}; split it first")
    # Arrays and tensors hold elements that do not hash or compare as plain numbers do.
    to_list = getattr(tokens, "tolist", None)
    return tuple(tokens if to_list is None else to_list())
