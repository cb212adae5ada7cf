"""The sheet of scenes: pictures pixel for pixel, all texts there or visibly cut."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from vlm.reporting import contact_sheet as sheets
from vlm.reporting.contact_sheet import Asked, Card, contact_sheet, spread, wrap

ODD = [
    "$x_{ \\frac $$",
    "\u00e9t\u00e9 \u732b\u304c\u597d\u304d \U0001f388 \U0001f469\u200d\U0001f467",
    "\u05e9\u05dc\u05d5\u05dd \u0639\u0631\u0628\u064a",
    "\x00\x1b[31m\t\r\n",
    "",
    "z" * 5000,
    "\u200b\ufeff",
]


def picture(channels: int = 1, height: int = 12, width: int = 12) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (channels, height, width), np.uint8)


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(png)))


@pytest.mark.parametrize(
    ("channels", "height", "width", "scale"),
    [(1, 12, 12, 16), (3, 12, 12, 16), (3, 32, 20, 6), (3, 224, 224, 1), (1, 1, 9, 22)],
)
def test_a_picture_is_enlarged_pixel_by_pixel(channels: int, height: int, width: int, scale: int):
    image = picture(channels, height, width)
    got = pixels(contact_sheet("t", [Card(0, image, [], [])]))
    top, left = 2 * sheets.PAD + sheets.LINE + sheets.PAD, 2 * sheets.PAD
    shown = got[top : top + height * scale, left : left + width * scale]
    for row in range(height):
        for column in range(width):
            block = shown[row * scale : (row + 1) * scale, column * scale : (column + 1) * scale]
            assert (block == image[:, row, column]).all()


def test_a_large_picture_is_shrunk_to_fit_the_card():
    green = np.array([7, 177, 20], np.uint8)
    big = np.broadcast_to(green[:, None, None], (3, 700, 1000))
    got = pixels(contact_sheet("t", [Card(0, big, ["a"], [])]))
    assert got.shape[1] == sheets.CARD + 2 * sheets.PAD
    assert (got == green).all(axis=2).sum() == 175 * 250


def test_cards_stand_in_rows_and_repeat_byte_for_byte():
    card = Card(3, picture(), ["a circle"], [Asked("count", "how many", "2")])
    sizes = [pixels(contact_sheet("t", [card] * n)).shape for n in (1, 3, 4, 7)]
    assert sizes[0][0] == sizes[1][0] < sizes[2][0] < sizes[3][0]
    assert sizes[0][1] < sizes[1][1] == sizes[2][1] == sizes[3][1]
    assert contact_sheet("t", [card] * 4) == contact_sheet("t", [card] * 4)
    with pytest.raises(ValueError, match="got no cards"):
        contact_sheet("t", [])


def test_each_text_shows_and_an_unknown_answer_shows_as_such():
    """Another text is another sheet; None is neither the empty answer nor the words for it."""

    def sheet(caption: str = "a", family: str = "f", question: str = "q", answer: str | None = "x"):
        return contact_sheet(
            "t", [Card(0, picture(), [caption], [Asked(family, question, answer)])]
        )

    sheets_ = [sheet(), sheet("b"), sheet(family="g"), sheet(question="p"), sheet(answer="y")]
    sheets_ += [sheet(answer=None), sheet(answer=""), sheet(answer=sheets.NO_ANSWER)]
    assert len(set(sheets_)) == len(sheets_)


@pytest.mark.parametrize("text", ODD)
def test_any_text_is_drawn(text: str):
    asked = [Asked(text, text, text), Asked(text, text, None)]
    contact_sheet(text, [Card(1, picture(3), [text] * 3, asked)])


@pytest.mark.parametrize("style", ["", "Bold", "Oblique"])
@pytest.mark.parametrize("lines", [1, 3])
@pytest.mark.parametrize("text", ["one two  three\nfour", "word " * 50, "w" * 300, *ODD])
def test_wrapped_lines_fit_and_hold_the_text_or_say_that_it_is_cut(
    text: str, lines: int, style: str
):
    got = wrap(text, 120, lines, style)
    font = sheets._font(style)
    assert 1 <= len(got) <= lines
    assert all(font.getlength(line) <= 120 for line in got)
    kept = "".join("".join(got).split())
    whole = "".join(c if c.isprintable() else "\ufffd" for c in "".join(text.split()))
    assert kept == whole or (kept.endswith("…") and whole.startswith(kept[:-1]))
    room = sum(font.getlength(word + " ") for word in text.split())
    assert kept == whole or room > 120 * lines * 0.5


def test_words_are_not_broken_where_they_fit():
    text = "is there a circle left of a plus in the image"
    got = wrap(text, 130, 9)
    assert len(got) > 2 and " ".join(got) == text


def test_many_questions_are_cut_to_some_of_each_family():
    questions = [Asked(family, f"{family}{n}", "a") for family in "abc" for n in range(9)]
    got = [question.question for question in spread(questions, 7)]
    assert got == ["a0", "a1", "a2", "b0", "b1", "c0", "c1"]
    assert spread(questions, 27) == questions
