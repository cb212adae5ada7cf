"""Each change of a picture against the same change made by hand, and what changes never do."""

from typing import Any

import numpy as np
import pytest
import torch

from vlm.config.data import AugmentConfig
from vlm.data.augmenting import DRAWS, augment

OFF: dict[str, Any] = {"flip": False, "turn": False, "shift": 0, "brightness": 0.0}
IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), np.uint8))
CHANCE = torch.from_numpy(np.random.default_rng(1).random((40, DRAWS)))


def changed(**changes: Any) -> torch.Tensor:
    return augment(IMAGES, CHANCE, AugmentConfig.model_validate(OFF | changes))


def test_nothing_changes_with_everything_off():
    assert torch.equal(changed(), IMAGES)


def test_the_given_pictures_stay_as_they_are():
    before = IMAGES.clone()
    changed(flip=True, turn=True, shift=2, brightness=0.5)
    assert torch.equal(before, IMAGES)


def test_half_of_the_pictures_are_flipped():
    for picture, now, draw in zip(IMAGES.numpy(), changed(flip=True).numpy(), CHANCE, strict=True):
        assert (now == (picture[:, :, ::-1] if draw[0] < 0.5 else picture)).all()


def test_each_of_four_turns():
    seen = set()
    for picture, now, draw in zip(IMAGES.numpy(), changed(turn=True).numpy(), CHANCE, strict=True):
        quarters = int(4 * draw[1])
        seen.add(quarters)
        assert (now == np.rot90(picture, quarters, (1, 2))).all()
    assert seen == {0, 1, 2, 3}


def test_shifts_reach_both_ends_and_repeat_the_border():
    seen = set()
    for picture, now, draw in zip(IMAGES.numpy(), changed(shift=2).numpy(), CHANCE, strict=True):
        down, right = (int(5 * draw[place]) - 2 for place in (2, 3))
        seen |= {down, right}
        for row in range(8):
            for col in range(8):
                source = min(max(row - down, 0), 7), min(max(col - right, 0), 7)
                assert (now[:, row, col] == picture[:, source[0], source[1]]).all()
    assert seen == {-2, -1, 0, 1, 2}


def test_brightness_multiplies_and_stays_in_range():
    now = changed(brightness=0.4)
    for picture, pixels, draw in zip(IMAGES.double(), now.double(), CHANCE, strict=True):
        wanted = (picture * (0.6 + 0.8 * draw[4])).clamp(0, 255)
        assert float((pixels - wanted).abs().max()) <= 0.51
    assert int(now.max()) == 255 and not torch.equal(now, IMAGES)


@pytest.mark.parametrize("part", [slice(0, 7), slice(7, 40)])
def test_a_share_of_a_batch_is_changed_as_in_the_whole(part: slice):
    config = AugmentConfig.model_validate(
        {"flip": True, "turn": True, "shift": 3, "brightness": 0.2}
    )
    whole = augment(IMAGES, CHANCE, config)
    assert torch.equal(augment(IMAGES[part], CHANCE[part], config), whole[part])
