from collections import Counter

import numpy as np
import pytest
from worlds import COLORFUL, DEFAULT, make_data

from vlm.scenes.captions import (
    CELLS,
    EMPTY_KEY,
    TEMPLATES,
    fact_keys,
    key_facts,
    longest_caption,
    parse_caption,
    write_captions,
)
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import ObjectRecord, from_records

COLORED = make_data(COLORFUL, captions_per_scene=8)
PLAIN = make_data(captions_per_scene=8)


def item(shape: str, row: int, col: int, color: str = "white") -> ObjectRecord:
    return {"shape": shape, "color": color, "row": row, "col": col, "radius": 4}


def test_the_wording_of_the_specification():
    scenes = from_records([[item("plus", 25, 25), item("circle", 6, 6)], []], PLAIN.world)
    data = make_data(captions_per_scene=3)
    captions = write_captions(data, scenes, 0, "train")
    assert sorted(captions.texts[0]) == [
        "a circle at the top left and a plus at the bottom right",
        "there is a circle at the top left and a plus at the bottom right",
        "two shapes : a circle at the top left , a plus at the bottom right",
    ]
    assert sorted(captions.texts[1]) == ["an empty image", "no shapes", "there are no shapes"]
    assert captions.keys.tolist() == ["circle@top-left;plus@bottom-right", "empty"]


def test_objects_are_told_in_reading_order_and_twice_where_there_are_two():
    objects = [item("plus", 24, 6), item("circle", 11, 20), item("circle", 20, 11)]
    scenes = from_records([objects, objects[::-1]], PLAIN.world)
    assert fact_keys(scenes, PLAIN.world) == ["circle@center;circle@center;plus@bottom-left"] * 2


@pytest.mark.parametrize("data", [PLAIN, COLORED])
def test_every_template_parses_back_to_the_scene(data):
    scenes = sample_scenes(data.world, 2, "train", 400)
    captions = write_captions(data, scenes, 2, "train")
    expected = [brute_force_key(objects, data) for objects in scenes.records(data.world)]
    assert captions.keys.tolist() == expected == fact_keys(scenes, data.world)
    for texts, key in zip(captions.texts, expected, strict=True):
        assert {parse_caption(text, data.world) for text in texts} == {key}
        assert len(set(texts)) == len(TEMPLATES)
        assert all(text == " ".join(text.split()) for text in texts)


def brute_force_key(objects: list[ObjectRecord], data) -> str:
    size = data.world.image_size
    facts = []
    for each in objects:
        cell = int(each["row"] / (size / 3)) * 3 + int(each["col"] / (size / 3))
        color = data.world.colors.index(each["color"])
        shape = data.world.shapes.index(each["shape"])
        noun = each["shape"] if len(data.world.colors) == 1 else f"{each['color']} {each['shape']}"
        facts.append((cell, shape, color, f"{noun}@{CELLS[cell].replace(' ', '-')}"))
    return ";".join(fact[-1] for fact in sorted(facts)) or EMPTY_KEY


def test_equal_keys_are_equal_facts():
    scenes = sample_scenes(COLORED.world, 0, "train", 500)
    keys = fact_keys(scenes, COLORED.world)
    for key, objects in zip(keys, scenes.records(COLORED.world), strict=True):
        assert len(key_facts(key)) == len(objects)
        told = Counter(fact.split("@")[0] for fact in key_facts(key))
        assert told == Counter(f"{each['color']} {each['shape']}" for each in objects)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a circle",
        "a circle at the top left and",
        "a circle at the top left and a plus",
        "a star at the top left",
        "circle at the top left",
        "A circle at the top left",
        "a circle at the top left ",
        "a circle  at the top left",
        "a white circle at the top left",
        "two shapes : a circle at the top left",
        "one shape : a circle at the top left , a plus at the center",
        "there is an empty image",
        "a circle at the top left and there are no shapes",
        "there is there is a circle at the top left",
    ],
)
def test_malformed_captions_are_not_parsed(text: str):
    assert parse_caption(text, PLAIN.world) is None


def test_a_parsed_caption_may_tell_its_objects_in_any_order():
    text = "a plus at the bottom right and a circle at the top left"
    assert parse_caption(text, PLAIN.world) == "circle@top-left;plus@bottom-right"


@pytest.mark.parametrize("captions", [1, 3, 8])
def test_each_caption_of_a_scene_is_another_template(captions: int):
    data = make_data(captions_per_scene=captions)
    scenes = from_records([[item("circle", 6, 6)]] * 500, data.world)
    texts = write_captions(data, scenes, 0, "train").texts
    assert texts.shape == (500, captions)
    assert all(len(set(row)) == captions for row in texts)
    for place in range(captions):  # every template stands at every place
        assert len(set(texts[:, place])) == captions


def test_captions_do_not_depend_on_how_many_scenes_follow():
    scenes = sample_scenes(PLAIN.world, 0, "train", 2000)
    whole = write_captions(PLAIN, scenes, 0, "train")
    part = write_captions(PLAIN, scenes[:1100], 0, "train")
    np.testing.assert_array_equal(part.texts, whole.texts[:1100])


@pytest.mark.parametrize("data", [make_data(), PLAIN, COLORED, make_data(captions_per_scene=1)])
def test_longest_caption_is_reached(data):
    corner = data.world.image_size - 1
    colors = data.world.colors
    objects = [item("plus", corner, corner, colors[0])] * data.world.max_objects
    texts = write_captions(data, from_records([objects], data.world), 0, "train").texts[0]
    assert max(len(text.split()) for text in texts) == longest_caption(data)


def test_longest_caption_bounds_the_default_world():
    data = make_data(DEFAULT)
    texts = write_captions(data, sample_scenes(data.world, 0, "train", 3000), 0, "train").texts
    assert max(len(text.split()) for text in texts.ravel()) == longest_caption(data)
