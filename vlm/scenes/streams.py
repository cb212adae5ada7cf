"""The random streams of the synthetic world.

Scenes come in blocks of a constant size, with one stream for each block and purpose, and a last
partial block is drawn whole and cut. So the first scenes do not depend on how many follow, and what
is asked about a scene cannot change its picture.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 1024  # scenes a block; changing it changes every scene
SPLITS = {
    "train": 0,
    "val": 1,
    "test": 2,
    "calibration": 3,
    "fresh": 4,
    "test_ood": 5,
}  # append only
PURPOSES = {"layout": 0, "noise": 1, "captions": 2, "questions": 3, "clutter": 4}  # append only


def stream(seed: int, split: str, block: int, purpose: str) -> np.random.Generator:
    """The random stream of one block for one purpose."""
    entropy = (seed, SPLITS[split], block, PURPOSES[purpose])
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def blocks(n: int, first: int = 0) -> Iterator[tuple[int, slice]]:
    """The number and the scenes of each block of n scenes; the last may be partial.

    `first` is the number of their first block.
    """
    for block, start in enumerate(range(0, n, BLOCK), first):
        yield block, slice(start, min(start + BLOCK, n))
