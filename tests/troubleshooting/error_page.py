"""The troubleshooting page as its tests read it, and the type of what raises an error.

An entry is a heading of level 3, the error's text in backticks; then its cause, then its mend.
In a text `…` stands for words that vary: a library's own, or numbers that rounding decides.
"""

import re
from collections.abc import Callable

from project import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
VARIES = "…"

Raiser = Callable[[], str | None]  # raises the error, or gives the line that a process ended with


def groups() -> dict[str, list[str]]:
    """The entries of the page by section, each whole, its heading first."""
    _, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    parts = [re.split(r"^### ", section, flags=re.MULTILINE) for section in sections]
    return {title.splitlines()[0]: entries for title, *entries in parts}


def text_of(entry: str) -> str:
    """The error's text; an entry of another form is a mistake of the page."""
    heading = re.fullmatch(r"`([^`]+)`", entry.splitlines()[0])
    assert heading, f"not an error's text in backticks: {entry.splitlines()[0]}"
    return heading[1]


def texts() -> list[str]:
    """The text of every entry, in the page's order."""
    return [text_of(entry) for entries in groups().values() for entry in entries]


def says(text: str, line: str) -> bool:
    """Whether `line` is what an entry's text promises."""
    return re.fullmatch(".+".join(map(re.escape, text.split(VARIES))), line) is not None
