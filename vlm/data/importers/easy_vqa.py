"""The easy-VQA data set: coloured shapes, with questions of few kinds.

Its Python package holds `data/{train,test}/questions.json`, a list of [question, answer, image id],
and `data/{train,test}/images/ID.png`. The folder is the package's, or its `data`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from vlm.data.importers.files import read_json_file
from vlm.data.importers.paths import inside
from vlm.data.importers.rows import Asked, Bad, BadRowError, Found, SplitName, shown, text


def read(root: Path) -> Iterator[Found | Bad]:
    """Every picture with its questions; where `test` is missing, of `train` alone."""
    base = "data/" if (root / "data").is_dir() and not (root / "train").is_dir() else ""
    yield from _read_split(root, base, "train")
    if os.path.lexists(root / base / "test"):
        yield from _read_split(root, base, "test")


def family_of(question: str) -> str:
    """`yes_no`, `color` or `shape`, as the question's own words say."""
    words = question.lower().split()
    if words[0] in ("is", "does"):
        return "yes_no"
    return "color" if "color" in words else "shape"


def _read_split(root: Path, base: str, split: SplitName) -> Iterator[Found | Bad]:
    name = f"{base}{split}/questions.json"
    of_picture: dict[int, list[tuple[str, Asked]]] = {}
    for number, item in enumerate(read_json_file(root, name, list), 1):
        row = f"{name} row {number}"
        try:
            picture, asked = _read_row(item)
        except BadRowError as error:
            yield Bad(row, str(error))
            continue
        of_picture.setdefault(picture, []).append((row, asked))
    for picture, items in of_picture.items():
        rows = tuple(row for row, _ in items)
        try:
            path = inside(root, f"{base}{split}/images/{picture}.png")
        except BadRowError as error:
            yield from (Bad(row, str(error)) for row in rows)
            continue
        yield Found(split, path, rows, asked=tuple(asked for _, asked in items))


def _read_row(item: object) -> tuple[int, Asked]:
    if not (isinstance(item, list) and len(item) == 3):
        raise BadRowError(f"got {shown(item)}, expected [question, answer, image id]")
    question, answer, picture = item
    if not isinstance(picture, int) or isinstance(picture, bool) or picture < 0:
        raise BadRowError(f"image id: got {shown(picture)}, expected a number from 0")
    question = text(question, "question")
    answer = None if answer is None else text(answer, "answer")
    return picture, Asked(question, answer, None, family_of(question))
