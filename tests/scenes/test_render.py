from statistics import NormalDist
from typing import get_args

import numpy as np
import pytest
from worlds import COLORFUL, DEFAULT

from vlm.config.data import Shape, WorldConfig
from vlm.errors import UserError
from vlm.scenes import render as rendering
from vlm.scenes.render import RGB, draw, render, render_batches, stamp
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import ObjectRecord, from_records
from vlm.scenes.streams import BLOCK, stream


def covers(item: ObjectRecord, row: int, col: int) -> bool:
    """Whether an object's shape holds this pixel, written from the specification's words."""
    r, down, right = item["radius"], row - item["row"], col - item["col"]
    far, square_distance = max(abs(down), abs(right)), down * down + right * right
    if far > r:
        return False
    match item["shape"]:
        case "plus":
            return -1 <= down <= 1 or -1 <= right <= 1
        case "circle":
            return square_distance <= r * r
        case "square":
            return True
        case "triangle":
            return abs(right) <= (down + r) / 2
        case "diamond":
            return abs(down) + abs(right) <= r
        case "ring":
            return (r - 2) ** 2 < square_distance <= r * r
        case _:
            return down == 0 or right == 0 or down == right or down == -right


@pytest.mark.parametrize("values", [DEFAULT, COLORFUL])
def test_pictures_equal_a_pixel_by_pixel_oracle(values: dict[str, object]):
    world = WorldConfig.model_validate(values)
    scenes = sample_scenes(world, 1, "train", 12)
    expected = np.zeros((12, world.channels, world.image_size, world.image_size), np.float32)
    for number, objects in enumerate(scenes.records(world)):
        for row, col in np.ndindex(world.image_size, world.image_size):
            for item in objects:
                if covers(item, row, col):
                    expected[number, :, row, col] = RGB[item["color"]][: world.channels]
    np.testing.assert_array_equal(draw(scenes, world), expected)


def test_a_shape_at_the_border_is_cut():
    world = WorldConfig.model_validate(DEFAULT | {"margin": 0})
    item: ObjectRecord = {"shape": "circle", "color": "white", "row": 0, "col": 31, "radius": 4}
    picture = draw(from_records([[item]], world), world)[0, 0]
    assert picture[:5, 27:].sum() == picture.sum() == (stamp("circle", 4)[4:, :5]).sum()


@pytest.mark.parametrize("radius", [3, 4, 7, 12])
def test_shapes_are_distinct_and_fill_their_radius(radius: int):
    stamps = [stamp(shape, radius) for shape in get_args(Shape)]
    assert len({each.tobytes() for each in stamps}) == len(get_args(Shape))
    for each in stamps:
        assert each[[0, -1]].any(axis=1).all() and each.any(axis=0).sum() >= 2 * radius
    plus = stamp("plus", radius)
    assert plus.sum() == 2 * 3 * (2 * radius + 1) - 9


def test_shapes_that_look_the_same_are_refused():
    twins = DEFAULT | {"shapes": ["circle", "diamond"], "min_radius": 2}
    world = WorldConfig.model_validate(twins)
    with pytest.raises(UserError, match="circle and diamond look the same at radius 2"):
        render(sample_scenes(world, 0, "train", 3), world, 0, "train")


def test_noise_is_gaussian_clipped_and_rounded():
    values = DEFAULT | {"noise": 0.05, "min_objects": 1, "max_objects": 1}
    world = WorldConfig.model_validate(values)
    scenes = sample_scenes(world, 0, "train", 200)
    clean, noisy = draw(scenes, world), render(scenes, world, 0, "train")
    assert noisy.dtype == np.uint8 and noisy.shape == (200, 1, 32, 32)
    black = noisy[clean == 0] / 255
    assert 0.48 < (black < 0.5 / 255 + 1e-9).mean() < 0.56  # half is clipped, a little rounded
    assert black.max() < 0.05 * 6
    # E max(0, x) = sigma / sqrt(2 pi), and so from the top for white.
    np.testing.assert_allclose(black.mean(), 0.05 / np.sqrt(2 * np.pi), rtol=0.02)
    white = noisy[clean == 1] / 255
    np.testing.assert_allclose(1 - white.mean(), 0.05 / np.sqrt(2 * np.pi), rtol=0.05)


def gray_noise(number: int, **changes: object) -> np.ndarray:
    """Noise of sigma 0.1 about the intensity 0.5, in steps of sigma: (number, C, H, W)."""
    world = WorldConfig.model_validate(COLORFUL | {"noise": 0.1, "image_size": 31} | changes)
    canvas = np.zeros((number, world.image_size, world.image_size), np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "_palette", lambda world: np.full((1, world.channels), 0.5))
        pixels = rendering._noisy(canvas, world, stream(0, "train", 0, "noise"))
    return (pixels / 255 - 0.5) / 0.1


