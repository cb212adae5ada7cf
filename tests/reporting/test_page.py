import json
import re
import sys
from html import unescape
from pathlib import Path
from subprocess import run

import pytest
from example_run import HOSTILE, PARAMS, TRAININGS, fresh_scores, write_run
from page_reader import Reader, check_offline, text_of

from vlm.data.tables import read_scenes
from vlm.errors import UserError
from vlm.reporting.cards import question_card
from vlm.reporting.gallery import FAILURES, RIGHT, failures, spread
from vlm.reporting.inputs import read_inputs
from vlm.reporting.page import build_page
from vlm.reporting.pictures import picture_data_uri


def test_the_page_is_well_formed_and_asks_for_nothing_outside_it(page: str) -> None:
    check_offline(page)


def test_ids_are_unique_and_every_link_has_its_target(page: str) -> None:
    attributes = [attributes for _, attributes in Reader(page).tags]
    ids = [one["id"] for one in attributes if "id" in one]
    assert len(ids) == len(set(ids))
    links = {str(one["href"])[1:] for one in attributes if str(one.get("href")).startswith("#")}
    assert links <= set(ids)


@pytest.mark.parametrize(
    "row",
    [
        "Short answers right (classifier) 95.4% 94.4 to 96.4% 52.4% (image only) +43.0 points",
        "Whole phrases right (generator) 92.3% 91.3 to 93.3% 52.4% (image only) +39.9 points",
        "Captions with exactly the facts 81.1% 80.1 to 82.1% 4.0% (one caption for all) +77.1",
        "Retrieval R@1, picture to caption 87.1% 86.1 to 88.1% 8.0% (one ranking for all)",
        "R@5 87.1% 86.1 to 88.1% 87.1% 86.1 to 88.1% 8.0% 5.0%",
        "median rank 1.0 — 1.0 — 71.2 83.4",
        "R@1, by id only 31.0% — 31.0% — — —",
        "corpus BLEU-4 71.3% 70.3 to 72.3% 20.0% (one caption for all)",
        "count 95.0% 93.0 to 97.0% 95.0% 93.0 to 97.0% 31.2% 43.3% 52.4%",
        "classifier, test split 96.1% 95.1 to 97.1% 54.4% (image only) +41.7 points",
        "fact F1 88.7% 87.7 to 89.7% 15.0% (one caption for all) +73.7 points",
        "ROUGE-L (F1) 84.4% 83.4 to 85.4% 43.0% (one caption for all) +41.4 points",
        "ROUGE-L (COCO, beta 1.2) 83.5% 82.5 to 84.5% 42.0% (one caption for all) +41.5 points",
        "at random. A model that reads a question as a bag of words",
        "relation 0.110 (0.090 to 0.130) 61.0% 59.0 to 63.0% 61.0% 59.0 to 63.0%",
        "all 0.141 (0.131 to 0.151) 53.9% 52.9 to 54.9% 53.9%",
        "The 18 distinct questions, scrambled in 140 ways in all, asked about 30 test pictures",
        "between two different questions it is 0.471 on average",
        "generator, as asked 92.3% 91.3 to 93.3% 52.4% (image only) +39.9 points",
        "generator, scrambled 45.6% 44.6 to 46.6% 52.4% (image only) -6.8 points",
        "Measured on: Some CPU, cores 2, threads 2, PyTorch 2.13, Linux",
        "align 1 min 23 s 731 MiB 2 of 2 arm",
        "pretrain not measured in this checkout",
        "total 1 min 23 s (1 of 7 stages)",
        "shapes: - plus - circle",
    ],
)
def test_figures_stand_beside_their_intervals_and_floors(page: str, row: str) -> None:
    assert row in text_of(page)


def test_every_picture_of_the_gallery_is_embedded(page: str, root: Path) -> None:
    images = read_scenes(root / "data/test").images
    rows = read_inputs(root, PARAMS).questions
    wrong = [row for row in rows if row["classifier_answer"] != row["answer"]]
    wrong.sort(key=lambda row: -row["classifier_confidence"])
    slips = [row for row in rows if row["generator_phrase"] != row["phrase"]]
    slips.sort(key=lambda row: -row["generator_confidence"])
    shown = [attributes["src"] for tag, attributes in Reader(page).tags if tag == "img"]
    expected = [
        picture_data_uri(images[row["scene_id"]], 4)
        for row in spread(rows) + wrong[:FAILURES] + slips[:FAILURES]
    ]
    assert shown[-len(expected) :] == expected


def test_a_caption_that_nobody_judged_is_marked_neither_right_nor_wrong(root: Path) -> None:
    row = read_inputs(root, PARAMS).questions[0]
    image = read_scenes(root / "data/test").images[0]
    caption = {"caption": "a dog", "reference": "a cat"}
    marks = [
        question_card(row, image, {**caption, **exact}).count("✗")
        for exact in ({}, {"exact": None}, {"exact": False})
    ]
    assert marks == [0, 0, 1]


@pytest.mark.parametrize("head", RIGHT)
def test_failures_are_all_that_is_wrong_the_surest_first(root: Path, head: str) -> None:
    rows = read_inputs(root, PARAMS).questions
    found = failures(rows, head, RIGHT[head])
    sure = [row[f"{head}_confidence"] for row in found]
    assert sure == sorted(sure, reverse=True) and len(set(sure)) > 1
    ids = {row["question_id"] for row in found}
    said, true = ("answer", "answer") if head == "classifier" else ("phrase", "phrase")
    assert ids == {r["question_id"] for r in rows if r[f"{head}_{said}"] != r[true]}


