"""The probes of a small invented run, for the tests of the report: figures and files."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlm.data import png

TWO = ("classifier", "generator")
CHANGES = (
    "shuffled_pictures",
    "shuffled_questions",
    "swapped_words",
    "erased_object",
    "moved_object",
)
PLACES = ("classifier_encoder", "generator_encoder", "generator_words")


def interval(name: str, value: float) -> dict[str, float]:
    """A figure and its ends."""
    return {name: value, f"{name}_low": value - 0.01, f"{name}_high": value + 0.01}


def probe_metrics(families: tuple[str, ...]) -> dict[str, Any]:
    """What `evaluate` writes of its probes."""
    return {
        "probes": {name: _change(families) for name in CHANGES} | {"erased_background": _same()},
        "whole_pictures": {
            "majority_floor": 0.02,
            "question_only_floor": 0.03,
            "image_only_floor": 0.31,
            **{head: interval("all_right", 0.841) | {"if_independent": 0.802} for head in TWO},
        },
        "by_objects": _by_objects(),
        "counting": {
            "questions": 24,
            "within_one_floor": 0.7,
            **{
                head: interval("within_one", 0.973)
                | {"errors": {"+0": 0.9, "+1": 0.07, "-1": 0.02, "no number": 0.01}}
                for head in TWO
            },
        },
        "calibration": {head: _calibration() for head in TWO},
        "attention": {place: _attention() for place in PLACES},
        "ood": _unlike(families),
        "another_picture": {
            "pictures": 10,
            "questions": 30,
            **{
                head: interval("exact_match", 0.413) | interval("same_reply", 0.386) for head in TWO
            },
        },
    }


def write_probe_files(root: Path, scenes: int) -> None:
    """Examples, attention and reliability curves."""
    rng = np.random.default_rng(1)
    rows = []
    for name in (*CHANGES, "erased_background"):
        for number in range(4):
            before, after = (
                png.encode(rng.integers(0, 256, (1, 32, 32), np.uint8)) for _ in range(2)
            )
            same = name in ("shuffled_questions", "swapped_words")
            said = "yes" if number == 1 else "no"
            rows.append(
                {
                    "probe": name,
                    "scene_id": number,
                    "before": before,
                    "after": before if same else after,
                    "question_before": f"what is {name} {number}",
                    "question_after": f"what else is {name} {number}",
                    "truth_before": "yes",
                    "truth_after": "no",
                    "phrase_after": "no it is not",
                    "classifier_before": "yes",
                    "classifier_after": said,
                    "generator_before": "yes it is",
                    "generator_after": "no it is not",
                }
            )
    folder = root / "data/predictions"
    pq.write_table(pa.Table.from_pylist(rows), folder / "probes.parquet")
    looked = [
        {
            "place": place,
            "scene_id": scene,
            "question": f"is there a plus in {scene}",
            "weights": rng.random(16).tolist(),
        }
        for place in PLACES
        for scene in range(min(4, scenes))
    ]
    pq.write_table(pa.Table.from_pylist(looked), folder / "attention.parquet")
    for head in TWO:
        for name in ("before", "after"):
            path = root / f"plots/evaluate/calibration_{head}_{name}.csv"
            path.write_text("confidence,accuracy,questions\n0.6,0.5,4\n0.95,0.97,116\n")


def _change(families: tuple[str, ...]) -> dict[str, Any]:
    head: dict[str, Any] = interval("follows", 0.957) | interval("holds", 0.962)
    head |= interval("both_right", 0.931) | interval("same_reply", 0.513)
    for end, value in (("", 0.95), ("_low", 0.94), ("_high", 0.96)):
        head[f"follows_by_family{end}"] = dict.fromkeys(families, value)
    return {
        "pictures": 30,
        "questions": 120,
        "changed_truths": 61,
        "follows_floor": 0.421,
        "follows_blind": 0.401,
        "holds_floor": 0.633,
        "follows_floor_by_family": dict.fromkeys(families, 0.4) | {"relation": 0.99},
        **dict.fromkeys(TWO, head),
    }


def _same() -> dict[str, Any]:
    head = interval("holds", 0.943) | interval("same_reply", 0.973)
    figures = {"pictures": 30, "questions": 120, "changed_truths": 0, "holds_floor": 0.55}
    return figures | dict.fromkeys(TWO, head)


def _by_objects() -> dict[str, Any]:
    shares = {"0": 0.98, "1": 0.95, "2": 0.91}
    head = {
        f"by_number{end}": {name: value + by for name, value in shares.items()}
        for end, by in (("", 0.0), ("_low", -0.01), ("_high", 0.01))
    }
    floors = {
        f"{name}_floor": dict.fromkeys(shares, value)
        for name, value in (("majority", 0.3), ("question_only", 0.4), ("image_only", 0.5))
    }
    return floors | dict.fromkeys(TWO, head)


def _calibration() -> dict[str, Any]:
    figures: dict[str, float] = {"temperature": 1.234}
    for name, value in (("ece", 0.05), ("ece_calibrated", 0.02)):
        figures |= interval(name, value) | {f"{name}_floor": 0.015, f"{name}_floor_high": 0.025}
    return figures | {"mean_confidence": 0.97, "mean_confidence_calibrated": 0.94}


def _attention() -> dict[str, Any]:
    return {
        "questions": 60,
        "area": 0.08,
        "random_weights_mass": 0.081,
        "random_weights_times_area": 1.01,
        **interval("mass", 0.183),
        **interval("times_area", 2.29),
        **interval("others_times_area", 1.12),
    }


def _unlike(families: tuple[str, ...]) -> dict[str, Any]:
    by_family = {f"by_family{end}": dict.fromkeys(families, 0.8) for end in ("", "_low", "_high")}
    lost = {name: own | {"count": 0.0} for name, own in by_family.items()}
    floors = {"question_only": 0.45, "by_family": {"question_only": dict.fromkeys(families, 0.4)}}
    cells = {f"{head}{end}": {"plus@top-right": 0.8 + by} for head, end, by in _ends()}
    usual = {f"{head}{end}": {"plus@top-right": 0.95 + by} for head, end, by in _ends()}
    return {
        "pictures": 20,
        "questions": 80,
        "answers_outside_vocabulary": 0.125,
        "combination": {
            "questions": 40,
            "floors": floors,
            **{head: interval("exact_match", 0.812) | by_family for head in TWO},
        },
        "crowd": {
            "questions": 40,
            "floors": floors,
            **{head: interval("exact_match", 0.612) | lost for head in TWO},
        },
        "by_cell": cells,
        "by_cell_in_test": usual,
    }


def _ends() -> list[tuple[str, str, float]]:
    return [(h, end, by) for h in TWO for end, by in (("", 0.0), ("_low", -0.01), ("_high", 0.01))]
