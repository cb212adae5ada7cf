"""Whatever is wrong with a data set, an import ends in tables or in one line for its owner.

A format's test builds a small data set as a dict of files; `check_mutations` breaks it in many
ways, one at a time, and imports what is left.
"""

import json
import os
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from project import read_preset

from vlm.config.data import DataConfig
from vlm.data.importing import import_own
from vlm.errors import UserError

Files = dict[str, bytes]
Rng = np.random.Generator
FOLDER = "data/external/own"
ODD_VALUES: list[Any] = [
    *(None, True, -1, 0, 3.5, 1e300, 10**400, "", " ", "a\0b", "\ud800", "é💡", "x" * 5000),
    *([], {}, [None], [[]], {"bytes": None}, [{"answer": 3}], ["yes", "no"], ["yes", 3]),
    *("../secret.png", "/etc/passwd", ".", "..", "no such file.png", "a/b/c.png", "0.png\n"),
]
ODD_JSON = [b"9" * 5000, b"NaN", b"-Infinity", b"1e999", b'"\\ud800"', b"[" * 20_000, b"{", b""]


def picture(number: int, kind: str = "PNG") -> bytes:
    """A small picture, each number's another."""
    pixels = np.random.default_rng(number).integers(0, 256, (6 + number % 3, 7, 3), np.uint8)
    out = BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_lines(rows: list[Any]) -> bytes:
    return b"".join(as_json(row) + b"\n" for row in rows)


def as_parquet(rows: list[dict[str, Any]] | pa.Table, **how: Any) -> bytes:
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    out = pa.BufferOutputStream()
    pq.write_table(table, out, **how)
    return out.getvalue().to_pybytes()


def write(files: Files, folder: Path) -> None:
    """Put a data set in the place of the one before."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    for name, content in files.items():
        path = folder / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def run(source: str, folder: Path, seed: int = 0, workers: int = 1, **own: Any) -> dict[str, Any]:
    """Import what lies in `folder`; the metrics."""
    values = read_preset("tiny")["data"]
    values["own"] |= {"image_size": 8, "val_share": 0.0, "test_share": 0.0} | own
    data = DataConfig.model_validate(values | {"source": source})
    return import_own(data, seed, folder, folder / "data", workers)


def check_mutations(source: str, files: Files, folder: Path, number: int = 200, **own: Any) -> None:
    """Break `files` in `number` ways; each ends in a whole import or in one line.

    Args:
        source: the format.
        files: a data set of a dozen rows, with pictures for train, val and test.
        folder: an empty one.
        number: how many; each is the same at every call.
        own: parameters, such as a val_share where the format has no split of that name.
    """
    write(files, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # which takes most of the time
        write(files, folder)
        whole = run(source, folder, **own)
        assert whole["rows"]["skipped"] == 0 and whole["rows"]["in"] >= 10
        ends = {"whole": 0, "skipped": 0, "refused": 0}
        for seed in range(number):
            write(mutate(files, np.random.default_rng((seed, len(source)))), folder)
            ends[_end(source, folder, f"{source}: mutation {seed}", own)] += 1
    assert min(ends.values()) > number // 20, ends


def _end(source: str, folder: Path, name: str, own: dict[str, Any]) -> str:
    try:
        metrics = run(source, folder, **own, on_bad="skip")
    except UserError as error:
        _check_line(error, name)
        return "refused"
    except Exception as error:
        raise AssertionError(name) from error
    rows = metrics["rows"]
    assert rows["in"] == rows["out"] + rows["skipped"], name
    listed = (folder / "data/skipped.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(listed) == rows["skipped"], name
    assert metrics["skipped"] == [json.loads(line) for line in listed[:100]], name
    for split in ("train", "val", "test"):
        for table in ("scenes", "questions"):
            shards = (folder / "data" / split).glob(f"{table}-*.parquet")
            written = sum(pq.read_metadata(shard).num_rows for shard in shards)
            assert written == metrics[split][table], name
    if not rows["skipped"]:
        return "whole"
    first = metrics["skipped"][0]
    with pytest.raises(UserError) as caught:
        run(source, folder, **own, on_bad="error")
    assert str(caught.value) == f"{folder / FOLDER / first['row']}: {first['reason']}", name
    _check_line(caught.value, name)
    return "skipped"


def _check_line(error: UserError, name: str) -> None:
    assert len(str(error).splitlines()) == 1 and "0x" not in str(error), name
    assert len(str(error)) < 800, name


def mutate(files: Files, rng: Rng) -> Files:
    """The data set with one thing wrong with it."""
    names = sorted(files)
    texts = [name for name in names if name.endswith((".json", ".jsonl", ".parquet"))]
    name = str(rng.choice(texts if rng.random() < 0.75 else names))
    if name.endswith(".parquet"):
        changes = [_of_bytes, _of_files, _of_table, _of_table]
    elif name in texts:
        changes = [_of_bytes, _of_files, _of_json, _of_json, _of_json, _of_encoding]
    else:
        changes = [_of_bytes, _of_files]
    change: Callable[[Files, str, Rng], Files] = changes[int(rng.integers(len(changes)))]
    return {**change(dict(files), name, rng)}


def _of_bytes(files: Files, name: str, rng: Rng) -> Files:
    """Cut off, emptied, or with bytes changed, left out or put in."""
    content = bytearray(files[name])
    place = int(rng.integers(max(len(content), 1)))
    kind = int(rng.integers(5))
    if kind == 0:
        content = content[:place]
    elif kind == 1:
        content.clear()
    elif kind == 2:
        del content[place : place + int(rng.integers(1, 9))]
    elif kind == 3:
        content[place:place] = rng.bytes(int(rng.integers(1, 9)))
    else:
        for _ in range(int(rng.integers(1, 6))):
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
    return {**files, name: bytes(content)}


def _of_files(files: Files, name: str, rng: Rng) -> Files:
    """Gone, renamed, or with another's content."""
    other = str(rng.choice(sorted(files)))
    kind = int(rng.integers(3))
    if kind == 0:
        return {**files, name: files[other], other: files[name]}
    content = files.pop(name)
    return files if kind == 1 else {**files, f"{name}.old": content}


