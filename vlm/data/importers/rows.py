"""What every importer yields: pictures with what is said and asked about them, and broken rows.

A *row* is what the source counts: a question of a question file, a line of a `metadata.jsonl`, a
row of a Parquet table, a conversation. Each row of a source ends in exactly one `Found` or one
`Bad`, so that rows in = rows out + rows listed.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SplitName = Literal["train", "val", "test"]


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
