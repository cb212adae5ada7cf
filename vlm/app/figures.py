"""The values of a metrics file under dotted names."""

from collections.abc import Iterator, Mapping
from typing import Any


def flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that isn't a mapping, named by the keys that lead to it."""
    for key, value in values.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from flat(value, name)
        else:
            yield name, value
