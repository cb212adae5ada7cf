"""Pictures as PNG: 8-bit gray or RGB, no metadata, the same bytes for the same pixels.

Small pictures are put together here: one IDAT chunk, no row filter, zlib at level 1 with the
strategy `Z_HUFFMAN_ONLY`. Their noise repeats nothing that a search for matches could find, and so
they come out smaller than with Pillow at level 6, and several times as fast. Larger ones, whose
neighbouring pixels are mostly alike, go through Pillow at level 6 with its filters.
"""

import struct
import zlib
from functools import cache
from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

Pixels = npt.NDArray[np.uint8]

SMALL = 1 << 13  # pixel values of the largest picture that is put together here
LEVEL = 6  # of Pillow, for the others
MODES = {1: "L", 3: "RGB"}  # by channels
COLOR_TYPES = {1: 0, 3: 2}  # by channels, as PNG numbers them
NO_PNG = "bytes that are no PNG"
SIGNATURE = b"\x89PNG\r\n\x1a\n"
START = len(SIGNATURE) + 25  # where the chunk after the header begins


def encode(image: Pixels) -> bytes:
    """A (C, H, W) picture as PNG."""
    if image.size > SMALL:
        pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
        out = BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels)).save(out, "PNG", compress_level=LEVEL)
        return out.getvalue()
    channels, height, width = image.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # a 0 first: no filter
    rows[:, 1:].reshape(height, width, channels)[:] = image.transpose(1, 2, 0)
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 8, zlib.Z_HUFFMAN_ONLY)
    packed = packer.compress(rows.tobytes()) + packer.flush()
    return _header(height, width, channels) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def decode(png: bytes) -> Pixels:
    """The pixels of a gray or RGB PNG, (H, W, C).

    Raises:
        ValueError: Bytes that are no such PNG.
    """
    pixels = _decode_own(png)
    if pixels is not None:
        return pixels
    try:
        PngImageFile(BytesIO(png)).verify()  # reading on, Pillow would overlook what is at the end
        pixels = np.asarray(PngImageFile(BytesIO(png)))
    except (OSError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(NO_PNG) from error
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if pixels.dtype != np.uint8 or pixels.shape[-1] not in MODES:
        raise ValueError(f"a PNG of {pixels.dtype} (H, W, C) {pixels.shape}")
    return pixels


def _decode_own(png: bytes) -> Pixels | None:
    """As `decode` where the picture is as `encode` puts them together; None for any other.

    Raises:
        ValueError: One whose data are not what its header says.
    """
    if len(png) < START + 24 or png[START + 4 : START + 8] != b"IDAT":
        return None
    width, height, _, color_type = struct.unpack_from(">IIBB", png, 16)
    channels = 3 if color_type == COLOR_TYPES[3] else 1
    if not 0 < height * width * channels <= SMALL or png[:START] != _header(
        height, width, channels
    ):
        return None
    packed = png[START + 8 : -16]
    if png[START:] != _chunk(b"IDAT", packed) + _chunk(b"IEND", b""):
        return None
    size = height * (1 + width * channels)
    unpacker = zlib.decompressobj()
    try:
        values = unpacker.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(NO_PNG) from error
    if not unpacker.eof or len(values) != size:
        raise ValueError(NO_PNG)
    rows = np.frombuffer(values, np.uint8).reshape(height, -1)
    if rows[:, 0].any():
        return None
    return rows[:, 1:].reshape(height, width, channels)


@cache
def _header(height: int, width: int, channels: int) -> bytes:
    """The signature and the header's chunk: 8 bits a value, not interlaced."""
    fields = struct.pack(">IIBBBBB", width, height, 8, COLOR_TYPES[channels], 0, 0, 0)
    return SIGNATURE + _chunk(b"IHDR", fields)


def _chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk: its length, its kind, what it holds, and their checksum."""
    checksum = zlib.crc32(content, zlib.crc32(kind))
    return b"".join((struct.pack(">I", len(content)), kind, content, struct.pack(">I", checksum)))
