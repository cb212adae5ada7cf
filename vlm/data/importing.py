"""The user's own pictures and texts as the tables that every stage reads.

An importer yields what it finds, row by row; here pictures are decoded, shared out to the splits
and written. Nothing but the rows' texts of one part is held, whatever the size of the source.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TextIO

from vlm.config.data import DataConfig, OwnConfig
from vlm.data import png
from vlm.data.drawn import picture_hash
from vlm.data.imported import SPLITS, ImportedSplit, across_splits
from vlm.data.importers import clevr, easy_vqa, hf_parquet, imagefolder, llava, vqa_v2
from vlm.data.importers.paths import check_folder, unreferenced
from vlm.data.importers.pictures import load_picture
from vlm.data.importers.rows import Bad, BadRowError, Found, SplitName
from vlm.data.ordered import map_in_order
from vlm.data.writing import SplitWriter
from vlm.errors import UserError

READERS: dict[str, Callable[[Path], Iterator[Found | Bad]]] = {
    "clevr": clevr.read,
    "easy_vqa": easy_vqa.read,
    "hf_parquet": hf_parquet.read,
    "imagefolder": imagefolder.read,
    "llava": llava.read,
    "vqa_v2": vqa_v2.read,
}
UNLIKE = "test_ood"  # has no meaning here, and stays a folder without tables
SKIPPED = "skipped.jsonl"  # every row left out, with the reason
LISTED = 100  # of them, that the metrics name too
CHUNK_PICTURES, CHUNK_BYTES = 32, 8 << 20  # what one process decodes at a time, at most
Picture = tuple[bytes, bytes]  # a PNG, and the hash of its pixels


def import_own(
    data: DataConfig, seed: int, root: Path, folder: Path, workers: int
) -> dict[str, Any]:
    """Read `data.own.path`; write a folder of tables for each split, and `SKIPPED` beside them.

    The tables of before go only once all of the new ones are written.

    Args:
        data: of a source that isn't drawn.
        seed: decides with the pixels alone which pictures of train go to val and test.
        root: the folder that `data.own.path` is relative to.
        folder: where the splits' folders are.
        workers: processes that decode pictures; they change no byte.

    Returns:
        The metrics: what each split holds, and which rows were left out.

    Raises:
        UserError: no such folder, a row that can't be used (with `on_bad: error`), or a split
            without pictures.
    """
    source, own = root / data.own.path, data.own
    check_folder("data.own.path", source)
    staging = folder / ".importing"
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    staging.mkdir(parents=True)
    try:
        with ExitStack() as writers:
            listing = writers.enter_context((staging / SKIPPED).open("w", encoding="utf-8"))
            tally = _Tally(source, own, listing)
            splits: dict[SplitName, ImportedSplit] = {
                name: ImportedSplit(writers.enter_context(SplitWriter(staging / name)))
                for name in SPLITS
            }
            work = partial(_decode, own=own)
            chunks = _chunks(READERS[data.source](source))
            for chunk, pictures in map_in_order(work, chunks, workers):
                for found, picture in zip(chunk, pictures, strict=True):
                    tally.count(found, picture)
                    if isinstance(found, Found) and isinstance(picture, tuple):
                        split = _share_out(found.split, picture[1], seed, own)
                        splits[split].add(found, _name(found, source), *picture)
            tally.check_any_left()
            _check_splits(source, splits)
            for split in splits.values():
                split.flush()
        _replace(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return {**across_splits(splits), UNLIKE: _NOTHING, **tally.metrics()}


_NOTHING: dict[str, Any] = {"scenes": 0, "questions": 0, "answers": {}}


@dataclass
class _Tally:
    """What became of each row of the source."""

    source: Path
    own: OwnConfig
    listing: TextIO
    rows_in: int = 0
    rows_out: int = 0
    skipped: int = 0
    first: list[dict[str, str]] = field(default_factory=list)  # of those left out
    files: set[Path] = field(default_factory=set)  # the pictures that have files of their own

    def count(self, found: Found | Bad, picture: Picture | str) -> None:
        """A picture is there, or the reason why a row, or all of a picture's, can't be used."""
        if isinstance(found, Found) and isinstance(found.picture, Path):
            self.files.add(found.picture)
        rows = (found.row,) if isinstance(found, Bad) else found.rows
        self.rows_in += len(rows)
        if isinstance(picture, tuple):
            self.rows_out += len(rows)
            return
        if self.own.on_bad == "error":
            raise UserError(f"{self.source / rows[0]}: {picture}")
        for row in rows:
            bad = {"row": row, "reason": picture}
            self.listing.write(json.dumps(bad, ensure_ascii=False) + "\n")
            self.skipped += 1
            if len(self.first) < LISTED:
                self.first.append(bad)

    def check_any_left(self) -> None:
        """Raise UserError where not one row can be used."""
        if not self.rows_out:
            first = "".join(f"; {bad['row']}: {bad['reason']}" for bad in self.first[:1])
            raise UserError(
                f"{self.source}: got no usable row among {self.rows_in}, expected at least one"
                f"{first}"
            )

    def metrics(self) -> dict[str, Any]:
        """Counts of rows, and the first of those left out."""
        assert self.rows_in == self.rows_out + self.skipped
        return {
            "rows": {"in": self.rows_in, "out": self.rows_out, "skipped": self.skipped},
            "skipped": self.first,
            "unreferenced_files": unreferenced(self.source, self.files) if self.files else 0,
        }


def _chunks(rows: Iterable[Found | Bad]) -> Iterator[list[Found | Bad]]:
    """The rows in lists of a size that is worth sending to a process."""
    chunk: list[Found | Bad] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row.picture) if isinstance(row, Found) and isinstance(row.picture, bytes) else 0
        if len(chunk) == CHUNK_PICTURES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _decode(chunk: list[Found | Bad], own: OwnConfig) -> list[Picture | str]:
    """For each row its picture, or the reason why there is none."""
    return [row.reason if isinstance(row, Bad) else _decode_one(row, own) for row in chunk]


def _decode_one(found: Found, own: OwnConfig) -> Picture | str:
    if not (found.captions or found.asked):
        return "got neither a caption nor a question, expected one"
    try:
        picture = found.picture
        encoded = picture if isinstance(picture, bytes) else picture.read_bytes()
        pixels = load_picture(encoded, own.image_size, own.channels, own.fit, own.max_pixels)
    except BadRowError as error:
        return str(error)
    except OSError as error:
        return f"picture: got a file that can't be read ({error.strerror}), expected a picture"
    return png.encode(pixels), picture_hash(pixels)


def _name(found: Found, source: Path) -> str:
    """By what its owner finds a picture again: its file in the source, or the row that holds it."""
    if isinstance(found.picture, Path):
        return found.picture.relative_to(source).as_posix()
    return found.rows[0]


def _share_out(split: SplitName | None, digest: bytes, seed: int, own: OwnConfig) -> SplitName:
    """The source's own split, or where a hash of seed and pixels moves a picture of train.

    So equal pictures go together, and what else there is moves none.
    """
    if split in ("val", "test"):
        return split
    hashed = blake2b(digest, digest_size=8, key=str(seed).encode()).digest()
    draw = int.from_bytes(hashed, "big") / 2**64
    if draw < own.val_share:
        return "val"
    return "test" if draw < own.val_share + own.test_share else "train"


def _check_splits(source: Path, splits: dict[SplitName, ImportedSplit]) -> None:
    """Raise UserError for a split that a stage would need and that has no picture."""
    for name, split in splits.items():
        if not split.num_scenes:
            how = f"raise data.own.{name}_share"
            if name == "train":
                how = "lower data.own.val_share and data.own.test_share"
            raise UserError(f"{source}: got no pictures for {name}, expected at least one; {how}")


def _replace(staging: Path, folder: Path) -> None:
    """Put the new tables and the list where the old ones are."""
    (staging / SKIPPED).replace(folder / SKIPPED)
    for name in (*SPLITS, UNLIKE):
        there = folder / name
        there.mkdir(parents=True, exist_ok=True)
        new = sorted(staging.glob(f"{name}/*.parquet"))
        for path in new:
            path.replace(there / path.name)
        for stale in set(there.glob("*.parquet")) - {there / path.name for path in new}:
            stale.unlink()
