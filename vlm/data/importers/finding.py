"""Where the files of a published data set are looked for, and what their names say."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vlm.data.importers.files import read_json_file
from vlm.data.importers.paths import fault, inside
from vlm.data.importers.rows import SplitName
from vlm.errors import UserError

# "train2014", "trainA" and "training" are the training split; "trainval" is none of the three.
_SPLITS: dict[SplitName, str] = {
    "train": "train(ing|a|b)?",
    "val": "val(id|idation|a|b)?",
    "test": "test(ing|a|b)?",
}


def json_files(
    root: Path, folders: Iterable[str] = ("",), suffixes: Sequence[str] = (".json",)
) -> list[str]:
    """Names relative to `root` of what has such a suffix, folder by folder, each in name order."""
    names = []
    for folder in folders:
        try:
            entries = sorted(each.name for each in (root / folder).iterdir())
        except OSError:  # no such folder, or none at all
            continue
        names += [
            f"{folder}/{entry}" if folder else entry
            for entry in entries
            if entry.lower().endswith(tuple(suffixes)) and not entry.startswith(".")
        ]
    return names


def check_found(root: Path, names: Iterable[str], expected: str) -> None:
    """Raise UserError where `names` is empty; `expected` says what was looked for."""
    if not any(names):
        raise UserError(f"{root}: got no such files, expected {expected}")


def read_lists(root: Path, name: str, *keys: str) -> tuple[dict[str, Any], list[str]]:
    """A JSON object under `root`, and those of `keys` under which it holds a list.

    Raises:
        UserError: it can't be read, or holds none.
    """
    file = read_json_file(root, name, dict)
    held = [key for key in keys if isinstance(file.get(key), list)]
    if not held:
        raise UserError(f"{root / name}: got no list of {' or '.join(keys)}, expected one")
    return file, held


def split_of(name: object) -> SplitName | None:
    """The split that a word of `name` says; None where none or several do."""
    words = re.findall("[a-z]+", name.lower()) if isinstance(name, str) else []
    said: list[SplitName] = [
        split
        for split, pattern in _SPLITS.items()
        if any(re.fullmatch(pattern, word) for word in words)
    ]
    return said[0] if len(said) == 1 else None


def first_file(root: Path, names: Iterable[str]) -> Path:
    """The first of `names` that is a file under `root`.

    Raises:
        BadRowError: none is; it says why the first isn't.
    """
    names = list(names)
    return inside(root, next((name for name in names if fault(root, name) is None), names[0]))
