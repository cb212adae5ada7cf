import base64
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from vlm.reporting.pictures import INKS, overlay, picture_data_uri, sample_sheet

LINES = [("is there a circle left of a plus in the image", None), ("yes", True), ("no", False)]


def pictures(n: int, channels: int = 1, size: int = 32) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, channels, size, size), np.uint8)


def opened(png: bytes) -> np.ndarray:
    with Image.open(BytesIO(png)) as image:
        image.load()
        return np.asarray(image)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_sheet_is_a_png_and_the_same_each_time(channels: int) -> None:
    images = pictures(8, channels)
    sheet = sample_sheet(images, [LINES] * 8)
    assert opened(sheet).shape[2] == 3
    assert sheet == sample_sheet(images, [LINES] * 8)


def test_pictures_are_enlarged_pixel_by_pixel() -> None:
    images = pictures(1, 3)
    sheet = opened(sample_sheet(images, [[]]))
    enlarged = images[0].transpose(1, 2, 0).repeat(5, axis=0).repeat(5, axis=1)
    assert (sheet[14 : 14 + 160, 14 : 14 + 160] == enlarged).all()


def test_right_and_wrong_differ_in_shape_as_well_as_colour() -> None:
    right, wrong = (opened(sample_sheet(pictures(1), [[("same", mark)]])) for mark in (True, False))
    assert (right == INKS[True]).all(axis=-1).any()
    assert (wrong == INKS[False]).all(axis=-1).any()
    drawn = [(sheet[180:] < 250).any(axis=-1) for sheet in (right, wrong)]
    assert (drawn[0] != drawn[1]).any()


def test_a_sheet_needs_lines_for_each_picture() -> None:
    with pytest.raises(ValueError, match="got 1 lists of lines, expected one for each of 2"):
        sample_sheet(pictures(2), [LINES])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_data_uri_holds_the_enlarged_picture(channels: int) -> None:
    image = pictures(1, channels)[0]
    kind, encoded = picture_data_uri(image, 2).split(",")
    assert kind == "data:image/png;base64"
    pixels = opened(base64.b64decode(encoded)).reshape(64, 64, channels)
    assert (pixels[::2, 1::2] == image.transpose(1, 2, 0)).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_an_overlay_is_bright_in_proportion_to_the_weight(channels: int) -> None:
    image = pictures(1, channels)[0]
    weights = np.array([0.0, 0.1, 0.2, 0.4])
    lit = overlay(image, weights).astype(float)
    assert lit.shape == (3, 32, 32)
    added = lit - image / 2  # rounding aside: 16 x 16 pixels of each patch
    for patch, weight in enumerate(weights):
        rows, columns = slice(16 * (patch // 2), None), slice(16 * (patch % 2), None)
        expected = np.array([[[230]], [[159]], [[0]]]) * weight / 0.4 / 2
        corner = added[:, rows, columns][:, :16, :16]
        assert np.abs(corner - expected).max() <= 0.5


def test_no_pixel_darkens_where_weight_grows() -> None:
    image = pictures(1)[0]
    less, more = (overlay(image, [1.0, 1.0, weight, 0.0]) for weight in (0.3, 0.9))
    assert (more >= less).all()
    assert (more[0, 16:, :16] > less[0, 16:, :16]).all()
    assert (more[:, :16] == less[:, :16]).all()


@pytest.mark.parametrize(
    "weights", [[], [1.0, 2.0], [1.0] * 9, [0.0] * 4, [-1.0, 1.0, 1.0, 1.0], [[1.0, 1.0]] * 2]
)
def test_an_overlay_needs_a_square_grid_of_weights(weights: list) -> None:
    with pytest.raises(ValueError, match="expected"):
        overlay(pictures(1)[0], weights)
