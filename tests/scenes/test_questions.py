from collections import Counter

import numpy as np
import pytest
from slow_truth import PLURALS, brute_force
from worlds import COLORFUL, DEFAULT, SEVEN, SHARES, make_data

from vlm.config.data import DataConfig
from vlm.errors import UserError
from vlm.scenes.asking import AskedQuestions, draw_questions
from vlm.scenes.captions import write_captions
from vlm.scenes.programs import NO_VALUE, Program, answers, execute
from vlm.scenes.questions import longest_text, question_table
from vlm.scenes.render import render
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import ObjectRecord, Scenes, from_records


def asked(data: DataConfig, n: int, seed: int = 0) -> tuple[Scenes, AskedQuestions]:
    scenes = sample_scenes(data.world, seed, "train", n)
    return scenes, draw_questions(data, scenes, seed, "train")


@pytest.mark.parametrize("balance", ["natural", "balanced"])
@pytest.mark.parametrize(
    ("world", "families"), [(DEFAULT, SHARES | {"compare": 1.0}), (COLORFUL, SEVEN)]
)
def test_answers_equal_a_brute_force_over_the_stored_objects(
    world: dict[str, object], families: dict[str, float], balance: str
):
    data = make_data(world, questions_per_scene=16, families=families, answer_balance=balance)
    scenes, table = asked(data, 250)
    records, size = scenes.records(data.world), data.world.image_size
    assert set(table.family) == set(families)
    for number, family, question, answer, phrase in zip(
        table.scene_id.tolist(),
        table.family,
        table.question,
        table.answer,
        table.phrase,
        strict=True,
    ):
        expected = brute_force(family, question, records[number], size, data.relation_margin)
        assert (answer, phrase) == expected, (question, records[number])


def test_the_wording_of_the_specification():
    table = question_table(make_data(COLORFUL | {"shapes": ["plus", "circle"]}, families=SEVEN))
    first = {family: questions[0].texts[0] for family, questions in table.items()}
    assert first == {
        "what_shape": "what shape is in the image",
        "count": "how many shapes are there in the image",
        "exists": "is there a plus in the image",
        "position": "is there a shape in the top half of the image",
        "relation": "is there a plus left of a circle in the image",
        "compare": "are there more pluses than circles in the image",
        "color": "what color is the plus",
    }
    assert table["compare"][1].phrases == (
        "no there are not more circles than pluses",
        "yes there are more circles than pluses",
    )
    assert table["color"][1].phrases == (
        "the circle is red",
        "the circle is white",
        "the circle is blue",
    )
    assert {question.texts for question in table["relation"]} == {
        (f"is there a {one} {way} a {other} in the image",)
        for one, other in (("plus", "circle"), ("circle", "plus"))
        for way in ("left of", "right of", "above", "below")
    }


@pytest.mark.parametrize("shapes", [["plus", "circle"], COLORFUL["shapes"]])
def test_every_ordered_pair_is_compared(shapes: list[str]):
    data = make_data(COLORFUL | {"shapes": shapes}, families={"compare": 1.0})
    texts = [question.texts for question in question_table(data)["compare"]]
    assert texts == [
        (f"are there more {PLURALS[one]} than {PLURALS[other]} in the image",)
        for one in shapes
        for other in shapes
        if one != other
    ]


def test_shares_that_sum_to_the_questions_are_met_in_each_scene():
    _, table = asked(make_data(), 1100)
    for start in range(0, len(table.family), 8):
        assert Counter(table.family[start : start + 8]) == SHARES
    np.testing.assert_array_equal(table.scene_id, np.arange(1100).repeat(8))


@pytest.mark.parametrize("questions", [1, 3])
def test_other_shares_are_met_on_average(questions: int):
    shares = {"what_shape": 0.1, "count": 0.2, "relation": 0.7}
    _, table = asked(make_data(questions_per_scene=questions, families=shares), 6000)
    got = Counter(table.family.tolist())
    for family, share in shares.items():
        assert abs(got[family] / len(table.family) - share) < 0.02


def test_no_variant_is_repeated_while_another_is_left():
    _, table = asked(make_data(questions_per_scene=10, families={"relation": 1.0}), 300)
    for start in range(0, 3000, 10):  # 8 variants, 10 questions
        assert set(Counter(table.question[start : start + 8]).values()) == {1}
        assert max(Counter(table.question[start : start + 10]).values()) == 2


def test_a_repeated_program_is_worded_anew():
    _, table = asked(make_data(questions_per_scene=2, families={"count": 1.0}), 300)
    assert (table.question[::2] != table.question[1::2]).all()
    assert len(set(table.question[::2])) == 2


@pytest.mark.parametrize("family", ["exists", "position", "relation", "compare"])
@pytest.mark.parametrize("world", [DEFAULT, COLORFUL])
def test_balanced_answers_are_nearer_to_half(world: dict[str, object], family: str):
    distance = {}
    for balance in ("natural", "balanced"):
        data = make_data(
            world, questions_per_scene=1, families={family: 1.0}, answer_balance=balance
        )
        _, table = asked(data, 4000)
        distance[balance] = abs((table.answer == "yes").mean() - 0.5)
    assert distance["balanced"] < max(0.025, distance["natural"] / 1.5)