def test_the_spread_shows_each_family_and_no_picture_twice(root: Path) -> None:
    rows = spread(read_inputs(root, PARAMS).questions)
    assert len({row["family"] for row in rows}) == 5
    assert len({row["scene_id"] for row in rows}) == len(rows) == 15


def test_text_from_the_data_is_escaped(page: str) -> None:
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &quot;quoted&quot;" in page


def test_two_builds_are_the_same_bytes(page: str, root: Path) -> None:
    assert build_page(read_inputs(root, PARAMS)) == page


@pytest.mark.parametrize(
    ("missing", "stage"),
    [
        ("metrics/evaluate.json", "evaluate"),
        ("plots/pretrain.tsv", "pretrain"),
        ("plots/benchmark_kv_cache/sweep.tsv", "benchmark_kv_cache"),
        ("data/predictions/captions.parquet", "evaluate"),
        ("data/predictions/probes.parquet", "evaluate"),
        ("data/predictions/attention.parquet", "evaluate"),
        ("plots/evaluate/calibration_generator_after.csv", "evaluate"),
        ("data/test", "generate"),
    ],
)
def test_a_missing_input_names_itself_and_its_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, stage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, scenes=2)
    (tmp_path / missing).rename(tmp_path / "elsewhere")
    expected = f"{missing}: no such file; expected what the stage {stage} writes"
    with pytest.raises(UserError, match=f"^{re.escape(expected)}$"):
        read_inputs(Path(), PARAMS)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "plots/benchmark_kv_cache/sweep.tsv",
            "batch\tlength\n8\t20\n",
            "got columns batch, length, expected batch, length, arm, rounds, seconds, seconds_min,"
            " seconds_max, cache_bytes, cache_bytes_predicted, flops, bytes_read",
        ),
        (
            "plots/evaluate/calibration_classifier_before.csv",
            "confidence,questions\n0.5,3\n",
            "got columns confidence, questions, expected confidence, accuracy, questions",
        ),
        (
            "plots/evaluate/confusion.csv",
            "truth,said\nyes,no\n",
            "got columns truth, said, expected truth, prediction",
        ),
        (
            "plots/pretrain.tsv",
            "step\ttrain_loss\ttrain_lm\tval_loss\n1\t1\t1\t1\n",
            "got columns step, train_loss, train_lm, val_loss, expected step, train_loss,"
            " val_loss, val_lm",
        ),
        ("plots/pretrain.tsv", "", "got no rows, expected those of the stage pretrain"),
    ],
)
def test_a_table_with_other_columns_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, scenes=2)
    Path(name).write_text(text)
    with pytest.raises(UserError, match=f"^{re.escape(f'{name}: {message}')}$"):
        read_inputs(Path(), PARAMS)


def test_a_table_after_a_merge_names_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, scenes=2)
    with Path("plots/align.tsv").open("a") as file:
        file.write("<<<<<<< HEAD\n")
    with pytest.raises(UserError, match=r"^plots/align.tsv row \d+: values: got 1, expected \d$"):
        read_inputs(Path(), PARAMS)


def test_figures_that_were_not_finite_are_said_to_be_missing(tmp_path: Path) -> None:
    write_run(tmp_path, scenes=10)
    for name in TRAININGS:
        (tmp_path / f"metrics/{name}.json").write_text('{"stopped_at_step": 3}')
    path = tmp_path / "metrics/evaluate.json"
    scores = json.loads(path.read_text())
    del scores["caption"]["bleu4"], scores["floors"]["image_only"]
    path.write_text(json.dumps(scores))
    text = text_of(build_page(read_inputs(tmp_path, PARAMS)))
    assert "corpus BLEU-4 not measured 70.3 to 72.3%" in text
    assert "95.4% 94.4 to 96.4% 43.3% (question only)" in text


def test_what_train_alone_says_of_test_is_told(page: str) -> None:
    words = (
        "train's commonest answer is right on 42.6%, its commonest answer to the question's words"
        " on 55.2%, its commonest answer about the picture's shapes and colours on 58.0%. Never"
        " given in train: the answers to 0.0%."
    )
    assert words in unescape(text_of(page))


def test_fresh_scenes_are_shown_where_there_are_any(tmp_path: Path, page: str) -> None:
    assert "fresh scenes" not in text_of(page)
    write_run(tmp_path, scenes=10)
    path = tmp_path / "metrics/evaluate.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fresh": fresh_scores()}))
    page = build_page(read_inputs(tmp_path, PARAMS))
    Reader(page)
    for words in (
        "generator, fresh scenes 88.8% 87.8 to 89.8% 52.4% (image only) +36.4 points",
        "2,000 fresh scenes with 16,000 questions were drawn",
        "Of their pictures 3 equal a training picture",
        "Exact match on fresh scenes by question family, beside its floors",
    ):
        assert words in text_of(page)


def test_text_encoders_that_differ_are_shown_each(tmp_path: Path) -> None:
    write_run(tmp_path, scenes=10)
    path = tmp_path / "metrics/evaluate.json"
    scores = json.loads(path.read_text())
    scores["word_order"]["generator"]["distance_by_family"]["relation"] = 0.222
    path.write_text(json.dumps(scores))
    text = text_of(build_page(read_inputs(tmp_path, PARAMS)))
    assert "relation 0.110 (0.090 to 0.130) 0.222 (0.090 to 0.130) 61.0%" in text
    assert "0.471, classifier and 0.471, generator on average" in text


def test_the_stage_needs_no_torch() -> None:
    code = "import sys, stages.report; sys.exit('torch' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
