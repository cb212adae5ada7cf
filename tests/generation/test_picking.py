"""From logits to tokens: what is kept, how often it is drawn, and what a row's chance hangs on."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm.errors import UserError
from vlm.generation.picking import _mix, greedy, gumbel, keep_top_k, keep_top_p, sampler

INF = float("inf")
# Many ties, so that their order matters.
LOGITS = st.lists(st.integers(-6, 6), min_size=1, max_size=9)


def kept(logits: torch.Tensor) -> list[list[int]]:
    """The ids of each row that aren't cut."""
    return [(row > -INF).nonzero().flatten().tolist() for row in logits]


@settings(max_examples=60, deadline=None)
@given(logits=LOGITS, k=st.integers(1, 10))
def test_top_k_keeps_the_largest_and_of_equals_the_lower_ids(logits, k):
    by_rank = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    row = torch.tensor([logits], dtype=torch.float64)
    cut = keep_top_k(row, k)
    assert kept(cut) == [sorted(by_rank[:k])]
    assert torch.equal(cut[cut > -INF], row[cut > -INF])


@settings(max_examples=60, deadline=None)
@given(logits=LOGITS, p=st.floats(0.01, 0.99))
def test_top_p_keeps_the_smallest_set_that_reaches_p(logits, p):
    row = torch.tensor([logits], dtype=torch.float64)
    probabilities = row.softmax(dim=-1)[0].tolist()
    nucleus, mass = [], 0.0
    for token in sorted(range(len(logits)), key=lambda i: (-logits[i], i)):
        nucleus.append(token)
        mass += probabilities[token]
        if mass >= p:
            break
    assert kept(keep_top_p(row, p)) == [sorted(nucleus)]


def test_top_p_by_hand():
    """Ids in any order; the token that crosses is in; reaching p exactly is enough."""
    row = torch.tensor([[0.125, 0.5, 0.125, 0.25]], dtype=torch.float64).log()
    for p, expected in {
        1e-9: [1],
        0.5: [1],
        0.51: [1, 3],
        0.75: [1, 3],
        0.76: [0, 1, 3],
        0.9: [0, 1, 2, 3],
        1.0: [0, 1, 2, 3],
    }.items():
        assert kept(keep_top_p(row, p)) == [expected], p


def test_zero_and_one_keep_all():
    logits = torch.randn(3, 7)
    assert torch.equal(keep_top_k(logits, 0), logits)
    assert torch.equal(keep_top_k(logits, 7), logits)
    assert torch.equal(keep_top_p(logits, 1.0), logits)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_those_of_the_softmax(temperature):
    """Pearson's chi-square over 40,000 rows; 99.99% of true samplers lie below 23.5 (4 degrees)."""
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0, 0.5])
    draws = 40_000
    pick = sampler(torch.arange(draws), temperature, seed=5)
    for step in (0, 3):
        counts = pick(logits.expand(draws, -1), step).bincount(minlength=5)
        expected = draws * (logits.double() / temperature).softmax(dim=-1)
        assert float(((counts - expected) ** 2 / expected).sum()) < 23.5


def test_one_row_draws_by_the_softmax_over_its_steps_and_over_seeds():
    logits, draws = torch.tensor([[1.0, 0.0, -1.0]]), 2000
    expected = draws * logits.double().softmax(dim=-1)[0]
    by_step, by_seed = torch.zeros(3), torch.zeros(3)
    for i in range(draws):
        by_step[sampler(torch.tensor([7]))(logits, i)] += 1
        by_seed[sampler(torch.tensor([7]), seed=i)(logits, 0)] += 1
    for counts in (by_step, by_seed):
        assert float(((counts - expected) ** 2 / expected).sum()) < 18.4  # 99.99%, 2 degrees


def test_cut_draws_are_the_softmax_of_what_is_kept():
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0, 0.5]).expand(20_000, -1)
    for cut, inside in (({"top_k": 3}, [0, 3, 4]), ({"top_p": 0.8}, [0, 3, 4])):
        counts = sampler(torch.arange(20_000), **cut)(logits, 0).bincount(minlength=5)
        assert counts.nonzero().flatten().tolist() == inside
        expected = 20_000 * logits[0, inside].double().softmax(dim=-1)
        assert float(((counts[inside] - expected) ** 2 / expected).sum()) < 18.4


