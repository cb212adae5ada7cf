"""VQA v2's published scorer: figures recorded from it, and its rules restated step by step.

Recorded from the published scorer in its last revision (where both sides are normalised, and only
where annotators disagree), run by itself under Python 3.11, each annotator with an id of its own.
"""

import random
import re

import pytest

from vlm.evaluation.contractions import CONTRACTIONS
from vlm.evaluation.vqa_metrics import normalize_answer, vqa_accuracy, vqa_normalized_match

NORMALISED = [
    ("Yes!", "yes"),
    ("1,000 (cats)", "1000 cats"),
    ("red/blue", "red blue"),
    ("red, blue", "red blue"),
    ("red ,blue", "red blue"),
    ("x-ray", "x ray"),
    ("a. b.", "b"),
    ("2.5.", "2.5"),
    ("5. 3", "5 3"),
    (".5", ".5"),
    ("3.0", "3.0"),
    ("none", "0"),
    ("The one", "1"),
    ("dont", "don't"),
    ("couldnt've", "couldn't've"),
    ("couldn'tve", "couldn't've"),
    ("somebody'd", "somebodyd"),
    ("let's", "let's"),
    ("shed", "shed"),
    ("ow's'at", "'ow's'at"),
    ("yall'd've", "y'all'd've"),
    ("Im", "im"),
    ("a\rb,c", "b c"),
    ("a\xa0,b", "b"),
    ("\u0661,\u0662!x", "\u0661\u0662x"),
    ("[a]", ""),
    ("an", ""),
    ("{two}", "2"),
    ("mr. t", "mr t"),
    ("a.m.", "am"),
    ("12:30", "12:30"),
    ("it's", "it's"),
    ("ten-four", "10 4"),
    ("a\tthe\nb", "b"),
    ("-5", "5"),
    ("yes_no", "yes no"),
]
ACCURACIES = [
    ("Two", ["two", "two", "two", "two", "two", "two", "two", "two", "two", "two"], 0.0),
    ("Two", ["two", "two", "two", "two", "two", "two", "two", "two", "two", "2"], 1.0),
    ("red\n", ["red", "red", "red", "red", "red", "red", "red", "red", "red", "red"], 1.0),
    ("a\tb", ["a b", "a b", "a b", "a b", "a b", "a b", "a b", "a b", "a b", "a b"], 1.0),
    (" red", ["red", "red ", "Red"], 0.6666666666666666),
    ("the red", ["red", "red", "red", "blue", "blue", "blue", "blue", "blue", "blue", "blue"], 0.9),
    ("dont", ["don't", "dont", "no", "no"], 0.5),
    ("x-ray", ["x ray", "xray", "x-ray"], 0.4444444444444444),
    ("red.", ["red", "red"], 0.0),
    ("none", ["0", "zero", "1"], 0.4444444444444444),
    ("", ["", ""], 0.3333333333333333),
    ("", ["a", "the"], 0.3333333333333333),
    ("red", ["red", "red"], 0.3333333333333333),
    ("red", ["red", "red", "red", "red", "blue"], 1.0),
    ("1000", ["1,000", "1000", "x"], 0.4444444444444444),
]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
PIECES = [*";/[]\"{}()=+\\_-><@`,?!.:'", " ", "  ", "\n", "\t", "\r", "\x0b", "\u00a0", "1", "2"]
PIECES += ["1,000", "2.5", "." * 40, "two", "Two", "none", "a", "The", "cat", "dont", "somebody'd"]
PIECES += [
    "Im",
    "Ive",
    "ow's'at",
    "couldnt've",
    "shed",
    "yes",
    "\u0663,\u0664",
    "\u0130",
    " ,",
    ", ",
]


def restated(answer: str) -> str:
    """One rule after the other, a character or a word at a time."""
    answer = "".join(" " if c in "\n\t" else c for c in answer).strip()
    grouped = any(re.fullmatch(r"\d,\d", answer[i : i + 3]) for i in range(len(answer)))
    out = answer
    for mark in ';/[]"{}()=+\\_-><@`,?!':
        around = zip(" " + answer, answer + " ", strict=True)
        beside = any(set(pair) == {mark, " "} for pair in list(around)[1:-1])
        out = "".join(("" if beside or grouped else " ") if c == mark else c for c in out)
    stops, kept = 0, ""
    for i, c in enumerate(out):
        if c == "." and not re.match(r"\d", out[i + 1 : i + 2]) and stops < 32:
            stops += 1
        else:
            kept += c
    words = []
    for word in kept.lower().split():
        if word in NUMBERS or word == "none":
            word = str(NUMBERS.index(word)) if word in NUMBERS else "0"
        if word in ("a", "an", "the"):
            continue
        words.append(CONTRACTIONS.get(word, word))
    return " ".join(words)


def scored(prediction: str, answers: list[str]) -> float:
    lines = [re.sub("[\n\t]", " ", text).strip() for text in (prediction, *answers)]
    if len(set(lines[1:])) > 1:
        lines = [restated(line) for line in lines]
    said, *annotated = lines
    scores = [0.0] * len(annotated)
    for left_out in range(len(annotated)):
        agreeing = sum(a == said for i, a in enumerate(annotated) if i != left_out)
        scores[left_out] = min(1.0, agreeing / 3)
    return sum(scores) / len(scores)


@pytest.mark.parametrize(("answer", "normal"), NORMALISED)
def test_normalised_as_recorded(answer: str, normal: str):
    assert normalize_answer(answer) == normal
    assert restated(answer) == normal


@pytest.mark.parametrize(("prediction", "answers", "expected"), ACCURACIES)
def test_accuracy_as_recorded(prediction: str, answers: list[str], expected: float):
    assert vqa_accuracy(prediction, answers) == pytest.approx(expected, abs=1e-12)
    assert scored(prediction, answers) == pytest.approx(expected, abs=1e-12)


def test_only_32_full_stops_go():
    assert normalize_answer("." * 34) == ".."


def test_agrees_with_the_rules_on_1000_nasty_answers():
    rng = random.Random(0)
    found = 0
    for _ in range(1000):
        pool = ["".join(rng.choices(PIECES, k=rng.randint(0, 5))) for _ in range(2)]
        variants = [change(text) for text in pool for change in (str, str.upper, "the {}.".format)]
        answers = rng.choices(variants, k=rng.randint(2, 12))
        if rng.random() < 0.2:
            answers = answers[:1] * len(answers)
        prediction = rng.choice(variants)
        assert normalize_answer(prediction) == restated(prediction)
        expected = scored(prediction, answers)
        assert vqa_accuracy(prediction, answers) == pytest.approx(expected, abs=1e-12)
        found += expected > 0
    assert found > 300


def test_a_lone_annotator_is_matched_where_the_published_code_gives_0():
    assert scored("red", ["red"]) == 0.0
    assert vqa_accuracy("red", ["red"]) == 1.0


def test_contractions_miss_one_apostrophe_each_but_for_one():
    assert len(CONTRACTIONS) == 114
    odd = {short for short, word in CONTRACTIONS.items() if len(word) != len(short) + 1}
    assert odd == {"somebody'd"}


def test_normalized_match_is_the_share_of_equal_normal_forms():
    assert vqa_normalized_match(["Yes.", "2", "red"], ["yes", "two", "blue"]) == pytest.approx(
        2 / 3
    )
