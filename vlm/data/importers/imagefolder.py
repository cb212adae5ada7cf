"""Pictures with a `metadata.jsonl`, as Hugging Face lays them out.

Each line is an object: `file_name`, a picture's name beside the file, and what `records.py` reads:
captions (`caption`, `captions`, `text`), one question (`question`, `answer`, `phrase`, `answers`,
`family`) or several (`questions`, a list of such objects). Lines that name the same picture add to
it. The file lies in the folder itself or, one for each split, in `train/`, `val/` and `test/`;
a picture's split is that of the folder it lies in.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from vlm.data.importers.files import read_json_lines
from vlm.data.importers.paths import inside
from vlm.data.importers.records import read_record
from vlm.data.importers.rows import SPLITS, Asked, Bad, BadRowError, Found, SplitName, text
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
    places = [place for place in ("", *(f"{name}/" for name in SPLITS)) if _has(root, place)]
    if not places:
        raise UserError(f"{root}: got no {METADATA}, expected one there or in train/")
    pictures: dict[Path, _Picture] = {}
    for place in places:
        for line in read_json_lines(root, f"{place}{METADATA}"):
            if isinstance(line, Bad):
                yield line
                continue
            row, record = line
            try:
                name = place + text(record.get("file_name"), "file_name")
                path = inside(root, name)
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


def _has(root: Path, place: str) -> bool:
    return (root / place / METADATA).exists()


def _split_of(path: Path) -> SplitName | None:
    parts = PurePosixPath(path).parts
    return SPLITS.get(parts[0].lower()) if len(parts) > 1 else None
