"""CLEVR's programs, against a plain evaluation from the last node backwards."""

import random
from typing import Any

import pytest
from published import clevr_scene, nodes, thing

from vlm.data.importers.clevr_programs import FUNCTIONS, execute, read_program, read_scene
from vlm.data.importers.rows import BadRowError

WORDS = {
    "size": ["small", "large"],
    "color": ["red", "blue"],
    "material": ["rubber", "metal"],
    "shape": ["cube", "sphere"],
}
COMPARED = {"equal_integer": "==", "less_than": "<", "greater_than": ">"}


def random_scene(rng: random.Random) -> dict[str, Any]:
    places = rng.sample(range(50), 10)
    things = [
        thing(*(rng.choice(words) for words in WORDS.values()), places[i], places[i + 5])
        for i in range(rng.randint(0, 5))
    ]
    return clevr_scene("a.png", things)


def random_program(rng: random.Random) -> list[tuple[Any, ...]]:
    """Grown at random: each next node takes any earlier ones of its kinds."""
    program: list[tuple[Any, ...]] = [("scene", [])]
    names, least = sorted(FUNCTIONS), rng.randint(2, 14)
    while True:
        name = rng.choice(names)
        function = FUNCTIONS[name]
        options = [
            [i for i, node in enumerate(program) if FUNCTIONS[node[0]].gives == kind]
            for kind in function.takes
        ]
        if not all(options):
            continue
        inputs = [rng.choice(each) for each in options]
        constant = []
        if function.has_constant:
            words = WORDS.get(name.partition("_")[2], ["left", "right", "front", "behind"])
            constant = [rng.choice(words)]
        program.append((name, inputs, *constant))
        if function.family and len(program) > least:
            return program


def plain(program: list[Any], scene: dict[str, Any], place: int) -> Any:
    """The value at a place; objects as the dictionaries that they are, found by identity."""
    name, inputs, *constant = program[place]
    values = [plain(program, scene, each) for each in inputs]
    verb, _, attribute = name.partition("_")
    if name in COMPARED:
        return eval(f"{values[0]} {COMPARED[name]} {values[1]}")
    if name == "scene":
        return list(scene["objects"])
    if name == "unique":
        if len(values[0]) != 1:
            raise LookupError
        return values[0][0]
    if name == "relate":
        x, y, _ = values[0]["pixel_coords"]
        shifts = {
            "left": lambda a, b: a < x,
            "right": lambda a, b: a > x,
            "front": lambda a, b: b > y,
            "behind": lambda a, b: b < y,
        }
        holds = shifts[constant[0]]
        return [each for each in scene["objects"] if holds(*each["pixel_coords"][:2])]
    if name == "union":
        return [o for o in scene["objects"] if any(o is a for side in values for a in side)]
    if name == "intersect":
        return [o for o in scene["objects"] if all(any(o is a for a in side) for side in values)]
    if name == "equal_object":
        return values[0] is values[1]
    if verb == "count":
        return len(values[0])
    if verb == "exist":
        return bool(values[0])
    if verb == "filter":
        return [each for each in values[0] if each[attribute] == constant[0]]
    if verb == "query":
        return values[0][attribute]
    if verb == "same":
        one = values[0]
        return [o for o in scene["objects"] if o is not one and o[attribute] == one[attribute]]
    assert verb == "equal"
    return values[0] == values[1]


def test_programs_answer_as_a_plain_evaluation_does():
    rng = random.Random(0)
    answered, reached = 0, set()
    for _ in range(2000):
        scene, program = random_scene(rng), random_program(rng)
        read = read_program(nodes(program))
        try:  # node by node, since a `unique` whose value nobody takes must hold too
            values = [plain(program, scene, place) for place in range(len(program))]
        except LookupError:
            with pytest.raises(BadRowError, match=r"\(unique\): got \d objects, expected one"):
                execute(read, read_scene(scene))
            continue
        expected = {"True": "yes", "False": "no"}.get(str(values[-1]), str(values[-1]))
        assert execute(read, read_scene(scene)) == expected, program
        answered += 1
        reached |= {node[0] for node in program}
    assert answered > 500 and reached == set(FUNCTIONS)
