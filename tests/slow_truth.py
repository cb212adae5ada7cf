"""The answer to a question read from its words, object by object; no code of `vlm.scenes` in it."""

from collections.abc import Mapping, Sequence
from typing import Any

WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

PLURALS = {
    "plus": "pluses",
    "circle": "circles",
    "square": "squares",
    "triangle": "triangles",
    "diamond": "diamonds",
    "ring": "rings",
    "star": "stars",
}


def counted_shapes(number: int) -> str:
    return f"there is {WORDS[1]} shape" if number == 1 else f"there are {WORDS[number]} shapes"


def brute_force(
    family: str, question: str, objects: Sequence[Mapping[str, Any]], size: int, margin: int
) -> tuple[str, str] | None:
    """Answer and phrase, from the question's words and the stored objects alone.

    None where the question has no answer.
    """
    if family == "count":
        return str(len(objects)), counted_shapes(len(objects))
    if family == "what_shape":
        if len(objects) == 1:
            return objects[0]["shape"], f"it is a {objects[0]['shape']}"
        return str(len(objects)), counted_shapes(len(objects)) if objects else "there is no shape"
    words = question.split()
    if family == "color":
        assert words[:4] == ["what", "color", "is", "the"] and len(words) == 5
        colors = [each["color"] for each in objects if each["shape"] == words[4]]
        return (colors[0], f"the {words[4]} is {colors[0]}") if len(colors) == 1 else None
    if family == "compare":
        assert words[:3] == ["are", "there", "more"]
        assert words[4] == "than" and words[6:] == ["in", "the", "image"]
        lead = 0
        for each in objects:
            lead += {words[3]: 1, words[5]: -1}.get(PLURALS[each["shape"]], 0)
        said = f"more {words[3]} than {words[5]}"
        return ("yes", f"yes there are {said}") if lead > 0 else ("no", f"no there are not {said}")
    assert words[:3] == ["is", "there", "a"]
    said = question.removeprefix("is there a ")
    noun, truth = words[3], False
    if family == "exists":
        said = said.removesuffix(" in the image")
        truth = any(each["shape"] == noun for each in objects)
    elif family == "position":
        said = said.removesuffix(" of the image")
        for each in objects:
            above, before = each["row"] < size / 2, each["col"] < size / 2
            halves = {"top": above, "bottom": not above, "left": before, "right": not before}
            truth = truth or halves[words[6]]
    else:
        said = said.removesuffix(" in the image")
        for one in (each for each in objects if each["shape"] == noun):
            for two in (each for each in objects if each["shape"] == words[-4]):
                down, right = two["row"] - one["row"], two["col"] - one["col"]
                ahead = {"left": right, "right": -right, "above": down, "below": -down}
                truth = truth or ahead[words[4]] >= margin
    if truth:
        return "yes", f"yes there is a {said}"
    return "no", f"no there is no {said}"


def is_degenerate(
    family: str, question: str, objects: Sequence[Mapping[str, Any]], size: int, margin: int
) -> bool:
    """Whether a step that the words ask for picks all of the objects that it picks from."""
    words = question.split()
    if family in ("count", "what_shape"):
        return False
    if family == "position":
        axis, low = ("row", "top") if words[6] in ("top", "bottom") else ("col", "left")
        picked = [each for each in objects if (each[axis] < size / 2) == (words[6] == low)]
        return len(picked) == len(objects)
    names = [name for name in PLURALS if name in words or PLURALS[name] in words]
    groups = {name: [each for each in objects if each["shape"] == name] for name in names}
    if any(len(group) == len(objects) for group in groups.values()):
        return True
    if family != "relation":
        return False
    related = [
        one
        for one in groups[words[3]]
        if "yes" in (brute_force(family, question, [one, *groups[words[-4]]], size, margin) or ())
    ]
    return len(related) == len(groups[words[3]])
