"""Short names for what decides on a result: values, files, and the code that is in use."""

import sys
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import BaseModel


def plain(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of the parameters as plain values."""
    return {
        key: value.model_dump() if isinstance(value, BaseModel) else value
        for key, value in sections.items()
    }


def modules_in_use() -> list[Path]:
    """The files of this project that are in use."""
    ours = [m for n, m in sys.modules.items() if n.split(".")[0] in ("vlm", "stages", "__main__")]
    files = {Path(file) for module in ours if (file := getattr(module, "__file__", None))}
    return sorted(files)


def content(path: Path) -> bytes:
    """A digest of a file, or of all files in a folder with their names; of nothing, nothing."""
    if path.is_dir():
        parts = (part for part in sorted(path.rglob("*")) if part.is_file())
        return b"".join(str(p.relative_to(path)).encode() + content(p) for p in parts)
    if not path.exists():
        return b""
    with path.open("rb") as file:
        digest = blake2b(digest_size=16)
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.digest()


def digest(*parts: bytes) -> str:
    """One short name for all of the parts."""
    return blake2b(b"\0".join(parts), digest_size=8).hexdigest()
