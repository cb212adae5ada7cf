"""Any picture of the user's as what the model sees: a square of 8-bit gray or RGB.

Read are PNG, JPEG, WebP, GIF (its first frame), BMP and TIFF, in any of their modes but
floating-point ones; a rotation in the EXIF data is applied. Transparent places become white. What
16 bits hold is scaled to 8, not cut off. Gray of a coloured picture is its luma (ITU-R 601).

Sizes change by bilinear interpolation, whose support grows with the reduction, so that nothing
aliases. A picture of the right size keeps every pixel.
"""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from math import prod
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from vlm.data.importers.rows import BadRowError

Pixels = npt.NDArray[np.uint8]

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
WHITE = 255  # what shows through transparent places, and beside a picture that is no square
_ORIENTATION = 0x0112
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # tags of TIFF
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_DEEP = 0xFFFF  # the white of 16 bits
_SCALED = ((np.arange(_DEEP + 1) * 255 + _DEEP // 2) // _DEEP).astype(np.uint8)
_AT_ONCE = 1 << 20  # pixels


def load_picture(
    encoded: bytes,
    image_size: int,
    channels: Literal[1, 3],
    fit: Literal["pad", "crop", "stretch"],
    max_pixels: int,
) -> Pixels:
    """Decode a picture and bring it to a square.

    Args:
        encoded: a file's bytes.
        image_size: side of the square, pixels.
        channels: 1 for gray, 3 for RGB.
        fit: `pad` scales the whole picture into the square, in its middle, white beside it; `crop`
            takes the largest square from its middle; `stretch` scales each side by itself.
        max_pixels: a picture whose header says that it has more isn't decoded.

    Returns:
        (channels, image_size, image_size).

    Raises:
        BadRowError: no such picture, or a damaged one.
    """
    with _guarded(max_pixels):
        image = _decode(encoded, channels, max_pixels)
    square = _square(image, image_size, fit)
    pixels = np.asarray(square)
    return np.ascontiguousarray(pixels[None] if channels == 1 else pixels.transpose(2, 0, 1))


@contextmanager
def _guarded(max_pixels: int) -> Iterator[None]:
    """Whatever goes wrong while decoding is the picture's fault, and told in one line."""
    limit = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = max_pixels  # by which Pillow warns, here raises, before it decodes
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except BadRowError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise _too_many(max_pixels) from None
    except UnidentifiedImageError:
        raise BadRowError(
            "picture: got other bytes or a broken header, expected PNG, JPEG, WebP, GIF, BMP or"
            " TIFF"
        ) from None
    except Exception as error:  # a decoder fed with damaged bytes may raise anything
        # Addresses in memory differ from run to run.
        reason = re.sub(r"<.*>", "…", " ".join(str(error).split()))[:100]
        raise BadRowError(
            f"picture: got a damaged file ({reason or type(error).__name__}), expected a whole one"
        ) from error
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _too_many(max_pixels: int) -> BadRowError:
    return BadRowError(f"picture: got over {max_pixels} pixels, expected fewer")


@contextmanager
def _silent() -> Iterator[None]:
    """Whatever the TIFF library in C writes to stderr by itself goes nowhere."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _decode(encoded: bytes, channels: Literal[1, 3], max_pixels: int) -> Image.Image:
    """The upright picture, of mode L or RGB."""
    if not encoded:
        raise BadRowError("picture: got no bytes, expected a picture")
    with Image.open(BytesIO(encoded), formats=FORMATS) as image:
        if min(image.size) < 1:
            raise BadRowError(f"picture: got (width, height) {image.size}, expected at least 1")
        if isinstance(image, TiffImageFile) and _tile_pixels(image) > max_pixels:
            raise _too_many(max_pixels)
        with _silent() if image.format == "TIFF" else nullcontext():
            image.load()
        turn = image.getexif().get(_ORIENTATION)
        flat = _flatten(image).convert("L" if channels == 1 else "RGB")
    return flat.transpose(_UPRIGHT[turn]) if turn in _UPRIGHT else flat


def _tile_pixels(image: TiffImageFile) -> int:
    """A tile is decoded whole, and a small picture may say that its only one is huge."""
    sides = (image.tag_v2.get(tag, 0) for tag in (_TILE_WIDTH, _TILE_LENGTH))
    return prod(int(np.max(side)) for side in sides)


def _flatten(image: Image.Image) -> Image.Image:
    """8 bits a channel, nothing transparent."""
    if image.mode == "F":
        raise BadRowError("picture: got floating-point intensities, expected 8 or 16 bits")
    if image.mode == "I" or image.mode.startswith("I;"):
        return _to_8_bits(image)
    if not image.has_transparency_data:
        return image
    over = image.convert("RGBA")
    white = Image.new("RGBA", over.size, (WHITE, WHITE, WHITE, WHITE))
    return Image.alpha_composite(white, over).convert("RGB")


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Gray of 16 bits, which may come as integers of 32."""
    deep = np.asarray(image)
    if deep.min() < 0 or deep.max() > _DEEP:
        raise BadRowError(
            f"picture: got intensities of {deep.min()} to {deep.max()}, expected 0 to {_DEEP}"
        )
    gray = np.empty(deep.shape, np.uint8)
    from_flat, to_flat = deep.reshape(-1), gray.reshape(-1)
    for start in range(0, deep.size, _AT_ONCE):  # numbers take several times the room
        part = slice(start, start + _AT_ONCE)
        to_flat[part] = _SCALED[from_flat[part]]
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        gray[deep == clear] = WHITE
    return Image.fromarray(gray)


def _square(image: Image.Image, side: int, fit: str) -> Image.Image:
    width, height = image.size
    if fit == "crop":
        least = min(width, height)
        left, top = (width - least) // 2, (height - least) // 2
        image = image.crop((left, top, left + least, top + least))
    if fit != "pad":
        return _resize(image, side, side)
    most = max(width, height)
    # In whole numbers, to the nearest, a half up; a thin line stays a line.
    width, height = (max((2 * n * side + most) // (2 * most), 1) for n in (width, height))
    square = Image.new(image.mode, (side, side), WHITE if image.mode == "L" else (WHITE,) * 3)
    square.paste(_resize(image, width, height), ((side - width) // 2, (side - height) // 2))
    return square


def _resize(image: Image.Image, width: int, height: int) -> Image.Image:
    if image.size == (width, height):
        return image
    return image.resize((width, height), Image.Resampling.BILINEAR)
