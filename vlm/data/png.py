"""Pictures as PNG: 8-bit gray or RGB, no metadata, the same bytes for the same pixels."""

from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

Pixels = npt.NDArray[np.uint8]

LEVEL = 6
MODES = {1: "L", 3: "RGB"}  # by channels


def encode(image: Pixels) -> bytes:
    """A (C, H, W) picture as PNG."""
    mode = MODES[len(image)]
    pixels = image[0] if mode == "L" else image.transpose(1, 2, 0)
    out = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(out, "PNG", compress_level=LEVEL)
    return out.getvalue()


def decode(png: bytes) -> Pixels:
    """The pixels of a gray or RGB PNG, (H, W, C).

    Raises:
        ValueError: Bytes that are no such PNG.
    """
    try:
        pixels = np.asarray(PngImageFile(BytesIO(png)))
    except (OSError, SyntaxError, TypeError) as error:
        raise ValueError("bytes that are no PNG") from error
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if pixels.dtype != np.uint8 or pixels.shape[-1] not in MODES:
        raise ValueError(f"a PNG of {pixels.dtype} (H, W, C) {pixels.shape}")
    return pixels
