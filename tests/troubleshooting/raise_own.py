"""What makes each error of the page's section on the user's own data appear."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Never

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from error_page import Raiser
from raise_parameters import tiny

from stages import generate
from vlm.data import png
from vlm.data.importers.paths import below
from vlm.data.ordered import map_in_order

ROOT = "data/external/own"
LINE = {"question": "is it a plus", "answer": "yes"}


def imported(source: str, files: dict[str, bytes | str], **own: object) -> Raiser:
    """Imports a folder that holds these files."""

    def raiser() -> None:
        for name, content in files.items():
            path = Path(ROOT, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        changes = {f"data__own__{key}": value for key, value in own.items()}
        generate.main(tiny(data__source=source, **changes))

    return raiser


def lines(number: int) -> str:
    """A `metadata.jsonl` of as many pictures."""
    return "".join(json.dumps({"file_name": f"{n}.png", **LINE}) + "\n" for n in range(number))


def pictures(number: int) -> dict[str, bytes | str]:
    """As many pictures, each another."""
    flat = {n: np.full((1, 8, 8), n, np.uint8) for n in range(number)}
    return {f"{n}.png": png.encode(image) for n, image in flat.items()}


def table(**columns: list[str]) -> bytes:
    """A Parquet file."""
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), out)
    return out.getvalue().to_pybytes()


def unreadable() -> None:
    """Meets a folder that the system doesn't open, whoever asks."""

    def walk(_: Path, onerror: Callable[[OSError], None]) -> Iterator[Never]:
        onerror(PermissionError(13, "Permission denied", f"{ROOT}/more"))
        yield from ()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "walk", walk)
        below(Path(ROOT), bool)


OWN: dict[str, Raiser] = {
    f"data.own.path: got {ROOT}, expected a folder that is there": imported("imagefolder", {}),
    f"{ROOT}/metadata.jsonl line 3: picture: got …, expected …": imported(
        "imagefolder", {**pictures(3), "2.png": "GIF89a", "metadata.jsonl": lines(3)}
    ),
    f"{ROOT}/train-00000.parquet: got columns ['question', 'answer'], expected one of pictures": (
        imported("hf_parquet", {"train-00000.parquet": table(question=["?"], answer=["yes"])})
    ),
    f"{ROOT}/train/questions.json: got …, expected JSON: a list": imported(
        "easy_vqa", {"train/questions.json": "[["}
    ),
    f"{ROOT}: got no metadata.jsonl, expected one there or in a folder below": imported(
        "imagefolder", pictures(1)
    ),
    f"{ROOT}: got no Parquet files, expected at least one": imported("hf_parquet", pictures(1)),
    f"{ROOT}: got no pictures for test, expected at least one; raise data.own.test_share": (
        imported(
            "imagefolder",
            {**pictures(9), "metadata.jsonl": lines(9)},
            val_share=0.5,
            test_share=0.0,
        )
    ),
    f"{ROOT}: got no usable row among 3, expected at least one; …": imported(
        "imagefolder", {"metadata.jsonl": lines(3)}, on_bad="skip"
    ),
    f"{ROOT}/more: got 'Permission denied', expected a folder that can be read": unreadable,
    "one of runtime.workers 2 was ended from outside, as the system does when memory runs out;"
    " fewer need less": lambda: list(map_in_order(os._exit, [3], 2)) and None,
}
