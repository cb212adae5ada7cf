"""Every kind of picture, and what is none."""

import struct
import tracemalloc
import warnings
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from vlm.data.importers import pictures
from vlm.data.importers.pictures import FORMATS, load_picture
from vlm.data.importers.rows import BadRowError

SIDE = 16
RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (SIDE, SIDE), np.uint8)
COLOR = RNG.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
ALPHA = RNG.integers(0, 256, (SIDE, SIDE, 1), np.uint8)


def encode(image: Image.Image, kind: str = "PNG", **how: Any) -> bytes:
    out = BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def load(encoded: bytes, channels: Any = 3, fit: Any = "pad", side: int = SIDE) -> np.ndarray:
    pixels = load_picture(encoded, side, channels, fit, 1 << 20)
    assert pixels.shape == (channels, side, side) and pixels.dtype == np.uint8
    return pixels


def over_white(color: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return 255 + (color - 255.0) * (alpha / 255)


def test_a_picture_of_the_right_size_and_kind_keeps_its_pixels():
    for fit in ("pad", "crop", "stretch"):
        assert (load(encode(Image.fromarray(GRAY)), 1, fit) == GRAY).all()
        assert (load(encode(Image.fromarray(GRAY)), 3, fit) == GRAY).all()
        for kind in ("PNG", "BMP", "TIFF"):
            assert (
                load(encode(Image.fromarray(COLOR), kind), 3, fit).transpose(1, 2, 0) == COLOR
            ).all()


def test_alpha_lies_over_white_and_gray_is_luma():
    rgba = encode(Image.fromarray(np.concatenate([COLOR, ALPHA], 2)))
    flat = over_white(COLOR, ALPHA)
    assert np.abs(load(rgba).transpose(1, 2, 0) - flat).max() <= 1
    luma = flat @ [0.299, 0.587, 0.114]
    assert np.abs(load(rgba, 1)[0] - luma).max() <= 2
    la = encode(Image.fromarray(np.stack([GRAY, ALPHA[..., 0]], 2), "LA"))
    assert np.abs(load(la, 1)[0] - over_white(GRAY, ALPHA[..., 0])).max() <= 1


def test_palettes_and_one_bit():
    palette = Image.fromarray(COLOR).quantize(17)
    expected = np.asarray(palette.convert("RGB")).copy()
    assert (load(encode(palette)).transpose(1, 2, 0) == expected).all()
    assert (load(encode(palette, "GIF")).transpose(1, 2, 0) == expected).all()
    expected[np.asarray(palette) == 3] = 255
    assert (load(encode(palette, transparency=3)).transpose(1, 2, 0) == expected).all()
    bits = GRAY > 127
    assert (load(encode(Image.fromarray(bits)), 1)[0] == np.where(bits, 255, 0)).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bits_are_scaled_not_cut_off(kind: str):
    deep = RNG.integers(0, 65536, (SIDE, SIDE)).astype(np.uint16)
    images = [Image.fromarray(deep)]
    if kind == "TIFF":
        images += [Image.fromarray(deep.astype(">u2")), Image.fromarray(deep.astype(np.int32))]
    for image in images:
        got = load(encode(image, kind), 1)[0]
        assert np.abs(got - deep / 257).max() <= 0.5 + 1e-9
        assert (load(encode(image, kind), 3) == got).all()


def test_16_bits_take_no_more_room_than_their_decoding(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pictures, "_AT_ONCE", 1000, raising=False)
    deep = np.random.default_rng(0).integers(0, 1 << 16, (700, 500), np.uint16)
    encoded = encode(Image.fromarray(deep))
    tracemalloc.start()
    gray = load(encoded, 1, "crop", 500)[0]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (gray == np.round(deep[100:600] / 257)).all()
    assert most < 5 * deep.size


def test_printed_colours_and_television_ones():
    for mode in ("CMYK", "YCbCr"):
        smooth = Image.fromarray(np.full((SIDE, SIDE, 3), (200, 80, 40), np.uint8)).convert(mode)
        for kind in ("JPEG", "TIFF"):
            got = load(encode(smooth, kind, **({"quality": 100} if kind == "JPEG" else {})))
            assert np.abs(got.mean((1, 2)) - [200, 80, 40]).max() < 4, (mode, kind)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_rotation_in_the_exif_data_is_applied(kind: str):
    blocks = Image.fromarray(
        np.kron([[0, 80], [160, 255], [40, 200]], np.ones((8, 8))).astype("u1")
    )
    how: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        tagged = encode(blocks.convert("RGB"), kind, exif=exif, **how)
        turned = blocks.copy()
        turned.getexif()[0x0112] = orientation
        upright = encode(ImageOps.exif_transpose(turned))
        assert np.abs(load(tagged, 1).astype(int) - load(upright, 1)).max() <= 2, orientation


def test_any_shape_becomes_a_square():
    for height, width in ((1, 1), (1, 1000), (1000, 1), (3, 3), (7, 500), (17, 16), (16, 17)):
        pixels = RNG.integers(0, 255, (height, width), np.uint8)
        for fit in ("pad", "crop", "stretch"):
            for channels in (1, 3):
                load(encode(Image.fromarray(pixels)), channels, fit)


def test_fits():
    wide = Image.fromarray(
        np.repeat(np.arange(4, dtype=np.uint8) * 40, SIDE // 2)[None].repeat(SIDE, 0)
    )
    crop = load(encode(wide), 1, "crop")[0]  # 32 x 16, of which the middle stays as it is
    assert (crop == np.repeat([40, 80], SIDE // 2)).all()
    pad = load(encode(wide), 1, "pad")[0]
    assert (pad[:4] == 255).all() and (pad[12:] == 255).all() and (pad[4:12] < 255).all()
    assert (pad[4:12] == pad[4]).all()
    stretch = load(encode(wide), 1, "stretch")[0]
    assert (stretch == stretch[0]).all() and (np.diff(stretch[0].astype(int)) >= 0).all()


def test_reducing_does_not_alias():
    stripes = (np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)
    assert np.abs(load(encode(Image.fromarray(stripes)), 1)[0].astype(int) - 127).max() < 8


def chunk(name: bytes, data: bytes) -> bytes:
    body = name + data
    return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def test_bombs_are_refused_before_they_go_off():
    head = b"\x89PNG\r\n\x1a\n"
    size = (60_000).to_bytes(4, "big")
    zeros = zlib.compress(bytes(1 << 20))
    large = head + chunk(b"IHDR", size * 2 + b"\x08\0\0\0\0") + chunk(b"IDAT", zeros)
    with pytest.raises(BadRowError, match=r"^picture: got over 1048576 pixels, expected fewer$"):
        load(large)
    with pytest.raises(BadRowError, match="over 255 pixels"):
        load_picture(encode(Image.fromarray(GRAY)), SIDE, 1, "pad", SIDE * SIDE - 1)
    load_picture(encode(Image.fromarray(GRAY)), SIDE, 1, "pad", SIDE * SIDE)
    picture = encode(Image.fromarray(GRAY))
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 26), 9))
    with pytest.raises(BadRowError, match="damaged"):
        load(picture[:33] + text + picture[33:])


def tiled(side: int) -> bytes:
    """A gray TIFF of 8 x 8 pixels in one deflated tile that says it is so large."""
    content = zlib.compress(bytes([7]) * 256)
    tags = {256: 8, 257: 8, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side}
    tags |= {324: 8 + 2 + 12 * 10 + 4, 325: len(content)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4) + content


def test_a_small_picture_of_a_huge_tile_is_a_bomb():
    assert (load(tiled(16), 1, "stretch", 8) == 7).all()
    with pytest.raises(BadRowError, match=r"^picture: got over 1048576 pixels, expected fewer$"):
        load(tiled(48_000))


def test_what_is_no_picture_says_so():
    whole = encode(Image.fromarray(COLOR))
    for encoded in (
        b"",
        b"no picture",
        whole[: len(whole) // 2],
        encode(Image.fromarray(COLOR), "PPM"),
    ):
        with pytest.raises(BadRowError, match=r"^picture: got") as caught:
            load(encoded)
        assert "0x" not in str(caught.value)
    with pytest.raises(BadRowError, match="floating-point"):
        load(encode(Image.fromarray(GRAY.astype(np.float32)), "TIFF"))
    with pytest.raises(BadRowError, match="intensities of -1 to 70000"):
        load(encode(Image.fromarray(np.array([[-1, 70000]], np.int32)), "TIFF"))


@pytest.mark.parametrize("kind", [*FORMATS, "TIFF, compressed", "JPEG, CMYK"])
def test_damaged_bytes_are_a_reason_and_never_more(kind: str, capfd: pytest.CaptureFixture[str]):
    name, _, how = kind.partition(", ")
    options: dict[str, Any] = {"compression": "tiff_adobe_deflate"} if how == "compressed" else {}
    exif = Image.Exif()
    exif[0x0112] = 6
    if name in ("PNG", "JPEG", "WEBP", "TIFF"):
        options["exif"] = exif
    whole = encode(
        Image.fromarray(COLOR).convert("CMYK" if how == "CMYK" else "RGB"), name, **options
    )
    rng = np.random.default_rng(list(kind.encode()))
    reasons: list[str] = []
    for number in range(120):
        bad = bytearray(whole)
        for place in rng.integers(0, min(len(bad), 60 if number % 2 else len(bad)), 1 + number % 5):
            bad[place] = rng.integers(256)
        if number % 4 == 0:
            del bad[int(rng.integers(len(bad))) :]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                load(bytes(bad))
            except BadRowError as error:
                reasons.append(str(error))
    assert len(reasons) > 20 and all(len(reason.splitlines()) == 1 for reason in reasons)
    assert capfd.readouterr() == ("", "")
