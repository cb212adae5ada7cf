"""Running means against a list of everything that was counted in."""

import math
import random

import pytest
import torch

from vlm.training.distributed import ALONE
from vlm.training.means import Means

CPU = torch.device("cpu")


def drawn(steps: int) -> list[tuple[dict[str, torch.Tensor], dict[str, int]]]:
    """Batches of two losses, some of them of no item."""
    rng = random.Random(0)
    return [
        (
            {"a": torch.tensor(rng.random()), "b": torch.tensor(rng.random() * 1e6)},
            {"a": rng.randrange(3), "b": rng.randrange(1, 100)},
        )
        for _ in range(steps)
    ]


def counted(batches) -> Means:
    means = Means(["a", "b"], CPU)
    for step, (losses, counts) in enumerate(batches, start=1):
        means.add(losses, counts, step)
    return means


def test_every_item_weighs_the_same():
    batches = drawn(50)
    found = counted(batches).means(ALONE)
    for name in ("a", "b"):
        items = [losses[name].item() for losses, n in batches for _ in range(n[name])]
        assert found[name] == pytest.approx(math.fsum(items) / len(items), rel=1e-12)


def test_a_mean_of_nothing_is_0():
    assert Means(["a"], CPU).means(ALONE) == {"a": 0.0}
    none = Means(["a"], CPU)
    none.add({"a": torch.tensor(5.0)}, {"a": 0}, 1)
    assert none.means(ALONE) == {"a": 0.0}


@pytest.mark.parametrize("cut", [0, 1, 7, 20])
def test_totals_carry_on_bit_for_bit(cut):
    batches = drawn(20)
    second = Means(["a", "b"], CPU)
    second.start_from(counted(batches[:cut]).totals(ALONE))
    for losses, counts in batches[cut:]:
        second.add(losses, counts, 1)
    assert second.totals(ALONE) == counted(batches).totals(ALONE)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_bad_step_and_its_name_are_found(bad):
    means = counted(drawn(3))
    assert means.first_bad(ALONE) is None
    fine, counts = torch.tensor(1.0), {"a": 1, "b": 1}
    means.add({"a": fine, "b": torch.tensor(bad)}, counts, 4)
    means.add({"a": torch.tensor(bad), "b": fine}, counts, 5)
    means.add({"a": fine, "b": fine}, counts, 6)
    assert means.first_bad(ALONE) == (4, "b")


def test_a_loss_of_no_item_is_bad_all_the_same():
    """Its gradient would be NaN too: 0 x NaN is NaN."""
    means = Means(["a"], CPU)
    means.add({"a": torch.tensor(math.nan)}, {"a": 0}, 1)
    assert means.first_bad(ALONE) == (1, "a")
