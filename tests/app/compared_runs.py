"""Small invented runs for the tests of `vlm compare`: predictions, a test split, a repository."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlm.data.writing import write_questions, write_scenes

FAMILIES = ("count", "exists")
SCENES, ASKED = 4, 3
Rows = list[dict[str, Any]]


def question_rows(wrong: dict[int, str] | None = None, sure: float = 0.75) -> Rows:
    """The questions of every scene, answered right but for the classifier's `wrong` answers."""
    wrong = wrong or {}
    return [
        {
            "question_id": number,
            "scene_id": number // ASKED,
            "family": FAMILIES[number % 2],
            "question": f"what is number {number}",
            "answer": "yes",
            "phrase": "yes there is a circle",
            "classifier_answer": wrong.get(number, "yes"),
            "classifier_confidence": sure + number / 100,
            "generator_phrase": "yes there is a circle",
        }
        for number in range(SCENES * ASKED)
    ]


def caption_rows(exact: int = SCENES) -> Rows:
    """A caption a scene, the first `exact` of them exact."""
    return [
        {"scene_id": n, "caption": "a plus", "reference": f"scene {n}", "exact": n < exact}
        for n in range(SCENES)
    ]


def write_predictions(folder: Path, questions: Rows, captions: Rows | None = None) -> None:
    """Write a predictions folder; without captions where they are None."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")
    if captions is not None:
        pq.write_table(pa.Table.from_pylist(captions), folder / "captions.parquet")


def write_split(folder: Path, rows: Rows) -> None:
    """Write the test split that asks these questions."""
    images = np.random.default_rng(0).integers(0, 256, (SCENES, 1, 8, 8), np.uint8)
    write_scenes(folder, [images], [[]] * SCENES, [["a plus"]] * SCENES, [["key"]] * SCENES)
    names = ("family", "question", "answer", "phrase")
    columns = [[row[name] for row in rows] for name in names]
    write_questions(folder, np.array([row["scene_id"] for row in rows]), *columns)


def git(*arguments: str) -> None:
    """Git in the working directory, as an invented author."""
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *author, *arguments], check=True, capture_output=True)


def make_repository(within: bool = False) -> None:
    """A repository in the working directory with two commits of predictions, `v1` and `v2`.

    An experiment `tall-bees` stands on `v1`, and is `v1`; there is no remote. With `within`, the
    working directory lies in a Git repository already.
    """
    from dvc.repo import Repo

    if not within:
        git("init", "--initial-branch=main")
    with Repo.init(".", subdir=within) as repo:
        for tag, wrong, exact in (("v1", {}, 4), ("v2", {0: "no", 5: "maybe"}, 3)):
            rows = question_rows(wrong)
            write_predictions(Path("data/predictions"), rows, caption_rows(exact))
            write_split(Path("data/test"), rows)
            repo.add(["data/predictions", "data/test"])
            git("add", "--all")
            git("commit", "--message", tag)
            git("tag", tag)
    commit = subprocess.check_output(["git", "rev-parse", "v1"], text=True).strip()
    git("update-ref", f"refs/exps/{commit[:2]}/{commit[2:]}/tall-bees", commit)