def test_a_family_more_moves_no_scene_picture_or_caption():
    few = make_data(families={"count": 1.0})
    many = make_data(families=SHARES)
    (one, _), (other, _) = asked(few, 60), asked(many, 60)
    assert one.records(few.world) == other.records(many.world)
    np.testing.assert_array_equal(
        render(one, few.world, 0, "train"), render(other, many.world, 0, "train")
    )
    np.testing.assert_array_equal(
        write_captions(few, one, 0, "train").texts, write_captions(many, other, 0, "train").texts
    )


def test_the_order_of_the_families_in_the_parameters_means_nothing():
    _, one = asked(make_data(), 50)
    _, other = asked(make_data(families=dict(reversed(SHARES.items()))), 50)
    np.testing.assert_array_equal(one.question, other.question)


@pytest.mark.parametrize("balance", ["natural", "balanced"])
def test_questions_do_not_depend_on_how_many_scenes_follow(balance: str):
    data = make_data(answer_balance=balance)
    (_, part), (_, whole) = asked(data, 1100), asked(data, 2100)
    np.testing.assert_array_equal(part.question, whole.question[: 1100 * 8])
    np.testing.assert_array_equal(part.phrase, whole.phrase[: 1100 * 8])


@pytest.mark.parametrize("world", [DEFAULT, COLORFUL])
def test_longest_text_bounds_every_text(world: dict[str, object]):
    families = SEVEN if world is COLORFUL else SHARES
    data = make_data(world, captions_per_scene=8, families=families)
    scenes, table = asked(data, 2000)
    captions = write_captions(data, scenes, 0, "train").texts.ravel()
    longest = max(len(s.split()) for s in (*table.question, *table.phrase, *captions))
    assert longest <= longest_text(data)
    if world is DEFAULT:
        assert longest == longest_text(data)


def test_longest_text_counts_questions_where_captions_are_short():
    data = make_data(DEFAULT | {"max_objects": 1}, captions_per_scene=1)
    assert longest_text(data) == 11  # is there a shape in the top half of the image


@pytest.mark.parametrize("family", ["compare", "color"])
def test_longest_text_counts_each_family(family: str):
    world = DEFAULT | {"max_objects": 1, "channels": 3, "colors": ["red", "blue"]}
    data = make_data(world, captions_per_scene=1, families={family: 1.0})
    longest = {"compare": 9, "color": 7}  # the caption is longer: a red plus at the top left
    assert longest_text(data) == longest[family]


@pytest.mark.parametrize("family", ["relation", "compare"])
def test_two_shapes_are_needed(family: str):
    data = make_data(DEFAULT | {"shapes": ["ring"]}, families={family: 1.0})
    with pytest.raises(UserError, match=rf"data.families.{family} has no question.*\['ring'\]"):
        question_table(data)


def test_color_needs_two_colors():
    data = make_data(families={"color": 1.0})
    with pytest.raises(UserError) as error:
        question_table(data)
    assert str(error.value) == (
        "data.families.color has no question to ask with data.world.colors ['white'],"
        " expected at least two colors"
    )


def test_programs_are_typed():
    scene = Program("scene")
    with pytest.raises(ValueError, match=r"count: got inputs \('number',\), expected"):
        Program("count", (Program("count", (scene,)),))
    with pytest.raises(ValueError, match="operation 'cuont' not in"):
        Program("cuont", (scene,))
    with pytest.raises(ValueError, match="a program that gives object is no question"):
        answers(Program("unique", (scene,)), make_data().world)


def test_programs_compose():
    data = make_data(COLORFUL)
    objects: list[ObjectRecord] = [
        {"shape": "ring", "color": "red", "row": 30, "col": 9, "radius": 4},
        {"shape": "star", "color": "red", "row": 9, "col": 9, "radius": 4},
        {"shape": "star", "color": "blue", "row": 40, "col": 30, "radius": 4},
    ]
    scenes = from_records([objects, []], data.world)
    red = Program("filter_color", (Program("scene"),), ("red",))
    high = Program("filter_half", (red,), ("top",))
    assert execute(Program("count", (red,)), scenes, data.world).tolist() == [2, 0]
    star, none = data.world.shapes.index("star"), len(data.world.shapes)
    assert execute(Program("query_shape", (high,)), scenes, data.world).tolist() == [star, none]
    color = Program("query_color", (Program("unique", (high,)),))
    red_index = data.world.colors.index("red")
    assert execute(color, scenes, data.world).tolist() == [red_index, NO_VALUE]


def test_colors_are_asked_evenly():
    data = make_data(COLORFUL, questions_per_scene=1, families={"color": 1.0})
    _, table = asked(data, 4000)
    shares = Counter(table.answer.tolist())
    assert set(shares) == set(data.world.colors)
    for count in shares.values():
        assert abs(count / len(table.answer) - 1 / 3) < 0.03