def _of_encoding(files: Files, name: str, rng: Rng) -> Files:
    text = files[name].decode()
    odd = (
        text.encode("utf-16"),
        text.encode("utf-8-sig"),
        text.replace("e", "é").encode("latin-1"),
    )
    return {**files, name: odd[int(rng.integers(len(odd)))]}


def _of_json(files: Files, name: str, rng: Rng) -> Files:
    """One value, somewhere in the tree, is odd, gone or there twice."""
    is_lines = name.endswith(".jsonl")
    text = files[name].decode()
    tree = [json.loads(line) for line in text.splitlines()] if is_lines else json.loads(text)
    places = list(_places(tree))
    node, key = places[int(rng.integers(len(places)))]
    kind = int(rng.integers(5))
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, list):
        node.insert(int(rng.integers(len(node) + 1)), node[key])
    elif kind == 2:
        node[key] = "?here?"
        content = as_lines(tree) if is_lines else as_json(tree)
        odd = ODD_JSON[int(rng.integers(len(ODD_JSON)))]
        return {**files, name: content.replace(b'"?here?"', odd)}
    else:
        node[key] = ODD_VALUES[int(rng.integers(len(ODD_VALUES)))]
    return {**files, name: as_lines(tree) if is_lines else as_json(tree)}


def _places(node: Any) -> Any:
    """Where a tree holds a value: each list or object, and the index or key."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(items):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _of_table(files: Files, name: str, rng: Rng) -> Files:
    """A cell is null, a column gone, renamed or of another type, or the rows are in disorder."""
    table = pq.read_table(pa.BufferReader(files[name]))
    column = int(rng.integers(table.num_columns))
    row, kind = int(rng.integers(len(table))), int(rng.integers(7))
    title = table.column_names[column]
    values = table.column(column).to_pylist()
    if kind == 0:
        values[row] = None
        table = table.set_column(column, title, pa.array(values, table.column(column).type))
    elif kind == 1:
        table = table.drop_columns([title])
    elif kind == 2:
        table = table.rename_columns(
            [f"{name}?" if name == title else name for name in table.column_names]
        )
    elif kind == 3:
        table = table.set_column(column, title, pa.array([str(value) for value in values]))
    elif kind == 4:
        table = table.set_column(column, title, pa.array([3] * len(values)))
    elif kind == 5:
        table = table.take(rng.integers(0, len(table), len(table) + 3))
    else:
        odd = [b"\xff\xfe", b"", b"a\0b", b"x" * 5000][int(rng.integers(4))]
        chars = pa.array([odd if n == row else b"yes" for n in range(len(values))], pa.binary())
        damaged = pa.Array.from_buffers(pa.string(), len(chars), chars.buffers())
        table = table.set_column(column, title, damaged)
    return {**files, name: as_parquet(table)}
