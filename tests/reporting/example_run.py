"""The files of a small invented run, for the tests of the report."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from example_probes import interval, probe_metrics, write_probe_files

from vlm.data.writing import write_scenes
from vlm.evaluation.costs import ARMS, DecoderShape, bytes_read, cache_bytes, flops
from vlm.evaluation.timings import CostModel, Timing, sweep_table

FAMILIES = ("count", "exists", "position", "relation", "what_shape")
TWO = ("classifier", "generator")
TRAININGS = ("align", "pretrain", "train_vqa_classifier", "train_vqa_generator")
SHAPE = DecoderShape(2, 64, 128, 50, 64, 2)
COSTS = CostModel(5e-4, 2e-11, 3e-10)  # those of the benchmark
HOSTILE = '<script>alert("x")</script> & "quoted"'
PARAMS = {
    "seed": 0,
    "data": {"source": "scenes", "world": {"shapes": ["plus", "circle"]}},
    "runtime": {"threads": 2},
}


def write_run(root: Path, scenes: int = 30, asked: int = 4) -> None:
    """Write every input of the report under `root`."""
    for folder in ("metrics", "plots/evaluate", "plots/benchmark_kv_cache", "data/predictions"):
        (root / folder).mkdir(parents=True)
    for name, metrics in _metrics(scenes, scenes * asked).items():
        (root / f"metrics/{name}.json").write_text(json.dumps(metrics))
    for name in TRAININGS:
        (root / f"plots/{name}.tsv").write_text(
            _curve(("contrast", "lm")[: 1 + (name == "pretrain")])
        )
    (root / ".runtime").mkdir()
    record = {"seconds": 83.2, "peak_memory_mib": 731.4, "threads": 2, "cores": 2, "machine": "arm"}
    (root / ".runtime/align.json").write_text(json.dumps(record))
    (root / "plots/benchmark_kv_cache/sweep.tsv").write_text(sweep_table(timings(), COSTS))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (scenes, 1, 32, 32), np.uint8)
    write_scenes(
        root / "data/test", [images], [[]] * scenes, [["a circle"]] * scenes, [["key"]] * scenes
    )
    _write_predictions(root, scenes, asked)
    write_probe_files(root, scenes)


def _write_predictions(root: Path, scenes: int, asked: int) -> None:
    rows = []
    for number in range(scenes * asked):
        answer = ("0", "1", "yes", "no", "circle")[number % 5]
        rows.append(
            {
                "question_id": number,
                "scene_id": number // asked,
                "family": FAMILIES[number % 5],
                "question": HOSTILE if number == 0 else f"what is number {number}",
                "answer": answer,
                "phrase": f"it is {answer}",
                "classifier_answer": "yes" if number % 7 == 3 else answer,
                "classifier_confidence": 0.5 + number / (2 * scenes * asked),
                "generator_phrase": "it is 1" if number % 11 == 5 else f"it is {answer}",
                "generator_confidence": 1.0 - number / (2 * scenes * asked),
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), root / "data/predictions/questions.parquet")
    captions = [
        {
            "scene_id": number,
            "caption": "a plus at the top left",
            "reference": "a circle at the bottom right",
            "exact": number % 2 == 0,
        }
        for number in range(scenes)
    ]
    pq.write_table(pa.Table.from_pylist(captions), root / "data/predictions/captions.parquet")
    pairs = "".join(f"{row['answer']},{row['classifier_answer']}\n" for row in rows)
    (root / "plots/evaluate/confusion.csv").write_text("truth,prediction\n" + pairs)


def _metrics(pictures: int, questions: int) -> dict[str, Any]:
    shares = {family: {"no": 0.6, "yes": 0.4} for family in FAMILIES}
    split = {"scenes": pictures, "questions": questions, "answers": shares}
    generate = dict.fromkeys(("train", "val", "test"), split)
    trained = {
        "kept_step": 300,
        "steps": 400,
        "val": {"loss": 0.25},
        "last_train_loss": 0.21,
        "parameters": 199616,
        "trained_parameters": 16576,
        "batches_without_target": 0,
    }
    benchmark = {
        "tokens_equal": 1,
        "max_logit_diff": 1.9e-6,
        "logit_tolerance": 1.2e-4,
        "speedup": {f"b{batch}_t{length}": 5.0 for batch, length in product((8, 64), (20, 40, 80))},
        "machine": {
            "cpu": "Some CPU",
            "cores": 2,
            "threads": 2,
            "torch": "2.13",
            "system": "Linux",
        },
        "repeats": 3,
    }
    layouts = {"test_layouts_in_train": 0.5184, "duplicate_pictures_across_splits": 0}
    floors = {"majority": 0.4258, "question_only": 0.552, "image_only": 0.5803}
    guessed = {"floors": floors, "test_answers_not_in_train": 0.0}
    unlike = {"test_ood": {"answers": {"count": {"4": 1.0}, "exists": {"no": 0.4, "yes": 0.6}}}}
    return {
        "generate": generate | layouts | unlike | guessed,
        **dict.fromkeys(TRAININGS, trained),
        "benchmark_kv_cache": benchmark,
        "evaluate": {
            "pictures": pictures,
            "questions": questions,
            **_scores(),
            **probe_metrics(FAMILIES),
        },
    }


def _scores() -> dict[str, Any]:
    families = {
        f"by_family{end}": dict.fromkeys(FAMILIES, value)
        for end, value in (("", 0.95), ("_low", 0.93), ("_high", 0.97))
    }
    directions = ("image_to_text", "text_to_image")
    retrieval: dict[str, Any] = {"gallery": 30}
    for name in ("R@1", "R@5", "R@10", "MRR"):
        retrieval |= {f"chance_{name}": 0.05, f"floor_{name}": 0.08}
        for direction in directions:
            retrieval |= interval(f"{direction}_{name}", 0.871)
    retrieval |= {"chance_median_rank": 83.4, "floor_median_rank": 71.2}
    for direction in directions:
        retrieval |= {f"{direction}_median_rank": 1.0, f"{direction}_id_R@1": 0.31}
    guesses = {"majority": 0.312, "question_only": 0.433, "image_only": 0.524}
    by_family = {name: dict.fromkeys(FAMILIES, value) for name, value in guesses.items()}
    floors: dict[str, Any] = {"by_family": by_family}
    for name, value in guesses.items():
        floors |= interval(name, value) | interval(f"{name}_per_question", value + 0.02)
    return {
        "classifier": interval("exact_match", 0.954)
        | interval("exact_match_per_question", 0.961)
        | {"lift": 0.43}
        | families,
        "generator": interval("exact_match", 0.923)
        | interval("exact_match_per_question", 0.937)
        | interval("bleu4", 0.966)
        | {"lift": 0.399, "bleu4_floor": 0.6}
        | families,
        "caption": interval("exact", 0.811)
        | interval("bleu4", 0.713)
        | interval("fact_f1", 0.887)
        | interval("rouge_l", 0.844)
        | interval("rouge_l_coco", 0.835)
        | {"fact_f1_floor": 0.15, "rouge_l_floor": 0.43, "rouge_l_coco_floor": 0.42}
        | {"exact_floor": 0.04, "bleu4_floor": 0.2, "bleu_signature": "BLEU-4|corpus"},
        "retrieval": retrieval,
        "floors": floors,
        "word_order": _word_order(families),
    }


def fresh_scores() -> dict[str, Any]:
    """What the metrics of a run with fresh scenes have besides."""
    scores = _scores()
    floors = {name: value for name, value in scores["floors"].items() if "per_q" not in name}
    by_family = {"floors_by_family": floors.pop("by_family")}
    heads = {head: scores[head] | interval("exact_match", 0.888) for head in TWO}
    return {
        "scenes": 2000,
        "questions": 16000,
        "pictures_also_in_train": 3,
        **floors,
        **by_family,
        **heads,
    }


def _word_order(families: dict[str, Any]) -> dict[str, Any]:
    head = interval("exact_match", 0.456) | families | interval("distance", 0.141)
    head |= interval("changed", 0.539) | {"distance_between_questions": 0.471}
    for end, value in (("", 0.61), ("_low", 0.59), ("_high", 0.63)):
        head[f"changed_by_family{end}"] = dict.fromkeys(FAMILIES, value)
        head[f"distance_by_family{end}"] = dict.fromkeys(FAMILIES, value - 0.5)
    return {
        "pictures": 30,
        "questions": 120,
        "distinct_questions": 18,
        "orders": 140,
        "without_another_order": 0,
        **dict.fromkeys(TWO, head),
    }


def _curve(terms: tuple[str, ...]) -> str:
    names = ["loss", *terms]
    header = ["step", *(f"train_{n}" for n in names), *(f"val_{n}" for n in names), "rate"]
    lines = [header]
    for step in range(100, 401, 100):
        values = [f"{100 / step + number:.6g}" for number in range(2 * len(names))]
        lines.append([str(step), *values, "0.001"])
    return "".join("\t".join(line) + "\n" for line in lines)


def timings() -> list[Timing]:
    """A sweep that takes what the cost model says, to the microsecond."""
    found = []
    for batch, length, (name, arm) in product((8, 64), (20, 40, 80), ARMS.items()):
        held = cache_bytes(SHAPE, arm, batch, length)
        work = flops(SHAPE, arm, batch, length), bytes_read(SHAPE, batch, length)
        seconds = COSTS.predict(Timing(batch, length, name, 3, 1.0, 1.0, 1.0, held, held, *work))
        rounds = round(seconds, 6), round(0.9 * seconds, 6), round(1.1 * seconds, 6)
        found.append(Timing(batch, length, name, 3, *rounds, held, held, *work))
    return found
