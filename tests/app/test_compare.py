"""`vlm compare`: where its sides come from, and what it leaves."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compared_runs import (
    caption_rows,
    git,
    make_repository,
    question_rows,
    write_predictions,
    write_split,
)
from project import ROOT
from typer.testing import CliRunner

from vlm.app.cli import app
from vlm.app.compare import compare, read_pictures
from vlm.app.sides import read_side
from vlm.errors import UserError
from vlm.evaluation.pairing import pair_questions

PAGE = Path("page.html")
# A library of DVC's warns about itself.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep:DeprecationWarning")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    before = Path.cwd()
    os.chdir(folder)
    try:
        make_repository()
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def repository(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in, since tests change it."""
    shutil.copytree(made, tmp_path / "project", symlinks=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def two_folders() -> None:
    write_predictions(Path("one/data/predictions"), question_rows(), caption_rows())
    worse = question_rows({0: "no", 7: "maybe"})
    write_predictions(Path("two/data/predictions"), worse, caption_rows(2))


def test_two_folders() -> None:
    two_folders()
    out = CliRunner().invoke(
        app,
        ["compare", "one/data/predictions", "two/data/predictions", "--json", "figures.json"],
    )
    assert out.exit_code == 0, out.output
    lines = out.stdout.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+(?: \S+)*", lines[0])]
    for line in lines[1:13]:  # every column begins where its head does
        assert all(line[at - 1] == " " and line[at] != " " for at in starts[1:] if at < len(line))
    per_question = next(line for line in lines if line.startswith("classifier.exact_match_per"))
    cells = ["1.0000", "0.8333", "-0.1667", "[-0.3333,", "+0.0000]", "2", "0", "0.5", "-"]
    assert per_question.split()[1:4] == cells[:3] and per_question.split()[6:] == cells[5:]
    assert "classifier: 2 of 12 questions on 4 pictures changed: 2 lost, 0 " in out.stdout
    assert lines[-1] == "Page: compare.html"
    assert out.stderr.splitlines() == [
        "image_to_text_R@1 is left out: neither side has any",
        "text_to_image_R@1 is left out: neither side has any",
        "no pictures: no test split at hand asks these questions",
    ]
    assert "Lost, A was right and B is wrong: 2 shown of 2" in Path("compare.html").read_text()
    text = Path("figures.json").read_text()
    figures = json.loads(text)
    assert text == json.dumps(figures, indent=2, sort_keys=True, allow_nan=False) + "\n"
    assert figures["metrics"]["caption.exact"]["only_a"] == 2
    assert figures["metrics"]["caption.exact"]["difference"] == -0.5
    assert figures["changed"]["classifier"] == {"lost": 2, "still_wrong": 0, "gained": 0}
    assert (figures["questions"], figures["only_in_a"]) == (12, 0)
    assert sorted(path.name for path in Path().iterdir()) == [
        *("compare.html", "figures.json", "one", "two"),
    ]


def test_a_file_of_questions_is_a_side_without_captions() -> None:
    two_folders()
    text, remarks = compare(
        "one/data/predictions", "two/data/predictions/questions.parquet", PAGE, 5, None
    )
    assert not any(line.startswith("caption.exact") for line in text.splitlines())
    assert "captions are left out: side B has none" in remarks


def test_questions_of_one_side_alone_are_counted() -> None:
    write_predictions(Path("one"), question_rows())
    write_predictions(Path("two"), question_rows()[:-2])
    _, remarks = compare("one", "two", PAGE, 5, None)
    assert "2 questions only in A are left out" in remarks


def test_scenes_with_other_captions_are_others_whatever_is_asked_of_them() -> None:
    write_predictions(Path("one"), question_rows(), caption_rows())
    others = caption_rows()
    others[1]["reference"] = "another"
    write_predictions(Path("two"), question_rows(), others)
    _, remarks = compare("one", "two", PAGE, 5, None)
    assert [r for r in remarks if "only in" in r] == [
        f"3 questions only in {side} are left out" for side in "AB"
    ]


def test_a_confidence_of_the_generator_is_read_where_there_is_one() -> None:
    rows = [{**row, "generator_confidence": 0.5} for row in question_rows()]
    write_predictions(Path("new"), rows)
    write_predictions(Path("old"), question_rows())
    assert read_side("new").questions == rows
    assert read_side("old").questions == question_rows()


@pytest.mark.pipeline
def test_revisions_and_the_workspace(repository: Path) -> None:
    write_predictions(Path("data/predictions"), question_rows({3: "no"}), caption_rows())
    commit = subprocess.check_output(["git", "rev-parse", "v1"], text=True).strip()
    first = read_side("v1")
    assert first.questions == question_rows() and len(first.captions or []) == 4
    for name in (commit, commit[:8], "tall-bees", "HEAD~1"):
        assert read_side(name).questions == first.questions
    for name in ("v2", "main", "HEAD"):
        assert read_side(name).questions == question_rows({0: "no", 5: "maybe"})
        assert not (read_side(name).captions or [])[3]["exact"]
    assert read_side("workspace").questions == question_rows({3: "no"})
    text, remarks = compare("tall-bees", "v2", PAGE, 5, None)
    assert "classifier: 2 of 12" in text
    assert all(remark.endswith("_R@1 is left out: neither side has any") for remark in remarks)
    assert PAGE.read_text().count("<img ") == 2
    assert "Page: page.html" in text
    assert not subprocess.check_output(["git", "diff", "v2", "--", "*.dvc"])  # nothing checked out


@pytest.mark.pipeline
def test_a_project_may_lie_within_a_larger_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    git("init")
    Path("project").mkdir()
    monkeypatch.chdir("project")
    make_repository(within=True)
    write_predictions(Path("data/predictions"), question_rows({3: "no"}))
    assert read_side("v1").questions == question_rows()


@pytest.mark.pipeline
def test_a_path_wins_over_a_revision(repository: Path) -> None:
    write_predictions(Path("v1"), question_rows({2: "no"}))
    assert read_side("v1").questions == question_rows({2: "no"})


@pytest.mark.pipeline
def test_a_cleared_cache_is_one_line_that_names_the_revision(repository: Path) -> None:
    shutil.rmtree(".dvc/cache")
    for name in ("v1", "tall-bees"):
        with pytest.raises(UserError) as raised:
            compare(name, "workspace", PAGE, 5, None)
        assert str(raised.value) == (
            f"{name}: data/predictions isn't in DVC's cache; check that revision out and run dvc"
            " repro, or dvc exp apply it"
        )
    assert not PAGE.exists()
    assert read_side("workspace").questions  # which needs no cache


@pytest.mark.pipeline
def test_pictures_are_of_side_b_or_else_of_the_workspace(repository: Path) -> None:
    pairs = pair_questions(question_rows(), question_rows())
    shutil.rmtree("data/test")
    assert len(read_pictures("v1", pairs)) == 4
    write_split(Path("data/test"), question_rows())
    shutil.rmtree(".dvc/cache")
    assert len(read_pictures("v1", pairs)) == 4
    assert len(read_pictures("workspace", pairs)) == 4


def test_another_splits_pictures_are_not_shown() -> None:
    write_predictions(Path("data/predictions"), question_rows())
    rows = question_rows()
    pairs = pair_questions(question_rows(), rows[::-1])
    write_split(Path("data/test"), rows)
    assert len(read_pictures("workspace", pairs)) == 4
    rows[5] = {**rows[5], "question": "another"}
    write_split(Path("data/test"), rows)
    assert not read_pictures("workspace", pairs)


@pytest.mark.pipeline
@pytest.mark.parametrize(
    ("name", "hint"),
    [("v3", "; did you mean v2?"), ("tal-bees", "; did you mean tall-bees?"), ("zzzz", "")],
)
def test_an_unknown_revision_names_the_nearest(repository: Path, name: str, hint: str) -> None:
    with pytest.raises(UserError) as raised:
        read_side(name)
    assert str(raised.value) == f"{name}: no such path, revision or experiment{hint}"


@pytest.mark.pipeline
def test_a_revision_without_predictions_says_so(repository: Path) -> None:
    git("rm", "data/predictions.dvc")
    git("commit", "--message", "none")
    with pytest.raises(UserError, match=r"^HEAD: DVC can't read it: got no data/predictions among"):
        read_side("HEAD")


@pytest.mark.pipeline
def test_git_without_dvc_is_told_like_no_repository() -> None:
    expected = "v1: no such path, and no revision without a repository of Git and DVC here"
    with pytest.raises(UserError, match=f"^{expected}$"):
        read_side("v1")
    git("init")
    git("commit", "--allow-empty", "--message", "start")
    with pytest.raises(UserError, match=r"^HEAD: no such path, and no revision"):
        read_side("HEAD")


def test_a_column_that_is_missing_or_of_another_type_is_named() -> None:
    rows = question_rows()
    write_predictions(Path("data"), [{k: v for k, v in r.items() if k != "phrase"} for r in rows])
    with pytest.raises(UserError, match=r"^data/questions.parquet: got columns question_id, scene"):
        read_side("data")
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.append_column("phrase", table["phrase"]), "data/questions.parquet")
    with pytest.raises(UserError, match=r"^data/questions.parquet: got columns .*phrase, expected"):
        read_side("data")
    for value, kind in ((None, "null with nulls"), ("nine", "string")):
        write_predictions(Path("data"), [{**rows[0], "scene_id": value}])
        expected = f"^data/questions.parquet: scene_id: got {kind}, expected int64$"
        with pytest.raises(UserError, match=expected):
            read_side("data")


def test_an_error_is_one_line_and_status_2_and_leaves_no_page() -> None:
    two_folders()
    command = [sys.executable, "-m", "vlm", "compare", "one/data/predictions", "three"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    expected = "three: no such path, and no revision without a repository of Git and DVC here\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    assert not Path("compare.html").exists()


def test_the_command_needs_no_torch() -> None:
    code = "import sys, vlm.app.compare; sys.exit('torch' in sys.modules or 'dvc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
