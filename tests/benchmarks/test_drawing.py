"""The plain loop draws the same kind of world, and the benchmark says what it finds."""

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from project import ROOT, read_preset

from benchmarks.drawing import main
from benchmarks.plain_drawing import ask, caption, cell, draw_objects, draw_picture, write_plainly
from vlm.config import parse_params
from vlm.config.data import DataConfig
from vlm.data import png
from vlm.scenes.captions import fact_keys, parse_caption
from vlm.scenes.render import draw
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import CELLS, cell_name, from_records
from vlm.scenes.truth import Truth

COLORFUL = {
    "channels": 3,
    "shapes": ["plus", "circle", "square", "ring"],
    "colors": ["red", "white"],
    "max_radius": 5,
    "margin": 3,
    "held_out": ["plus@center"],
}


def make_data(**world: object) -> DataConfig:
    values = read_preset("default")
    values["data"]["world"] |= world
    values["model"]["vision"] |= {"pixel_mean": [0.1], "pixel_std": [0.1]}
    return parse_params(values).data


@pytest.mark.parametrize("changes", [{}, COLORFUL], ids=["default", "colorful"])
def test_the_plain_loop_draws_the_same_kind_of_world(changes: dict[str, object]):
    data = make_data(**changes, noise=0.0)
    world, rng = data.world, np.random.default_rng(0)
    records = [draw_objects(world, rng) for _ in range(600)]
    for objects in records:
        for number, one in enumerate(objects):
            place = cell(one["row"], one["col"], world)
            assert f"{one['shape']}@{cell_name(place)}" not in world.held_out
            for other in objects[:number]:
                down, right = (abs(one[key] - other[key]) for key in ("row", "col"))
                assert max(down, right) >= world.spacing
            assert world.margin <= min(one["row"], one["col"])
            assert max(one["row"], one["col"]) < world.image_size - world.margin
    counts = np.bincount([len(objects) for objects in records], minlength=world.max_objects + 1)
    ours = np.bincount(sample_scenes(world, 0, "train", 600).count, minlength=len(counts))
    assert np.abs(counts - ours).max() < 5 * np.sqrt(2 * 600 * 0.25)
    scenes = from_records(records, world)  # type: ignore[arg-type]
    pictures = np.stack([draw_picture(objects, world, rng) for objects in records[:50]])
    np.testing.assert_array_equal(pictures, draw(scenes[:50], world) * 255)
    keys = fact_keys(scenes, world)
    truth = Truth(data)
    for number, objects in enumerate(records):
        told = sorted(objects, key=lambda o: CELLS.index(cell(o["row"], o["col"], world)))
        assert parse_caption(caption(told, number % 8, world), world) == keys[number]
        for family in ("what_shape", "count", "exists", "position", "relation"):
            question, answer, phrase = ask(family, objects, data, rng)
            answers, phrases = truth.tell(scenes, np.array([number]), [question])
            assert (answers[0], phrases[0]) == (answer, phrase)


def test_the_plain_loops_noise_is_ours():
    data = make_data()
    rng = np.random.default_rng(0)
    pictures = np.stack([draw_picture([], data.world, rng) for _ in range(50)])
    assert pictures.mean() / 255 == pytest.approx(0.03 / np.sqrt(2 * np.pi), rel=0.05)


def test_the_plain_loop_writes_both_tables(tmp_path: Path):
    write_plainly(make_data(), 0, 5, tmp_path)
    scenes = pq.read_table(tmp_path / "scenes.parquet").to_pylist()
    questions = pq.read_table(tmp_path / "questions.parquet").to_pylist()
    assert len(scenes) == 5 and len(questions) == 40
    assert png.decode(scenes[3]["image"]["bytes"]).shape == (32, 32, 1)


def test_it_says_how_many_times_as_fast(capsys: pytest.CaptureFixture[str]):
    main(["--scenes", "40", "--rounds", "1"])
    printed = capsys.readouterr().out
    assert len(re.findall(r"ours over the plain loop: [\d.]+, >= [63] (?:not )?met", printed)) == 2
    assert "numpy's standard_normal alone" in printed
    assert "Z_HUFFMAN_ONLY" in printed and "level 6" in printed


def test_it_says_the_peak_of_each_size(capsys: pytest.CaptureFixture[str]):
    params = str(ROOT / "presets/tiny.yaml")
    main(["--memory", "--params", params, "--sizes", "300", "400"])
    printed = capsys.readouterr().out
    assert re.search(r"300 scenes of train: peak \d+ MiB\n +400 scenes", printed)
    assert re.search(r"growth [\d.]+: <= 1.15 (not )?met", printed)
