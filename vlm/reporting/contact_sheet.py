"""A sheet of scenes with all that is said and asked about them, readable at its own size."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

Pixels = npt.NDArray[np.uint8]
Font = ImageFont.FreeTypeFont

COLUMNS = 3
CARD, PAD = 460, 16  # pixels: a card's width, and what is left free around it
PICTURE = 200  # that a picture's longer side is enlarged to, at most
LARGEST = 256  # a longer side is shrunk to this
SIZE, LINE = 14, 19  # pixels: of the letters, and from line to line
MOST_CAPTIONS, MOST_QUESTIONS = 2, 10
CAPTION_LINES, QUESTION_LINES, ANSWER_LINES = 5, 3, 2  # at most
LONGEST = 1000  # characters that are laid out at all
INDENT, BULLET = 18, 12
NO_ANSWER = "no answer given"

PAPER, EDGE = (255, 255, 255), (214, 214, 214)
INK, FAINT, BLUE = (30, 30, 30), (110, 110, 110), (0, 90, 160)


class Asked(NamedTuple):
    """A question; `answer` is None where nobody knows it."""

    family: str
    question: str
    answer: str | None


class Card(NamedTuple):
    """A scene; `picture` is (C, H, W), C 1 or 3."""

    scene_id: int
    picture: Pixels
    captions: Sequence[str]
    questions: Sequence[Asked]


class Line(NamedTuple):
    """A line of text, `x` pixels right of where it could begin.

    A bullet stands before it, and `tag` at the right edge.
    """

    text: str
    style: str = ""
    color: tuple[int, int, int] = INK
    x: int = 0
    bullet: bool = False
    tag: str = ""


def contact_sheet(title: str, cards: Sequence[Card]) -> bytes:
    """The scenes in rows, as PNG: the same bytes for the same arguments.

    A card has the picture, enlarged without smoothing, up to `MOST_CAPTIONS` captions, and up to
    `MOST_QUESTIONS` questions, of as many families as there are. Long texts end in an ellipsis.

    Raises:
        ValueError: No cards.
    """
    if not cards:
        raise ValueError("got no cards, expected at least one")
    drawn = [_card(card) for card in cards]
    rows = [drawn[start : start + COLUMNS] for start in range(0, len(drawn), COLUMNS)]
    heights = [max(card.height for card in row) for row in rows]
    top = 2 * PAD + LINE
    width = PAD + min(COLUMNS, len(cards)) * (CARD + PAD)
    sheet = Image.new("RGB", (width, top + sum(heights) + PAD * len(rows)), PAPER)
    pen = ImageDraw.Draw(sheet)
    room = width - 2 * PAD
    _write(pen, PAD, PAD, room, [Line(wrap(title, room, 1, "Bold")[0], "Bold")])
    y = top
    for row, height in zip(rows, heights, strict=True):
        for place, card in enumerate(row):
            x = PAD + place * (CARD + PAD)
            sheet.paste(card, (x, y))
            pen.rectangle((x, y, x + CARD - 1, y + height - 1), outline=EDGE)
        y += height + PAD
    out = BytesIO()
    sheet.save(out, "PNG")
    return out.getvalue()


def spread(questions: Sequence[Asked], most: int) -> list[Asked]:
    """At most so many questions, in their order: the first of each family, then the second ones."""
    turn: dict[str, int] = {}
    ranks = []
    for number, question in enumerate(questions):
        turn[question.family] = turn.get(question.family, 0) + 1
        ranks.append((turn[question.family], number))
    return [questions[number] for number in sorted(number for _, number in sorted(ranks)[:most])]


def wrap(text: str, width: int, lines: int, style: str = "") -> list[str]:
    """A text in at most so many lines of `width` pixels; one that is cut ends in an ellipsis.

    Line breaks count as spaces, and a character that shows nothing is replaced by a mark.
    """
    rest = " ".join(text[:LONGEST].split())
    rest = "".join(letter if letter.isprintable() else "\ufffd" for letter in rest)
    wrapped: list[str] = []
    while rest and len(wrapped) < lines:
        fit = max(1, _fitting(rest, width, style))
        if fit < len(rest):
            space = rest.rfind(" ", 0, fit + 1)
            fit = space if space > 0 else fit
        wrapped.append(rest[:fit].rstrip())
        rest = rest[fit:].lstrip()
    if rest or len(text) > LONGEST:
        last = wrapped.pop() if wrapped else ""
        fit = _fitting(last, width - round(_font(style).getlength("…")), style)
        wrapped.append(last[:fit].rstrip() + "…")
    return wrapped or [""]


def _card(card: Card) -> Image.Image:
    picture = _shown(card.picture)
    beside = CARD - 3 * PAD - picture.width
    texts = [Line(f"scene {card.scene_id}", "Bold"), *_captions(card.captions, beside)]
    asked = list(_questions(card.questions))
    top = PAD + max(picture.height, LINE * len(texts)) + PAD // 2
    image = Image.new("RGB", (CARD, top + LINE * len(asked) + PAD), PAPER)
    image.paste(picture, (PAD, PAD))
    pen = ImageDraw.Draw(image)
    _write(pen, 2 * PAD + picture.width, PAD, beside, texts)
    _write(pen, PAD, top, CARD - 2 * PAD, asked)
    return image


def _shown(image: Pixels) -> Image.Image:
    """A (C, H, W) picture, each pixel a square, or shrunk where it is large."""
    pixels = np.broadcast_to(image, (3, *image.shape[1:])).transpose(1, 2, 0)
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    longer = max(picture.size)
    if longer > LARGEST:
        return picture.reduce(-(-longer // LARGEST))
    scale = max(1, PICTURE // longer)
    size = (picture.width * scale, picture.height * scale)
    return picture.resize(size, Image.Resampling.NEAREST)


def _captions(captions: Sequence[str], width: int) -> Iterable[Line]:
    if not captions:
        yield Line("no caption", "Oblique", FAINT)
    for caption in captions[:MOST_CAPTIONS]:
        for row, text in enumerate(wrap(caption, width - BULLET, CAPTION_LINES)):
            yield Line(text, x=BULLET, bullet=not row)
    if len(captions) > MOST_CAPTIONS:
        yield Line(f"and {len(captions) - MOST_CAPTIONS} more", "Oblique", FAINT)


def _questions(questions: Sequence[Asked]) -> Iterable[Line]:
    """Each question, and under it the answer with the family's name beside it."""
    width = CARD - 2 * PAD
    if not questions:
        yield Line("no question", "Oblique", FAINT)
    for family, question, answer in spread(questions, MOST_QUESTIONS):
        yield from map(Line, wrap(question, width, QUESTION_LINES))
        tag = wrap(family, width // 3, 1)[0]
        style, color = ("Oblique", FAINT) if answer is None else ("Bold", BLUE)
        text = NO_ANSWER if answer is None else answer
        room = width - INDENT - round(_font().getlength(tag)) - PAD
        for row, line in enumerate(wrap(text, room, ANSWER_LINES, style)):
            yield Line(line, style, color, INDENT, tag="" if row else tag)
    if len(questions) > MOST_QUESTIONS:
        yield Line(f"and {len(questions) - MOST_QUESTIONS} more", "Oblique", FAINT)


def _write(pen: ImageDraw.ImageDraw, x: int, y: int, width: int, lines: Sequence[Line]) -> None:
    for row, line in enumerate(lines):
        at = y + row * LINE
        pen.text((x + line.x, at), line.text, line.color, _font(line.style))
        if line.bullet:
            pen.text((x, at), "•", FAINT, _font())
        if line.tag:
            left = x + width - round(_font().getlength(line.tag))
            pen.text((left, at), line.tag, FAINT, _font())


def _fitting(text: str, width: int, style: str) -> int:
    """How many characters of a text fit."""
    font = _font(style)
    return bisect_right(range(1, len(text) + 1), width, key=lambda end: font.getlength(text[:end]))


@cache
def _font(style: str = "") -> Font:
    """DejaVu Sans, which has letters of many scripts; a letter that it lacks is a box."""
    name = f"DejaVuSans-{style}.ttf" if style else "DejaVuSans.ttf"
    path = Path(matplotlib.get_data_path(), "fonts/ttf", name)
    # The basic layout is everywhere; another would shape, and so draw, a text differently.
    return ImageFont.truetype(str(path), SIZE, layout_engine=ImageFont.Layout.BASIC)
