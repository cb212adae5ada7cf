"""What every importer yields: pictures with what is said and asked about them, and broken rows.

A *row* is what the source counts: a question of a question file, a line of a `metadata.jsonl`, a
row of a Parquet table, a conversation. Each row of a source ends in exactly one `Found` or one
`Bad`, so that rows in = rows out + rows listed.
"""

import re
import reprlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SplitName = Literal["train", "val", "test"]
# What folders and files of a split are called.
SPLITS: dict[str, SplitName] = {
    "train": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
}

# Control characters but tab and the two line ends, and halves of surrogate pairs, which no UTF-8
# file can hold but JSON's \u can spell.
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60  # characters


class BadRowError(ValueError):
    """What is wrong with a row, in one line: what was got and what was expected."""


@dataclass(frozen=True)
class Asked:
    """One question about a picture.

    Attributes:
        question: its text.
        answer: the short answer; None where the source withholds it.
        phrase: the answer as a sentence; the answer again where the source has none.
        family: the kind of question, as the source calls it; "question" where it doesn't say.
        answers: the annotators' answers, where there are several.
    """

    question: str
    answer: str | None
    phrase: str | None
    family: str = "question"
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """One picture with all that is said and asked about it.

    Attributes:
        split: the source's own; None where it has none.
        picture: the encoded bytes, or the file that holds them.
        rows: names of the rows it is made of, such as "train/questions.json row 12"; at least one.
        captions: in the source's order; may be empty.
        asked: likewise. Without captions and questions a picture teaches nothing, and is refused.
    """

    split: SplitName | None
    picture: bytes | Path
    rows: tuple[str, ...]
    captions: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = field(default=())


@dataclass(frozen=True)
class Bad:
    """A row that can't be used.

    Attributes:
        row: its name, such as "train/questions.json row 12".
        reason: what was got and what was expected, in one line.
    """

    row: str
    reason: str


def shown(value: object) -> str:
    """A value of the source in one short line."""
    return _SHORT.repr(value)


def told_by_annotator(value: object) -> str:
    """An annotator's answer; who wrote nothing agrees with nobody, and counts all the same.

    Raises:
        BadRowError: as `text`, but for an answer that is empty.
    """
    return "" if value == "" else text(value, "answers")


def text(value: object, what: str) -> str:
    """A text of the source, its white space collapsed to single spaces.

    Args:
        value: what the source holds.
        what: its name, for the message.

    Raises:
        BadRowError: no text, or an empty one, or one with control characters.
    """
    if not isinstance(value, str):
        raise BadRowError(f"{what}: got {shown(value)}, expected text")
    if _REFUSED.search(value):
        raise BadRowError(f"{what}: got {shown(value)}, expected no control characters")
    words = " ".join(value.split())
    if not words:
        raise BadRowError(f"{what}: got {shown(value)}, expected text with something in it")
    return words
