"""Rows that are about one picture, brought together."""

from collections.abc import Iterator
from pathlib import Path

from vlm.data.importers.rows import Asked, Found, SplitName


class Gathering:
    """Pictures of a source whose questions stand in rows of their own.

    Iterating gives each picture of a split once, in the order in which they first appeared.
    """

    def __init__(self) -> None:
        self._pictures: dict[tuple[SplitName | None, Path], tuple[list[str], list[Asked]]] = {}

    def add(self, split: SplitName | None, picture: Path, row: str, *asked: Asked) -> None:
        """Give a picture one more row, and what that row asks."""
        rows, questions = self._pictures.setdefault((split, picture), ([], []))
        rows.append(row)
        questions.extend(asked)

    def __iter__(self) -> Iterator[Found]:
        for (split, picture), (rows, asked) in self._pictures.items():
            yield Found(split, picture, tuple(rows), (), tuple(asked))
