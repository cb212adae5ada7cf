"""Files written whole or not at all, and strict, sorted JSON."""

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DECIMALS = 6


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it once the block has ended well.

    A full disk, an exception or a kill in the middle leaves the old file, or none, but
    never half of one under the final name.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 `text` to `path` atomically."""
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, values: Mapping[str, Any], decimals: int | None = DECIMALS) -> int:
    """Write `values` as strict JSON: sorted, rounded to `decimals` (None: not), no NaN or infinity.

    A non-finite number is left out and counted; where there are any, the file says how many
    under `non_finite`. Returns that count.
    """
    clean, dropped = _finite(values, decimals)
    if dropped:
        clean["non_finite"] = dropped
    write_text(path, json.dumps(clean, indent=2, sort_keys=True, allow_nan=False) + "\n")
    return dropped


def read_json(path: str | Path) -> dict[str, Any]:
    """Read one JSON object."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def _finite(value: Any, decimals: int | None) -> tuple[Any, int]:
    """`value` without its non-finite numbers, floats rounded, and how many were left out."""
    if isinstance(value, Mapping):
        kept, dropped = {}, 0
        for key, item in value.items():
            if isinstance(item, float) and not math.isfinite(item):
                dropped += 1
                continue
            kept[str(key)], inner = _finite(item, decimals)
            dropped += inner
        return kept, dropped
    if isinstance(value, list | tuple):
        finite = [v for v in value if not (isinstance(v, float) and not math.isfinite(v))]
        pairs = [_finite(v, decimals) for v in finite]
        dropped = len(value) - len(pairs) + sum(inner for _, inner in pairs)
        return [v for v, _ in pairs], dropped
    if isinstance(value, float) and decimals is not None:
        return round(value, decimals), 0
    return value, 0
