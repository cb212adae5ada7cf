"""ROUGE-L of one sentence, by the two conventions in use, over tokens that are words or ids.

Both measure the longest common subsequence with a reference (LCS): the most tokens that the two
have in the same order, others between them or not. Its share of the candidate is precision, its
share of the reference recall. The conventions differ in how these become one number, and so their
figures must not stand in one table: "yes there is" against "yes there is a circle" is 0.75 by the
one and 0.718 by the other.

ROUGE: Lin, 2004. LCS by bits: Allison and Dix, 1986; Hyyrö, 2004.
"""

from collections.abc import Hashable, Sequence

from vlm.evaluation.text_metrics import Tokens, as_references, as_tokens

# The weight of recall in coco-caption: a little more than that of precision.
COCO_BETA = 1.2


def rouge_l(generated: Tokens, references: Sequence[Tokens]) -> float:
    """ROUGE-L F1 as the rouge-score package has it, in [0, 1]: the figure of summaries and text.

    Of several references the one of the best F1 counts (its `score_multi`). That package
    lowercases and keeps only letters and digits; here tokens are compared as they come.

    Example: `rouge_l("yes there is".split(), ["yes there is a circle".split()])` is 0.75: all of
    the candidate, three fifths of the reference.

    Args:
        generated: Tokens of the candidate; none scores 0.
        references: One or more token sequences; an empty one scores 0.

    Raises:
        UserError: no references (a ValueError).
        TypeError: a string where tokens belong.
    """
    return max(_f_measure(*shares, beta=1.0) for shares in _shares(generated, references))


def rouge_l_coco(generated: Tokens, references: Sequence[Tokens]) -> float:
    """ROUGE-L as coco-caption (pycocoevalcap) has it, in [0, 1]: the figure of captioning papers.

    Recall weighs 1.2 times as much as precision, and of several references the best precision
    counts and the best recall, even where they are of two references: so two halves of an answer
    can be worth more here than either.

    It splits at single spaces and so reads an empty text as one empty word; here no tokens score 0,
    also against no tokens.

    Example: `rouge_l_coco("yes there is".split(), ["yes there is a circle".split()])` is 0.718.

    Args:
        generated: Tokens of the candidate; none scores 0.
        references: One or more token sequences; an empty one scores 0.

    Raises:
        UserError: no references (a ValueError).
        TypeError: a string where tokens belong.
    """
    precisions, recalls = zip(*_shares(generated, references), strict=True)
    return _f_measure(max(precisions), max(recalls), beta=COCO_BETA)


def _f_measure(precision: float, recall: float, beta: float) -> float:
    if precision == 0 or recall == 0:
        return 0.0
    weight = beta * beta
    return (1 + weight) * precision * recall / (recall + weight * precision)


def _shares(generated: Tokens, references: Sequence[Tokens]) -> list[tuple[float, float]]:
    """Precision and recall of the LCS with each reference."""
    tokens = as_tokens(generated)
    shares: list[tuple[float, float]] = []
    for target in as_references(references, "ROUGE-L"):
        common = _lcs(tokens, target)
        shares.append((common / max(len(tokens), 1), common / max(len(target), 1)))
    return shares


def _lcs(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Length of the longest common subsequence, a row of the usual table in one integer.

    Bit i of `open_` is unset where the table's row rises from column i to i + 1. Each token of
    `second` moves the rises to the left: in every run of bits up to a rise, the lowest place that
    has this token becomes the rise, which the carry of one addition does for all runs at once.
    """
    places: dict[Hashable, int] = {}
    for i, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << i
    every = (1 << len(first)) - 1
    open_ = every
    for token in second:
        here = open_ & places.get(token, 0)
        if here:
            open_ = ((open_ + here) | (open_ - here)) & every
    return len(first) - open_.bit_count()
