"""The floors of a world whose floors are known: one question a scene, four families alike."""

import pytest
from project import read_preset

from vlm.config import parse_params
from vlm.evaluation.floors import AskedColumns, floor_correct
from vlm.scenes.asking import draw_questions
from vlm.scenes.sampler import sample_scenes


def test_floors_of_the_notebooks_world():
    """what_shape, count, is there a circle, is there a plus: 26.6%, 39.2% and 43.6%."""
    values = read_preset("tiny")
    values["data"] |= {
        "questions_per_scene": 1,
        "families": {"what_shape": 1, "count": 1, "exists": 2},
    }
    data = parse_params(values).data

    def columns(split: str) -> AskedColumns:
        scenes = sample_scenes(data.world, 0, split, 20_000)
        asked = draw_questions(data, scenes, 0, split)
        facts = [
            tuple(sorted(thing["shape"] for thing in scene)) for scene in scenes.records(data.world)
        ]
        return AskedColumns(asked.question, asked.answer, asked.family, facts)

    floors = floor_correct(columns("train"), columns("test"), families_alike=False)
    expected = {"majority": 0.266, "question_only": 0.392, "image_only": 0.436}
    for name, value in expected.items():
        # The standard error of a share near 0.4 of 20,000 is 0.0035.
        assert floors[name].mean() == pytest.approx(value, abs=0.0105), name
