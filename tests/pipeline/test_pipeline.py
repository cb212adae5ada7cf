"""`dvc repro` from nothing: what it leaves, and what re-runs when something changes."""

import json
import math
import re
import shutil

import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.pipeline

TRAINING = {"align", "pretrain", "train_vqa@classifier", "train_vqa@generator"}


def read(finished, name: str) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{name} is not strict JSON: {constant}")

    return json.loads((finished.folder / "metrics" / name).read_text(), parse_constant=refuse)


def test_every_figure_has_its_interval_and_its_floor(finished):
    metrics = read(finished, "evaluate.json")
    for head in ("classifier", "generator"):
        figures = metrics[head]
        floor = max(metrics["floors"][n] for n in ("majority", "question_only", "image_only"))
        assert figures["lift"] == pytest.approx(figures["exact_match"] - floor, abs=2e-6)
        families = {"what_shape", "count", "exists", "position", "relation"}
        assert set(figures["by_family"]) == families
        mean = sum(figures["by_family"].values()) / 5
        assert figures["exact_match"] == pytest.approx(mean, abs=2e-6)
    floors = ["majority", "question_only", "image_only"]
    headlines = {
        "classifier": ["exact_match", "exact_match_per_question"],
        "generator": ["exact_match", "exact_match_per_question", "bleu4"],
        "caption": ["exact", "bleu4"],
        "floors": [*floors, *(f"{name}_per_question" for name in floors)],
        "retrieval": [
            f"{direction}_{name}"
            for direction in ("image_to_text", "text_to_image")
            for name in ("R@1", "R@5", "R@10", "MRR")
        ],
    }
    for section, names in headlines.items():
        for name in names:
            low, value, high = (metrics[section][name + end] for end in ("_low", "", "_high"))
            assert 0 <= low <= high <= 1, (section, name)
            assert low - 1e-9 <= value <= high + 1e-9 or math.isclose(low, high), (section, name)
    assert metrics["retrieval"]["gallery"] == 100
    assert 0 < metrics["retrieval"]["chance_R@1"] < 1
    assert metrics["pictures"] == 128 and metrics["questions"] == 1024


def test_word_order_is_probed_and_fresh_scenes_are_left_out(finished):
    metrics = read(finished, "evaluate.json")
    assert "fresh" not in metrics
    probed = metrics["word_order"]
    assert probed["pictures"] == 128 and probed["questions"] == 1024
    assert probed["distinct_questions"] > 10 and probed["without_another_order"] == 0
    for head in ("classifier", "generator"):
        figures = probed[head]
        assert 0 < figures["distance_low"] <= figures["distance"] <= figures["distance_high"]
        assert figures["distance"] < figures["distance_between_questions"]
        assert set(figures["distance_by_family"]) == set(metrics[head]["by_family"])
        mean = sum(figures["changed_by_family"].values()) / 5
        assert figures["changed"] == pytest.approx(mean, abs=2e-6)
        for name in ("changed", "exact_match"):
            low, value, high = (figures[name + end] for end in ("_low", "", "_high"))
            assert 0 <= low <= value <= high <= 1


def test_fresh_scenes_are_scored_where_the_parameters_ask_for_them(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished.folder, copy, ignore=shutil.ignore_patterns(".dvc", ".git"))
    other = type(finished)(copy)
    before = read(finished, "evaluate.json")
    with other.edit("params.yaml", "fresh_scenes: 0", "fresh_scenes: 60"):
        other.run("python", "-m", "stages.evaluate")
        other.run("python", "-m", "stages.report")
    metrics = read(other, "evaluate.json")
    fresh = metrics.pop("fresh")
    assert metrics == before
    assert fresh["scenes"] == 60 and fresh["questions"] == 480
    assert fresh["pictures_also_in_train"] == 0
    floors = [fresh[name] for name in ("majority", "question_only", "image_only")]
    for head in ("classifier", "generator"):
        figures = fresh[head]
        low, value, high = (figures[f"exact_match{end}"] for end in ("_low", "", "_high"))
        assert 0 <= low <= value <= high <= 1
        assert figures["lift"] == pytest.approx(value - max(floors), abs=2e-6)
        assert set(figures["by_family"]) == set(fresh["floors_by_family"]["majority"])
    assert "60 fresh scenes with 480 questions" in (copy / "reports/index.html").read_text()


def test_cached_decoding_gives_the_same_tokens(finished):
    metrics = read(finished, "benchmark_kv_cache.json")
    assert metrics["tokens_equal"] == 1
    assert metrics["max_logit_diff"] <= metrics["logit_tolerance"]
    assert set(metrics["speedup"]) == {f"b{b}_t{t}" for b in (2, 8) for t in (4, 8, 40)}
    assert metrics["machine"]["threads"] == 2
    sweep = (finished.folder / "plots/benchmark_kv_cache/sweep.tsv").read_text().splitlines()
    assert len(sweep) == 1 + 2 * 3 * 4
    for arm in ("uncached", "cross_only", "self_only", "cached"):
        assert set(metrics["exponent"][arm]) == {"b2", "b8"}
    costs = metrics["cost_model"]
    assert costs["ms_per_step"] >= 0
    assert 0 <= costs["median_error"] <= costs["worst_error"]
    assert metrics["cache_bytes_as_predicted"] == 1


@pytest.mark.parametrize(
    "name", ["align", "pretrain", "train_vqa_classifier", "train_vqa_generator"]
)
def test_curves_and_training_metrics(finished, name):
    metrics = read(finished, f"{name}.json")
    header, *rows = (finished.folder / f"plots/{name}.tsv").read_text().splitlines()
    columns = header.split("\t")
    assert columns[0] == "step" and {"train_loss", "val_loss", "rate"} <= set(columns)
    table = [dict(zip(columns, map(float, row.split("\t")), strict=True)) for row in rows]
    assert table[-1]["step"] == metrics["steps"]
    assert metrics["val"]["loss"] == pytest.approx(min(r["val_loss"] for r in table), rel=1e-4)
    assert table[-1]["train_loss"] < table[0]["train_loss"]


