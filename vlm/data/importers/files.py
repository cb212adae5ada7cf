"""JSON and JSON Lines of the user's folder, read without trust."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from vlm.data.importers.paths import fault, spelled
from vlm.data.importers.rows import Bad, shown
from vlm.errors import UserError

_BOM = b"\xef\xbb\xbf"
_KINDS = {dict: "an object", list: "a list"}


def read_text_file(root: Path, name: str, expected: str) -> str:
    """A UTF-8 text file under `root`, a byte order mark at its begin left out.

    Args:
        root: the user's folder.
        name: relative to it.
        expected: what the file should be, for the message.

    Raises:
        UserError: no such file, or not UTF-8.
    """
    _check_file(root, name, expected)
    try:
        return (root / name).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        got = "bytes that are no UTF-8"
    except OSError as error:
        got = f"a file that can't be read ({error.strerror})"
    raise UserError(f"{root / name}: got {got}, expected {expected}")


def read_json_file(root: Path, name: str, kind: type[dict[Any, Any]] | type[list[Any]]) -> Any:
    """A JSON file under `root`, which holds an object or a list.

    Raises:
        UserError: no such file, not UTF-8, not JSON, or another kind of value.
    """
    expected = f"JSON: {_KINDS[kind]}"
    try:
        value = _parse(read_text_file(root, name, expected))
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{root / name}: got {error}, expected {expected}") from None
    if not isinstance(value, kind):
        raise UserError(f"{root / name}: got {shown(value)}, expected {expected}")
    return value


def read_json_lines(root: Path, name: str) -> Iterator[tuple[str, dict[str, Any]] | Bad]:
    """The objects of a JSON Lines file under `root`, each with its row's name, or what is bad.

    Blank lines are no rows. A line that can't be read is a bad row, and no other row suffers.

    Raises:
        UserError: no such file.
    """
    _check_file(root, name, "JSON Lines")
    with (root / name).open("rb") as lines:
        for number, line in enumerate(lines, 1):
            row = f"{name} line {number}"
            line = line.removeprefix(_BOM) if number == 1 else line
            if not line.strip():
                continue
            try:
                value = _parse(line.decode())
            except UnicodeDecodeError:
                yield Bad(row, "got bytes that are no UTF-8, expected a JSON object")
                continue
            except ValueError as error:
                yield Bad(row, f"got {error}, expected a JSON object")
                continue
            if isinstance(value, dict):
                yield row, value
            else:
                yield Bad(row, f"got {shown(value)}, expected a JSON object")


def _check_file(root: Path, name: str, expected: str) -> None:
    got = fault(root, name)
    if got:
        raise UserError(f"{spelled(root, name)}: got {got}, expected {expected}")


def _parse(content: str) -> Any:
    """Strict JSON.

    Raises:
        ValueError: what was got instead.
    """
    try:
        return json.loads(content, parse_constant=_refuse, parse_float=_float, parse_int=_int)
    except json.JSONDecodeError as error:
        place = f" of line {error.lineno}" if "\n" in content else ""
        raise ValueError(f"no JSON at character {error.colno}{place}") from None
    except RecursionError:
        raise ValueError("lists or objects nested too deep") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number too large")
    return value


def _int(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python's own limit on digits
        raise ValueError("a number too large") from None