@settings(max_examples=40, deadline=None)
@given(logits=LOGITS, k=st.integers(0, 9), p=st.floats(0.05, 1.0), seed=st.integers(-9, 2**70))
def test_no_token_is_drawn_that_was_cut(logits, k, p, seed):
    row = torch.tensor([logits], dtype=torch.float64)
    inside = kept(keep_top_p(keep_top_k(row / 0.7, k), p))[0]
    drawn = sampler(torch.arange(50), 0.7, k, p, seed)(row.expand(50, -1), 0)
    assert set(drawn.tolist()) <= set(inside)


def test_narrow_enough_is_greedy():
    logits = torch.randn(200, 30)
    logits[:, 4] = logits[:, 20] = logits.amax(dim=-1)  # ties at the top
    rows = torch.arange(200)
    for narrow in (
        {"temperature": 0.0},
        {"temperature": 0.0, "top_k": 3, "top_p": 0.5},
        {"top_k": 1},
        {"top_p": 1e-9},
    ):
        assert torch.equal(sampler(rows, **narrow)(logits, 2), greedy(logits)), narrow
    cold = torch.randn(200, 30)
    assert torch.equal(sampler(rows, 1e-300)(cold, 2), greedy(cold))


def test_noise_is_a_function_of_seed_row_and_step_alone():
    rows = torch.tensor([3, 900, 12, -5])
    together = gumbel(1, rows, 2, 6)
    for place, row in enumerate(rows):
        assert torch.equal(gumbel(1, row[None], 2, 6)[0], together[place])
    assert torch.equal(gumbel(1, rows, 2, 9)[:, :6], together)
    others = [gumbel(2, rows, 2, 6), gumbel(1, rows + 1, 2, 6), gumbel(1, rows, 3, 6)]
    assert not any(bool((other == together).any()) for other in others)


def test_noise_is_gumbels_and_has_no_ties():
    """Kolmogorov's distance to exp(-exp(-x)); and neighbours in no coordinate go together."""
    noise = gumbel(0, torch.arange(1000), 0, 100)
    assert len(noise.unique()) == noise.numel() and bool(noise.isfinite().all())
    ranked = noise.flatten().sort().values
    ideal = (-(-ranked).exp()).exp()
    seen = (torch.arange(len(ranked), dtype=torch.float64) + 0.5) / len(ranked)
    assert float((ideal - seen).abs().max()) * len(ranked) ** 0.5 < 2.2  # 99.99%
    for other in (
        gumbel(1, torch.arange(1000), 0, 100),
        gumbel(0, torch.arange(1000), 1, 100),
        noise.roll(1, 0),
        noise.roll(1, 1),
    ):
        pair = torch.stack([noise.flatten(), other.flatten()])
        assert abs(float(pair.corrcoef()[0, 1])) * len(ranked) ** 0.5 < 4


def test_the_mixing_is_splitmix64():
    """The published first outputs for seed 1234567; each state is the one before plus gamma."""
    gamma, state = 0x9E3779B97F4A7C15, 1234567
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    for expected in published:
        signed = (state + 2**63) % 2**64 - 2**63
        assert int(_mix(torch.tensor(signed))) % 2**64 == expected
        state = (state + gamma) % 2**64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((-1.0, 0, 1.0), "temperature: got -1.0, expected 0 or more, and finite"),
        ((INF, 0, 1.0), "temperature: got inf, expected 0 or more, and finite"),
        ((float("nan"), 0, 1.0), "temperature: got nan, expected 0 or more, and finite"),
        ((1.0, -1, 1.0), "top_k: got -1, expected 0 or more"),
        ((1.0, 0, 0.0), "top_p: got 0.0, expected more than 0 and at most 1"),
        ((1.0, 0, 1.5), "top_p: got 1.5, expected more than 0 and at most 1"),
        ((1.0, 0, float("nan")), "top_p: got nan, expected more than 0 and at most 1"),
    ],
)
def test_values_out_of_range(settings, message):
    with pytest.raises(UserError) as error:
        sampler(torch.arange(2), *settings)
    assert str(error.value) == message
