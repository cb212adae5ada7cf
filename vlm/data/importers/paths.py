"""Files of the user's folder, and no others: a name in a data set leads nowhere else."""

import os
import re
import stat
from collections.abc import Callable, Iterator, Set
from itertools import islice
from pathlib import Path
from typing import NoReturn

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


def below(root: Path, wanted: Callable[[str], bool]) -> list[str]:
    """Files in `root` and in every folder under it whose own names are `wanted`, in name order.

    Of a folder behind a link the first such file is among them: `fault` refuses it, and so nothing
    is passed over unsaid.

    Args:
        root: the user's folder.
        wanted: called with a file's name without its folders.

    Returns:
        Names relative to `root`.

    Raises:
        UserError: a folder that can't be read.
    """
    found: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=_refuse):
        here = Path(folder)
        found += [here / name for name in names if wanted(name)]
        for link in (here / name for name in folders):
            if link.is_symlink():
                found += islice(_wanted_behind(link, wanted), 1)
    return [path.relative_to(root).as_posix() for path in sorted(found)]


def _wanted_behind(link: Path, wanted: Callable[[str], bool]) -> Iterator[Path]:
    for folder, _, names in os.walk(link):
        yield from (Path(folder, name) for name in sorted(names) if wanted(name))


def _refuse(error: OSError) -> NoReturn:
    raise UserError(f"{error.filename}: got {error.strerror!r}, expected a folder that can be read")


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


def spelled(root: Path, name: str) -> str:
    """The path of `name` under `root` in one line, whatever characters it has."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], f"{root}/{name}")


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
