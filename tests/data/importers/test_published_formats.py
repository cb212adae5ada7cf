"""CLEVR, VQA v2 and LLaVA through the whole import, as they are and broken."""

from collections.abc import Callable
from pathlib import Path

import pytest
from mutations import FOLDER, Files, check_mutations, run
from published import write_clevr, write_llava, write_vqa

from vlm.data.tables import read_questions, read_scenes

WRITERS: dict[str, Callable[[Path], int]] = {
    "clevr": write_clevr,
    "vqa_v2": write_vqa,
    "llava": write_llava,
}


@pytest.mark.parametrize("source", WRITERS)
def test_every_row_is_in_the_tables(tmp_path: Path, source: str):
    rows = WRITERS[source](tmp_path / FOLDER)
    metrics = run(source, tmp_path)
    assert metrics["rows"] == {"in": rows, "out": rows, "skipped": 0}
    assert metrics["unreferenced_files"] == 0
    for split in ("train", "val", "test"):
        assert len(read_scenes(tmp_path / "data" / split)) == metrics[split]["scenes"] > 0


def test_questions_with_their_answers_stand_in_for_captions(tmp_path: Path):
    write_clevr(tmp_path / FOLDER)
    run("clevr", tmp_path)
    scenes, questions = (read(tmp_path / "data/val") for read in (read_scenes, read_questions))
    told = [f"{q} {a}" for q, a in zip(questions.question, questions.answer, strict=True)]
    assert scenes.captions == [told] and len(told) == 2


@pytest.mark.parametrize("source", WRITERS)
def test_whatever_is_broken_rows_are_written_or_listed(tmp_path: Path, source: str):
    WRITERS[source](tmp_path / "whole")
    paths = sorted(path for path in (tmp_path / "whole").rglob("*") if path.is_file())
    files: Files = {
        path.relative_to(tmp_path / "whole").as_posix(): path.read_bytes() for path in paths
    }
    check_mutations(source, files, tmp_path / "import")
