"""`vlm data export`: a split as one table that Hugging Face's `datasets` loads with no code."""

import os
import re
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlm.app.targets import check_writable, unwritable
from vlm.data.joined import JOINED, join, read_told
from vlm.data.writing import SHARD_BYTES, WRITING
from vlm.errors import UserError

ALL = "all"
# Each picture stands beside all its questions; the dictionary holds it once a row group.
SETTINGS: dict[str, Any] = WRITING | {
    "use_dictionary": [*WRITING["use_dictionary"], "image.bytes", "answers.list.element"],
    "dictionary_pagesize_limit": 64 << 20,
}


def export(split: str, data: Path, out: Path | None) -> list[str]:
    """Write a split, or `all` that are there, each as one file, or as shards of one.

    Args:
        split: its name, the folder's below `data`.
        data: the folder of the splits.
        out: the file, or with `all` the folder of them; SPLIT.parquet if not given.

    Returns:
        A line for each file.

    Raises:
        UserError: Tables that are missing or damaged, or a path that can't be written or that
            holds what is read.
    """
    if split != ALL:
        return export_split(data / split, out or Path(f"{split}.parquet"))
    folders = sorted({path.parent for path in data.glob("*/scenes-*.parquet")})
    if not folders:
        next(read_told(data / "train"))  # which says what is missing
    if out is not None and (out.is_file() or out.suffix == ".parquet"):
        raise UserError(f"--out: got {out} with --split all, expected a folder")
    base = out or Path()
    return [line for path in folders for line in export_split(path, base / f"{path.name}.parquet")]


def export_split(folder: Path, out: Path) -> list[str]:
    """Write the tables of one folder as `out`; a line for each file.

    More than fits in one file becomes STEM-00000-of-00003.parquet and on. Nothing appears before
    all is written, and then the files of an earlier export under this name go.
    """
    check_writable(out)
    if any(out.parent.glob("scenes-*.parquet")):
        raise UserError(f"--out: got {out}, expected a folder other than those of a split's tables")
    try:
        with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
            parts, scenes, rows = _write(folder, Path(scratch))
            return [f"{folder}: {scenes:,} scenes, {rows:,} rows", *_place(parts, out)]
    except OSError as error:
        raise unwritable(out, error) from error


def _write(folder: Path, scratch: Path) -> tuple[list[Path], int, int]:
    """The files in their order, under names of their own; how many scenes and rows they hold."""
    parts: list[Path] = []
    scenes = rows = 0
    last = None
    with ExitStack() as stack:
        sink = writer = None
        for told in read_told(folder):
            scenes += len(told.scenes)
            for group in join(told):
                is_new = group["scene_id"][0] != last  # no scene stands in two files
                last = group["scene_id"][-1]
                full = sink is not None and sink.tell() + group.nbytes > SHARD_BYTES
                if writer is None or (full and is_new):
                    stack.close()
                    parts.append(scratch / f"{len(parts):05d}")
                    sink = stack.enter_context(pa.OSFile(str(parts[-1]), "wb"))
                    writer = stack.enter_context(pq.ParquetWriter(sink, JOINED, **SETTINGS))
                writer.write_table(group, row_group_size=len(group))
                rows += len(group)
    return parts, scenes, rows


def _place(parts: list[Path], out: Path) -> list[str]:
    """Give the files their names, and remove those of an earlier export; a line for each."""
    names = [out.name]
    if len(parts) > 1:
        last = f"{len(parts):05d}"
        names = [f"{out.stem}-{number:05d}-of-{last}.parquet" for number in range(len(parts))]
    earlier = re.compile(rf"{re.escape(out.stem)}-\d{{5}}-of-\d{{5}}\.parquet")
    lines = []
    for part, name in zip(parts, names, strict=True):
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.chmod(0o644)
        target = part.replace(out.parent / name)
        lines.append(f"{target}: {target.stat().st_size / 1e6:,.1f} MB")
    for path in out.parent.iterdir():
        if path.name not in names and (path == out or earlier.fullmatch(path.name)):
            path.unlink()
    return lines
