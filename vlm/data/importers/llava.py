"""LLaVA's conversations about pictures, in JSON lists or JSON Lines.

    train.json   [{"id": ..., "image": "a.jpg", "conversations": [
                     {"from": "human", "value": "<image>\nWhat is this?"},
                     {"from": "gpt", "value": "A plus."}, ...]}, ...]
    images/a.jpg (or a.jpg beside the file)

The turns may be spelled `role` and `content`, by `user` and `assistant`, too.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from vlm.data.importers.files import read_json_file, read_json_lines
from vlm.data.importers.finding import check_found, first_file, json_files, split_of
from vlm.data.importers.gathering import Gathering
from vlm.data.importers.rows import Asked, Bad, BadRowError, Found, shown, text

_MARK = "<image>"  # where a conversation's text shows the picture
_ASKS = {"human": True, "user": True, "gpt": False, "assistant": False}


def read(root: Path) -> Iterator[Found | Bad]:
    """Pictures with what was asked about them, and bad rows; a row is a conversation.

    A conversation with one broken turn is bad as a whole: later turns lean on earlier ones.

    Raises:
        UserError: no JSON file, or one that can't be read.
    """
    names = json_files(root, suffixes=(".json", ".jsonl"))
    check_found(root, names, "*.json or *.jsonl")
    pictures = Gathering()
    for name in names:
        for row in _rows(root, name):
            if isinstance(row, Bad):
                yield row
                continue
            named, value = row
            try:
                picture, asked = _conversation(root, value)
                pictures.add(split_of(Path(name).stem), picture, named, *asked)
            except BadRowError as error:
                yield Bad(named, str(error))
    yield from pictures


def _rows(root: Path, name: str) -> Iterator[tuple[str, object] | Bad]:
    if name.lower().endswith(".jsonl"):
        yield from read_json_lines(root, name)
        return
    for number, row in enumerate(read_json_file(root, name, list), 1):
        yield f"{name} row {number}", row


def _conversation(root: Path, row: object) -> tuple[Path, list[Asked]]:
    """The picture of a conversation, and its questions with the replies.

    Raises:
        BadRowError: no picture or several, or turns that aren't question and reply in turn.
    """
    if not isinstance(row, dict):
        raise BadRowError(f"got {shown(row)}, expected an object")
    picture = _picture(root, row.get("image"))
    turns = row.get("conversations")
    if not isinstance(turns, list) or not turns:
        raise BadRowError(f"conversations: got {shown(turns)}, expected a list of turns")
    if len(turns) % 2:
        raise BadRowError(
            f"conversations: got {len(turns)} turns, expected a reply to each question"
        )
    texts = [_turn(turn, place) for place, turn in enumerate(turns)]
    marks = sum(each.count(_MARK) for each in texts[::2])
    if marks > 1:
        raise BadRowError(f"conversations: got {marks} {_MARK}, expected one")
    asked = []
    for place in range(0, len(texts), 2):
        question = text(_without_mark(texts[place]), f"turn {place + 1} without {_MARK}")
        reply = texts[place + 1]
        asked.append(Asked(question, reply, reply, "conversation"))
    return picture, asked


def _picture(root: Path, name: object) -> Path:
    if isinstance(name, list) and len(name) == 1:
        name = name[0]
    if name is None:
        raise BadRowError("image: got no picture, expected one")
    if isinstance(name, list):
        raise BadRowError(f"image: got {len(name)} pictures, expected one")
    if not isinstance(name, str):
        raise BadRowError(f"image: got {shown(name)}, expected the name of a file")
    return first_file(root, [f"images/{name}", name])


def _turn(turn: object, place: int) -> str:
    """What is said at a place, from 0, which says whose turn it is.

    Raises:
        BadRowError: somebody else speaks, or nothing is said.
    """
    what = f"turn {place + 1}"
    if not isinstance(turn, dict):
        raise BadRowError(f"{what}: got {shown(turn)}, expected an object")
    speaker = turn.get("from", turn.get("role"))
    expected = "gpt" if place % 2 else "human"
    if not isinstance(speaker, str) or _ASKS.get(speaker) is not (expected == "human"):
        raise BadRowError(f"{what}: got it from {shown(speaker)}, expected {expected}")
    said = text(turn.get("value", turn.get("content")), what)
    if place % 2 and _MARK in said:
        raise BadRowError(f"{what}: got {_MARK} in a reply, expected it in a question")
    return said


def _without_mark(said: str) -> str:
    """Without the mark and the space around it, save one where words would run together."""
    before, _, after = (part.strip() for part in said.partition(_MARK))
    return f"{before}{after}" if re.match("[,.;:?!]", after) else f"{before} {after}"
