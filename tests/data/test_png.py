"""Pictures as PNG: what any reader makes of ours, what ours makes of others', and broken ones."""

import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from vlm.data import png

SIZES = [(1, 1), (1, 1000), (1000, 1), (3, 3), (32, 32), (48, 56), (64, 128), (65, 127), (224, 224)]


def picture(channels: int, height: int, width: int) -> np.ndarray:
    shape = (channels, height, width)
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def by_pillow(encoded: bytes) -> np.ndarray:
    """Read by another's code, (C, H, W)."""
    with Image.open(BytesIO(encoded)) as image:
        assert image.mode in ("L", "RGB") and not image.info
        pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_pictures_of_any_size_come_back_and_pillow_reads_them(
    channels: int, height: int, width: int
):
    image = picture(channels, height, width)
    encoded = png.encode(image)
    assert encoded == png.encode(np.asfortranarray(image))
    np.testing.assert_array_equal(by_pillow(encoded), image)
    decoded = png.decode(encoded)
    assert decoded.dtype == np.uint8
    np.testing.assert_array_equal(decoded.transpose(2, 0, 1), image)


@pytest.mark.parametrize("channels", [1, 3])
def test_small_pictures_are_read_without_pillow(channels: int, monkeypatch: pytest.MonkeyPatch):
    image = picture(channels, 32, 32)
    monkeypatch.delattr(png, "PngImageFile")
    np.testing.assert_array_equal(png.decode(png.encode(image)).transpose(2, 0, 1), image)


@pytest.mark.parametrize("small", [0, png.SMALL])
@pytest.mark.parametrize("image", [picture(1, 4, 5), picture(3, 2, 2)], ids=["gray", "rgb"])
def test_whatever_is_cut_or_flipped_is_refused(
    image: np.ndarray, small: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(png, "SMALL", small)
    good = png.encode(image)
    end = len(good) - 12  # where the last chunk begins, which holds nothing
    cut = [good[:length] for length in range(end)]
    flipped = []
    for bit in range(8 * end):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(bad))
    for bad in cut + flipped:
        with pytest.raises(ValueError, match="PNG"):
            png.decode(bad)


def resealed(values: bytes, height: int, width: int) -> bytes:
    """A gray PNG of these rows, with checksums that hold."""
    return b"".join(
        (
            png._header(height, width, 1),
            png._chunk(b"IDAT", zlib.compress(values)),
            png._chunk(b"IEND", b""),
        )
    )


def test_rows_with_a_filter_go_to_pillow():
    rows = bytes([0, 7, 8, 2, 1, 1])  # the second row adds to the one above
    assert png.decode(resealed(rows, 2, 2))[..., 0].tolist() == [[7, 8], [8, 9]]


@pytest.mark.parametrize("missing", [1, 3])
def test_too_few_values_are_refused(missing: int):
    with pytest.raises(ValueError, match="no PNG"):
        png.decode(resealed(bytes(6 - missing), 2, 2))


def test_more_data_than_the_header_says_is_not_unpacked():
    """Whoever unpacked it all would need 64 MiB for four pixels."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    bomb = png._header(2, 2, 1) + png._chunk(b"IDAT", packed) + png._chunk(b"IEND", b"")
    with pytest.raises(ValueError, match="no PNG"):
        png.decode(bomb)


def test_a_smooth_picture_gets_the_filters_that_shrink_it():
    ramp = np.add.outer(np.arange(96), 2 * np.arange(96)) % 256
    image = np.stack([ramp] * 3).astype(np.uint8)
    assert len(png.encode(image)) < image.size / 20
    assert struct.unpack(">II", png.encode(image)[16:24]) == (96, 96)