def test_pretrain_starts_from_what_align_left(finished):
    aligned = load_file(finished.folder / "models/align/model.safetensors")
    assert {name.partition(".")[0] for name in aligned} == {"vision", "projector", "text"}
    tokenizers = {
        (finished.folder / folder / "tokenizer.json").read_bytes()
        for folder in ("models/align", "models/pretrain", "models/train_vqa/generator")
    }
    assert len(tokenizers) == 1


def test_predictions_stand_beside_their_truth(finished):
    table = pq.read_table(finished.folder / "data/predictions/questions.parquet").to_pydict()
    right = [a == c for a, c in zip(table["answer"], table["classifier_answer"], strict=True)]
    by_family: dict[str, list[bool]] = {}
    for family, ok in zip(table["family"], right, strict=True):
        by_family.setdefault(family, []).append(ok)
    figures = read(finished, "evaluate.json")["classifier"]["by_family"]
    for family, oks in by_family.items():
        assert figures[family] == pytest.approx(sum(oks) / len(oks), abs=1e-6)


def test_the_report_is_one_offline_page(finished):
    page = (finished.folder / "reports/index.html").read_text()
    assert "<img" in page and not re.search(r"(src|href)=.?(https?:)?//", page)
    value = read(finished, "evaluate.json")["classifier"]["exact_match"]
    assert f"{100 * value:.1f}" in page


def test_dvc_draws_every_plot(finished):
    done = finished.run("dvc", "plots", "show")
    page = next(line for line in done.stdout.splitlines() if line.endswith("index.html"))
    with open(page.removeprefix("file://")) as file:
        html = file.read()
    for name in (
        "loss of align",
        "losses of pretrain",
        "loss of train_vqa generator",
        "accuracy by family, classifier",
        "answer confusion",
        "decode time",
        "samples.png",
    ):
        assert name in html
    assert "WARNING" not in done.stderr


def test_a_second_run_does_no_work(finished):
    done = finished.run("dvc", "repro")
    assert "Running stage" not in done.stdout
    assert "up to date" in done.stdout


@pytest.mark.parametrize(
    ("path", "old", "new", "stages"),
    [
        ("params.yaml", "resamples: 200", "resamples: 201", {"evaluate", "report"}),
        ("params.yaml", "seed: 0\n", "# a comment\nseed: 0\n", set()),
        ("params.yaml", "threads: 2", "threads: 1", set()),
        ("params.yaml", "noise: 0.03", "noise: 0.04", {"generate", "evaluate", "report"}),
        (
            "params.yaml",
            "    memory: tokens",
            "    memory: pooled",
            {"train_vqa@generator", "report"},
        ),
        (
            "vlm/model/attention.py",
            "softmax(",
            "soft-max(",
            TRAINING | {"benchmark_kv_cache", "evaluate"},
        ),
        ("vlm/evaluation/retrieval.py", "def ", "\ndef ", {"evaluate"}),
        ("vlm/losses.py", "def ", "\ndef ", TRAINING),
        ("vlm/config/schema.py", "class ", "\nclass ", set()),
        ("vlm/app/cli.py", "def ", "\ndef ", set()),
        ("vlm/reporting/page.py", "def ", "\ndef ", {"report"}),
        ("vlm/scenes/render.py", "def ", "\ndef ", {"generate", "evaluate"}),
    ],
)
def test_what_reruns(finished, path, old, new, stages):
    with finished.edit(path, old, new):
        assert finished.changed_stages() == stages


def test_no_bytecode_in_what_dvc_hashes(finished):
    assert list((finished.folder / "vlm").rglob("*.pyc"))
    assert finished.changed_stages() == set()


@pytest.mark.parametrize("head", ["classifier", "generator"])
def test_a_head_can_start_from_scratch(finished, tmp_path, head):
    """With the pretrained weights in the way, only a start from them keeps their frozen text."""
    copy = tmp_path / "copy"
    shutil.copytree(finished.folder, copy, ignore=shutil.ignore_patterns(".dvc", ".git"))
    text = load_file(copy / "models/pretrain/model.safetensors")["text.embedding.weight"]
    path = copy / "params.yaml"
    for start in ("pretrain", "scratch"):
        path.write_text(re.sub(r"start: \w+", f"start: {start}", path.read_text()))
        type(finished)(copy).run("python", "-m", "stages.train_vqa", head)
        kept = load_file(copy / f"models/train_vqa/{head}/model.safetensors")
        assert (kept["text.embedding.weight"] == text).all() == (start == "pretrain")


def test_the_same_bytes_again(finished, tmp_path):
    """A second run of a training stage on the same machine gives the same weights."""
    before = {
        path.name: path.read_bytes()
        for path in (finished.folder / "models/train_vqa/classifier").iterdir()
    }
    metrics = (finished.folder / "metrics/train_vqa_classifier.json").read_bytes()
    copy = tmp_path / "copy"
    shutil.copytree(finished.folder, copy, ignore=shutil.ignore_patterns(".dvc", ".git"))
    shutil.rmtree(copy / "models/train_vqa")
    moved = type(finished)(copy)
    moved.run("python", "-m", "stages.train_vqa", "classifier")
    after = {
        path.name: path.read_bytes() for path in (copy / "models/train_vqa/classifier").iterdir()
    }
    assert after == before
    assert (copy / "metrics/train_vqa_classifier.json").read_bytes() == metrics
