"""What a figure shows, in words: the rules by which sentences follow from numbers.

Each rule looks at a figure's 95% interval, not at the figure alone, and says that nothing can be
told where the interval leaves it open.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from vlm.reporting.inputs import Figures
from vlm.reporting.markup import listed

HEADS = ("classifier", "generator")
NEARLY_ALWAYS = 0.9  # what the lower end of an interval must exceed for these words


class Share(NamedTuple):
    """A share of 1 with its 95% interval."""

    value: float
    low: float
    high: float


class Grade(IntEnum):
    """How a share lies to its floor, from bad to good."""

    BELOW = 0  # the whole interval lies below the floor
    LIKE = 1  # the floor lies within it
    ABOVE = 2
    SURE = 3  # above the floor, and nearly always


def share(figures: Figures, key: str, row: str | None = None) -> Share | None:
    """A share and its ends; None where any is missing.

    Args:
        figures: That hold it.
        key: Its name; those of its ends follow from it.
        row: Where the figures are by family or the like, of which.
    """
    found = [figures.get(key + end) for end in ("", "_low", "_high")]
    if row is not None:
        found = [(one or {}).get(row) for one in found]
    value, low, high = found
    if value is None or low is None or high is None:
        return None
    return Share(value, low, high)


def grade(own: Share, floor: float) -> Grade:
    """The rule by which a share is praised or not."""
    if own.low > max(floor, NEARLY_ALWAYS):
        return Grade.SURE
    if own.low > floor:
        return Grade.ABOVE
    return Grade.BELOW if own.high < floor else Grade.LIKE


def compare(one: Share, other: Share) -> int:
    """1 where one interval lies above the other, -1 where below, and 0 where they overlap."""
    return int(one.low > other.high) - int(one.high < other.low)


def for_heads(clauses: Mapping[str, str]) -> str:
    """Clauses by head as one sentence without its stop, those that agree said once."""
    if len(clauses) > 1 and len(set(clauses.values())) == 1:
        return f"For both heads {next(iter(clauses.values()))}"
    told = "; ".join(f"for the {head} {clause}" for head, clause in clauses.items())
    return told[:1].upper() + told[1:]


def by_head(texts: Mapping[str, str]) -> str:
    """Figures with their heads: `99.8% (classifier) and 99.7% (generator)`."""
    return listed([f"{text} ({head})" for head, text in texts.items()])
