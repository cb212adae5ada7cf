"""Own pictures from a folder through every stage, with all that own texts bring along."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from project import read_preset

from stages import align, benchmark_kv_cache, evaluate, generate, pretrain, report, train_vqa
from vlm.config import Params, parse_params
from vlm.errors import UserError
from vlm.files import read_json
from vlm.training.execution import Execution

COLORS = {"Red": (220, 30, 30), "blue": (20, 40, 230), "sea-green": (40, 160, 120)}
NEEDS_A_WORLD = {"probes", "attention", "by_objects", "counting", "unseen_layouts", "ood", "fresh"}


def own_params() -> Params:
    values = read_preset("tiny")
    values["data"] |= {"source": "imagefolder"}
    values["data"]["own"] |= {"image_size": 32, "on_bad": "skip", "val_share": 0.2}
    values["data"]["own"]["test_share"] = 0.2
    for section in (values["align"], values["pretrain"], *values["train_vqa"].values()):
        section |= {"steps": 2, "batch_size": 8, "warmup_steps": 0, "eval_every": 2}
        if "augment" in section:
            section["augment"] |= {"flip": True, "turn": True, "shift": 2, "brightness": 0.2}
    values["model"]["vision"] |= {"pixel_mean": [0.5], "pixel_std": [0.25]}
    values["evaluate"] |= {"resamples": 20, "gallery": 8, "samples": 4}
    values["benchmark_kv_cache"] |= {"batch_sizes": [2, 4], "lengths": [2, 4], "repeats": 1}
    values["runtime"] |= {"progress": "off", "threads": 1, "workers": 1}
    return parse_params(values)


def write_pictures(folder: Path, number: int = 80) -> None:
    """Plain pictures, odd texts, one row without an answer, and one without a picture."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    lines = [{"file_name": "gone.png", "question": "Is it?", "answer": "no"}]
    for index in range(number):
        name = list(COLORS)[index % len(COLORS)]
        size = (int(rng.integers(9, 60)), int(rng.integers(9, 60)))
        Image.new("RGB", size, COLORS[name]).save(folder / f"{index}.png")
        pixels = Image.open(folder / f"{index}.png").convert("RGB")
        pixels.putpixel((0, 0), (index, 0, 0))  # no two are alike
        pixels.save(folder / f"{index}.png")
        asked = {"question": 'What "colour", please?', "answer": name, "family": "colour, asked"}
        known = {"question": "Is it red?", "answer": "yes" if name == "Red" else "no"}
        known |= {"answers": [known["answer"]] * 7 + ["maybe"] * 3}
        lines.append({"file_name": f"{index}.png", "questions": [asked, known]})
    lines.append({"file_name": "0.png", "question": "And this one?"})
    text = "\n".join(json.dumps(line) for line in lines)
    (folder / "metadata.jsonl").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    """A folder in which all stages have run."""
    root = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        params = own_params()
        write_pictures(Path(params.data.own.path))
        generate.main(params)
        align.align(params, Execution())
        pretrain.pretrain(params, Execution())
        for head in train_vqa.HEADS:
            train_vqa.train_vqa(params, head, Execution())
        benchmark_kv_cache.main(params)
        evaluate.main(params)
        report.main(params)
    return root


def test_no_row_is_lost(run: Path):
    metrics = read_json(run / "metrics/generate.json")
    assert metrics["rows"] == {"in": 82, "out": 81, "skipped": 1}
    (line,) = (run / "data/skipped.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["row"] == "metadata.jsonl line 1"
    assert sum(metrics[split]["scenes"] for split in ("train", "val", "test")) == 80
    assert sum(metrics[split]["unanswered_questions"] for split in ("train", "val", "test")) == 1


def test_what_needs_no_drawn_world_is_measured(run: Path):
    metrics = read_json(run / "metrics/evaluate.json")
    assert not NEEDS_A_WORLD & set(metrics)
    assert "image_only" not in metrics["floors"] and "fact_f1" not in metrics["caption"]
    for head in ("classifier", "generator"):
        for figures in (metrics[head], metrics["another_picture"][head]):
            value = figures["exact_match"]
            assert figures["exact_match_low"] <= value <= figures["exact_match_high"]
        assert 0 <= metrics["annotators"][head]["official"] <= 1
        assert set(metrics[head]["by_family"]) == {"colour, asked", "question"}
    asked = read_json(run / "metrics/generate.json")["test"]
    assert metrics["questions"] == asked["questions"] - asked["unanswered_questions"]
    assert metrics["annotators"]["questions"] == metrics["pictures"]


def test_a_picture_is_found_again_by_its_name(run: Path):
    rows = pq.read_table(run / "data/predictions/questions.parquet").to_pylist()
    own = Path(own_params().data.own.path)
    images = pq.read_table(run / "data/test/scenes-00000.parquet")["image"].to_pylist()
    assert {row["picture"] for row in rows} <= {image["path"] for image in images}
    for row in rows:
        number = int(Path(row["picture"]).stem)
        assert (run / own / row["picture"]).is_file()
        if row["family"] == "colour, asked":
            assert row["answer"] == list(COLORS)[number % len(COLORS)]
    page = (run / "reports/index.html").read_text(encoding="utf-8")
    assert f"· {rows[0]['picture']}<" in page


def test_the_page_is_made_of_it(run: Path):
    page = (run / "reports/index.html").read_text(encoding="utf-8")
    assert "With another picture" in page and "sea-green" in page
    assert "The source had 82 rows, of which 1 couldn&#x27;t be used" in page
    assert "of simple shapes" not in page and "Scenes unlike training" not in page


def test_a_batch_larger_than_the_data_is_refused_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    params = own_params()
    write_pictures(Path(params.data.own.path), 30)
    generator = params.train_vqa.generator.model_copy(update={"batch_size": 25})
    heads = params.train_vqa.model_copy(update={"generator": generator})
    with pytest.raises(UserError, match=r"^train_vqa.generator: batch_size \(25\) cannot exceed"):
        generate.main(params.model_copy(update={"train_vqa": heads}))
