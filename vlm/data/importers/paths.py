"""Files of the user's folder, and no others: a name in a data set leads nowhere else."""

import os
import re
import stat
from collections.abc import Set
from pathlib import Path

from vlm.data.importers.rows import BadRowError, shown
from vlm.errors import UserError

PICTURES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"}

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_folder(name: str, folder: Path) -> None:
    """Raise UserError where the folder that the parameter `name` names isn't there."""
    if not folder.is_dir():
        raise UserError(f"{name}: got {folder}, expected a folder that is there")


def unreferenced(root: Path, used: Set[Path]) -> int:
    """How many picture files under `root` aren't among the used ones, by their endings."""
    there = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return sum(path.suffix.lower() in PICTURES and path not in used for path in there)


def inside(root: Path, name: object) -> Path:
    """The file `name` under `root`, which itself may be a link.

    Raises:
        BadRowError: no text, an absolute path, one through "..", one over a link (even if it leads
            back under `root`), or no regular file.
    """
    got = fault(root, name)
    if got:
        raise BadRowError(f"file {shown(name)}: got {got}, expected a file under {root}")
    return root / str(name)


def fault(root: Path, name: object) -> str | None:
    """What keeps `name` from being a file under `root`; None where nothing does."""
    if not isinstance(name, str) or not name:
        return "no name"
    if _UNPRINTABLE.search(name):
        return "a name with control characters"
    if name.startswith("/"):
        return "an absolute path"
    parts = name.split("/")
    if ".." in parts:
        return "a path through '..'"
    path, mode = root, 0
    for part in parts:
        path = path / part
        try:
            mode = path.lstat().st_mode
        except OSError:  # there is none, a name is too long, or a file stands where a folder should
            return "no such file"
        if stat.S_ISLNK(mode):
            return "a symbolic link"
    return None if stat.S_ISREG(mode) else "a folder or device"
