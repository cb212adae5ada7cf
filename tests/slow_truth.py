"""The answer to a question read from its words, object by object; no code of `vlm.scenes` in it."""

from collections.abc import Mapping, Sequence
from typing import Any

WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def counted_shapes(number: int) -> str:
    return f"there is {WORDS[1]} shape" if number == 1 else f"there are {WORDS[number]} shapes"


def brute_force(
    family: str, question: str, objects: Sequence[Mapping[str, Any]], size: int, margin: int
) -> tuple[str, str]:
    """Answer and phrase, from the question's words and the stored objects alone."""
    if family == "count":
        return str(len(objects)), counted_shapes(len(objects))
    if family == "what_shape":
        if len(objects) == 1:
            return objects[0]["shape"], f"it is a {objects[0]['shape']}"
        return str(len(objects)), counted_shapes(len(objects)) if objects else "there is no shape"
    words = question.split()
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
