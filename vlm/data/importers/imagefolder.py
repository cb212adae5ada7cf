"""Pictures with a `metadata.jsonl`, as Hugging Face lays them out.

Each line is an object: `file_name`, a picture's name beside the file, and what `records.py` reads:
captions (`caption`, `captions`, `text`), one question (`question`, `answer`, `phrase`, `answers`,
`family`) or several (`questions`, a list of such objects). Lines that name the same picture add to
it. Such files lie in the folder itself or in any below it, such as one for each split; a picture's
split is that of the folder it lies in.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from vlm.data.importers.files import read_json_lines
from vlm.data.importers.paths import below, inside
from vlm.data.importers.records import read_record
from vlm.data.importers.rows import SPLITS, Asked, Bad, BadRowError, Found, SplitName, shown
from vlm.errors import UserError

METADATA = "metadata.jsonl"


@dataclass
class _Picture:
    """What the lines so far say of a picture."""

    rows: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)


def read(root: Path) -> Iterator[Found | Bad]:
    """Every picture that a line names; pictures that none names are no rows."""
    files = below(root, METADATA.__eq__)
    if not files:
        raise UserError(f"{root}: got no {METADATA}, expected one there or in a folder below")
    pictures: dict[Path, _Picture] = {}
    for file in files:
        for line in read_json_lines(root, file):
            if isinstance(line, Bad):
                yield line
                continue
            row, record = line
            try:
                path = inside(root, file.removesuffix(METADATA) + _file_name(record))
                captions, asked = read_record(record)
                if not (captions or asked):
                    raise BadRowError("got neither a caption nor a question, expected one")
            except BadRowError as error:
                yield Bad(row, str(error))
                continue
            picture = pictures.setdefault(path, _Picture())
            picture.rows.append(row)
            picture.captions += captions
            picture.asked += asked
    for path, picture in pictures.items():
        texts = tuple(picture.captions), tuple(picture.asked)
        yield Found(_split_of(path.relative_to(root)), path, tuple(picture.rows), *texts)


def _file_name(record: dict[str, Any]) -> str:
    """The picture's name as it stands: spaces in it may be doubled, or no plain ones."""
    name = record.get("file_name")
    if not isinstance(name, str):
        raise BadRowError(f"file_name: got {shown(name)}, expected text")
    return name


def _split_of(path: Path) -> SplitName | None:
    parts = PurePosixPath(path).parts
    return SPLITS.get(parts[0].lower()) if len(parts) > 1 else None
