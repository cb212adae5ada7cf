"""Pictures for people: a sheet of samples, and a picture as text inside an HTML page."""

import base64
import math
import textwrap
from collections.abc import Sequence
from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from vlm.data import png

Pixels = npt.NDArray[np.uint8]
Line = tuple[str, bool | None]  # a text, and whether it is right; None: nothing to judge

COLUMNS = 6
CELL, GAP = 236, 14  # pixels
PICTURE = 160  # pixels that the longer side of a picture is enlarged to, at most
FONT_SIZE, LINE_HEIGHT, MARK = 13, 18, 9  # pixels
CHARACTERS = 32  # a line
BACKGROUND = (255, 255, 255)
# Blue and vermilion of Okabe and Ito tell apart under every common colour blindness.
INKS = {True: (0, 114, 178), False: (213, 94, 0), None: (40, 40, 40)}

LIGHT = (230, 159, 0)  # their orange
DIMMED = 0.5  # of a picture's brightness, under the light


def sample_sheet(images: Pixels, lines: Sequence[Sequence[Line]]) -> bytes:
    """A sheet of pictures with a few lines of text under each, as PNG.

    A right line is blue with a tick before it, a wrong one vermilion with a cross.

    Args:
        images: (n, C, H, W) pictures, C 1 or 3.
        lines: For each picture its lines; long ones are wrapped.

    Returns:
        The same bytes for the same arguments.

    Raises:
        ValueError: No pictures, or not one list of lines for each.
    """
    if not len(images) or len(images) != len(lines):
        raise ValueError(f"got {len(lines)} lists of lines, expected one for each of {len(images)}")
    wrapped = [
        [(part, mark, not row) for text, mark in cell for row, part in enumerate(_wrap(text))]
        for cell in lines
    ]
    pictures = [Image.fromarray(_pixels(_enlarge(image, _scale(image)))) for image in images]
    top = pictures[0].height + GAP // 2  # of the text in a cell
    height = top + max(map(len, wrapped)) * LINE_HEIGHT + GAP
    columns = min(COLUMNS, len(images))
    rows = -(-len(images) // columns)
    sheet = Image.new("RGB", (GAP + columns * (CELL + GAP), GAP + rows * height), BACKGROUND)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(FONT_SIZE)
    for number, (picture, cell) in enumerate(zip(pictures, wrapped, strict=True)):
        x = GAP + number % columns * (CELL + GAP)
        y = GAP + number // columns * height
        sheet.paste(picture, (x, y))
        for row, (text, mark, first) in enumerate(cell):
            at = y + top + row * LINE_HEIGHT
            indent = 0 if mark is None else MARK + 6
            pen.text((x + indent, at), text, INKS[mark], font)
            if first and mark is not None:
                _draw_mark(pen, x, at + 4, mark)
    out = BytesIO()
    sheet.save(out, "PNG")
    return out.getvalue()


def picture_data_uri(image: Pixels, scale: int = 1) -> str:
    """A (C, H, W) picture, every pixel `scale` wide and high, as the data URI of a PNG."""
    encoded = png.encode(_enlarge(image, scale))
    return "data:image/png;base64," + base64.b64encode(encoded).decode("ascii")


def overlay(image: Pixels, weights: npt.ArrayLike) -> Pixels:
    """A (C, H, W) picture, dimmed, with an orange light where weight lies: (3, H, W).

    The light is in proportion to the weight, and full where that is largest. It only ever adds, so
    a brighter patch always means more weight, to every eye and on every picture.

    Args:
        image: Gray or colour.
        weights: (P,) of the patches, row by row; they tile the picture in a square grid.

    Raises:
        ValueError: Weights that aren't so many, below 0, or 0 everywhere.
    """
    given = np.asarray(weights, np.float64)
    grid = math.isqrt(given.size)
    height, width = image.shape[1:]
    if given.shape != (grid**2,) or not grid or height % grid or width % grid:
        raise ValueError(f"got weights {given.shape}, expected a square grid over {image.shape}")
    if not ((given >= 0).all() and given.max() > 0):
        raise ValueError("expected weights of at least 0, and one above")
    light = (given / given.max()).reshape(grid, grid)
    light = light.repeat(height // grid, axis=0).repeat(width // grid, axis=1)
    dimmed = np.broadcast_to(image, (3, height, width)) * DIMMED
    lit = dimmed + (1 - DIMMED) * light * np.array(LIGHT)[:, None, None]
    return np.rint(lit).astype(np.uint8)


def _enlarge(image: Pixels, scale: int) -> Pixels:
    return image.repeat(scale, axis=1).repeat(scale, axis=2)


def _scale(image: Pixels) -> int:
    return max(1, PICTURE // max(image.shape[1:]))


def _pixels(image: Pixels) -> Pixels:
    """(C, H, W) gray or colour to (H, W, 3)."""
    return np.ascontiguousarray(np.broadcast_to(image, (3, *image.shape[1:])).transpose(1, 2, 0))


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, CHARACTERS) or [""]


def _draw_mark(pen: ImageDraw.ImageDraw, x: int, y: int, right: bool) -> None:
    """A tick or a cross: drawn, since fonts often lack the characters."""
    if right:
        tick = [(x, y + MARK // 2), (x + MARK // 3, y + MARK - 1), (x + MARK, y)]
        pen.line(tick, INKS[True], 2)
    else:
        pen.line([(x, y), (x + MARK - 1, y + MARK - 1)], INKS[False], 2)
        pen.line([(x, y + MARK - 1), (x + MARK - 1, y)], INKS[False], 2)