def test_noise_has_the_moments_and_tails_of_a_gaussian():
    noise = gray_noise(600)
    n = noise.size  # 1.7 million
    assert (
        abs(noise.mean()) < 5 / np.sqrt(n) + 1e-3
    )  # half of 1/255 is 0.02 sigma; rounding is even
    # Rounding to 1/255 adds a variance of (1 / 25.5)^2 / 12.
    assert noise.var() == pytest.approx(1 + (1 / 25.5) ** 2 / 12, abs=5 * np.sqrt(2 / n))
    assert (noise**3).mean() == pytest.approx(0, abs=5 * np.sqrt(15 / n) + 3e-3)
    assert (noise**4).mean() == pytest.approx(3 * noise.var() ** 2, abs=5 * np.sqrt(96 / n) + 3e-3)
    gauss = NormalDist()
    for step in (0, 13, 26, 51, 77, 90):  # 0 to 3.5 sigma: values that end between two pixels
        edge = (step + 0.5 + 0.5) / 25.5  # 0.5 is 127.5 of 255
        share = 1 - gauss.cdf(edge)
        tolerance = 5 * np.sqrt(share / n)
        assert (noise > edge).mean() == pytest.approx(share, abs=tolerance)
        assert (noise < -edge).mean() == pytest.approx(share, abs=tolerance)
    assert 4.1 < np.abs(noise).max() < 4.33 + 0.5 / 25.5


def test_noise_of_neighbours_channels_and_pictures_is_unrelated():
    noise = gray_noise(400)
    for one, other in [
        (noise[:, :, :, 1:], noise[:, :, :, :-1]),
        (noise[:, :, 1:], noise[:, :, :-1]),
        (noise[:, 0], noise[:, 1]),
        (noise[:, 0], noise[:, 2]),
        (noise[1:], noise[:-1]),
    ]:
        assert abs((one * other).mean()) < 5 / np.sqrt(one.size)
        assert abs((one**2 * other**2).mean() - noise.var() ** 2) < 5 * 3 / np.sqrt(one.size)


def test_the_words_are_those_of_the_generator_in_order():
    """Each picture takes whole draws of 64 bits: the lowest 16 are its first value."""
    world = WorldConfig.model_validate(DEFAULT | {"image_size": 9, "margin": 4, "min_objects": 0})
    empty = from_records([[]] * 5, world)
    generator = stream(2, "val", 0, "noise").bit_generator
    for picture in render(empty, world, 2, "val"):
        draws = [int(generator.random_raw()) for _ in range(21)]  # 84 words for 81 values
        words = [draw >> shift & 0xFFFF for draw in draws for shift in (0, 16, 32, 48)][:81]
        values = [NormalDist(0, 0.03).inv_cdf((word + 0.5) / 65536) for word in words]
        expected = [round(255 * min(max(value, 0), 1)) for value in values]
        assert picture.ravel().tolist() == expected


def test_no_noise_is_the_clean_picture_and_draws_nothing():
    world = WorldConfig.model_validate(DEFAULT | {"noise": 0.0})
    scenes = sample_scenes(world, 0, "train", 20)
    np.testing.assert_array_equal(render(scenes, world, 0, "train"), draw(scenes, world) * 255)
    generator = stream(0, "train", 0, "noise")
    before = generator.bit_generator.state
    rendering._noisy(rendering.paint(scenes, world), world, generator)
    assert generator.bit_generator.state == before


def test_noise_does_not_hang_on_what_is_shown():
    world = WorldConfig.model_validate(COLORFUL | {"image_size": 31})
    scenes = sample_scenes(world, 0, "train", 40)
    shown, empty = draw(scenes, world), from_records([[]] * 40, world)
    pictures, noise = (render(each, world, 0, "train") for each in (scenes, empty))
    black = shown == 0
    np.testing.assert_array_equal(pictures[black], noise[black])
    assert (pictures[~black] > noise[~black]).all()


@pytest.mark.parametrize("size", [32, 31])
def test_pictures_do_not_depend_on_number_or_batches(monkeypatch: pytest.MonkeyPatch, size: int):
    world = WorldConfig.model_validate(DEFAULT | {"image_size": size})
    scenes = sample_scenes(world, 0, "train", BLOCK + 30)
    whole = render(scenes, world, 0, "train")
    second = np.concatenate(list(render_batches(scenes[BLOCK:], world, 0, "train", first=1)))
    np.testing.assert_array_equal(second, whole[BLOCK:])
    np.testing.assert_array_equal(render(scenes[:100], world, 0, "train"), whole[:100])
    assert len({picture.tobytes() for picture in whole}) == len(whole)
    monkeypatch.setattr("vlm.scenes.render.BATCH_VALUES", 7 * 32 * 32)
    batches = list(render_batches(scenes, world, 0, "train"))
    assert max(len(batch) for batch in batches) == 7
    np.testing.assert_array_equal(np.concatenate(batches), whole)
