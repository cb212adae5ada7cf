"""`vlm compare`: what it says of captions and retrieval, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compared_runs import (
    SCENES,
    Rows,
    caption_rows,
    git,
    make_repository,
    question_rows,
    write_predictions,
    write_split,
)
from project import ROOT

from vlm.app.compare import compare
from vlm.app.sides import read_side
from vlm.errors import UserError
from vlm.files import read_json

PAGE, JSON = Path("page.html"), Path("figures.json")
NAMES = ("image_to_text_R@1", "text_to_image_R@1")
# A library of DVC's warns about itself.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep:DeprecationWarning")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def retrieved(*hits: float | None) -> Rows:
    """Captions with R@1 alike in both directions."""
    rows = zip(caption_rows(), hits, strict=True)
    return [{**row, **dict.fromkeys(NAMES, hit)} for row, hit in rows]


def compared(one: Rows | None, two: Rows | None) -> tuple[dict, list[str]]:
    """The metrics, and the remarks on captions."""
    for folder, captions in (("one", one), ("two", two)):
        write_predictions(Path(folder), question_rows(), captions)
    _, remarks = compare("one", "two", PAGE, 5, JSON)
    return read_json(JSON)["metrics"], [each for each in remarks if "pictures" not in each]


def test_retrieval_is_compared_over_the_gallery() -> None:
    metrics, remarks = compared(retrieved(1.0, 1.0, 0.5, None), retrieved(0.0, 1.0, 0.5, None))
    assert not remarks
    for name in NAMES:
        found = metrics[f"retrieval.{name}"]
        assert (found["a"], found["b"]) == pytest.approx((2.5 / 3, 1.5 / 3))
        assert (found["only_a"], found["only_b"]) == (1, 0)
        assert ("p" in found) == (name == NAMES[0])
    assert "retrieval: R@1, picture to caption" in PAGE.read_text()


@pytest.mark.parametrize(
    ("two", "reason"),
    [
        (retrieved(1.0, 1.0, None, None), "the sides have different galleries"),
        (retrieved(None, None, None, None), "side B has none"),
        (caption_rows(), "side B has none"),
    ],
)
def test_retrieval_is_left_out_with_the_reason(two: Rows, reason: str) -> None:
    metrics, remarks = compared(retrieved(1.0, 1.0, 0.5, None), two)
    assert remarks == [f"{name} is left out: {reason}" for name in NAMES]
    assert "caption.exact" in metrics and not any("retrieval" in name for name in metrics)


def test_a_gallery_with_another_scene_of_the_same_id_is_another() -> None:
    others = retrieved(1.0, 1.0, 0.5, None)
    others[0]["reference"] = "another"
    _, remarks = compared(retrieved(1.0, 1.0, 0.5, None), others)
    left_out = [f"{name} is left out: the sides have different galleries" for name in NAMES]
    assert remarks[-2:] == left_out


def test_captions_are_left_out_with_the_reason() -> None:
    others = [{**row, "scene_id": SCENES + row["scene_id"]} for row in caption_rows()]
    for one, two, reason in (
        (caption_rows(), None, "side B has none"),
        (None, caption_rows(), "side A has none"),
        (None, None, "neither side has any"),
        (caption_rows(), others, "the sides have none of the same scenes"),
    ):
        for folder in ("one", "two"):
            Path(folder, "captions.parquet").unlink(missing_ok=True)
        _, remarks = compared(one, two)
        assert remarks == [f"captions are left out: {reason}"]


def test_splits_that_agree_here_and_there_are_refused() -> None:
    """Half of the smaller side's questions is enough, and less isn't."""
    write_predictions(Path("one"), question_rows())
    others = question_rows()
    for at in (0, 3):  # a question of two scenes, and so all of theirs
        others[at]["question"] = "another"
    write_predictions(Path("two"), others)
    _, remarks = compare("one", "two", PAGE, 5, None)
    assert "6 questions only in A are left out" in remarks
    others[6]["answer"] = "another"
    write_predictions(Path("two"), others)
    with pytest.raises(UserError) as raised:
        compare("one", "two", PAGE, 5, None)
    assert str(raised.value) == (
        "one, two: got 3 questions in common among 12 and 12, expected at least half of the"
        " smaller side's"
    )
    write_predictions(Path("two"), question_rows()[:2])  # few, and all in common
    compare("one", "two", PAGE, 5, None)


def test_a_scene_captioned_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"^B's captions: got scene_id 2 twice, expected one row"):
        compared(caption_rows(), [*caption_rows(), caption_rows()[2]])


def test_texts_that_are_not_utf_8_are_one_line_and_status_2() -> None:
    write_predictions(Path("one"), question_rows())
    table = pq.read_table("one/questions.parquet")
    ends = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in range(len(table) + 1)))
    broken = pa.Array.from_buffers(
        pa.string(), len(table), [None, ends, pa.py_buffer(b"\xff" * len(table))]
    )
    Path("two").mkdir()
    place = table.column_names.index("phrase")
    pq.write_table(table.set_column(place, "phrase", broken), "two/questions.parquet")
    command = [sys.executable, "-m", "vlm", "compare", "one", "two"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("two/questions.parquet: got ") and line.endswith("a Parquet file")
    assert "UTF8" in line


@pytest.mark.parametrize(
    "page", ["notes.txt/page.html", "notes.txt/a/page.html", "/proc/no/p.html"]
)
def test_a_page_that_cannot_be_written_is_told_before_the_work(page: str) -> None:
    Path("notes.txt").touch()
    expected = rf"^{page}: got .+, expected a path that can be written$"
    with pytest.raises(UserError, match=expected):
        compare("no such side", "nor this", Path(page), 5, None)


def test_a_disk_that_fills_up_meanwhile_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vlm.app.compare.write_text", full)
    with pytest.raises(UserError, match=r"^page.html: got No space left on device, expected a"):
        compared(None, None)


def test_nothing_that_is_read_is_written_over() -> None:
    rows = question_rows()
    write_predictions(Path("data/predictions"), rows, caption_rows())
    write_split(Path("data/test"), rows)
    write_predictions(Path("two"), rows)
    Path("link").symlink_to("two")
    before = {path: path.read_bytes() for path in Path().rglob("*.parquet")}
    for target, owner in (
        ("data/predictions/captions.parquet", "side A"),
        ("two/../data/predictions/questions.parquet", "side A"),
        ("link/questions.parquet", "side B"),
        ("data/test/scenes-00000.parquet", "side A"),
    ):
        expected = rf"^--(out|json): got {target}, expected a path of its own, not {owner}'s$"
        with pytest.raises(UserError, match=expected):
            compare("workspace", "two", Path(target), 5, None)
        with pytest.raises(UserError, match=expected):
            compare("workspace", "two/questions.parquet", PAGE, 5, Path(target))
    with pytest.raises(UserError, match=r"^--json: got two/../page.html, .*not --out's$"):
        compare("workspace", "two", PAGE, 5, Path("two/../page.html"))
    assert before == {path: path.read_bytes() for path in Path().rglob("*.parquet")}
    assert not PAGE.exists()


@pytest.mark.pipeline
def test_what_git_takes_for_a_revision_and_is_no_commit() -> None:
    make_repository()
    git("tag", "of-a-tree", "HEAD^{tree}")
    git("tag", "--annotate", "of-a-commit", "v1", "--message", "note")
    for name in ("HEAD:data", "HEAD:data/test.dvc", "HEAD^{tree}", "of-a-tree"):
        with pytest.raises(UserError) as raised:
            read_side(name)
        assert str(raised.value).startswith(f"{name}: no such path, revision or experiment")
    assert read_side("of-a-commit").questions == question_rows()
