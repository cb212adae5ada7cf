"""The decoding benchmark: the gate that lets nothing be timed, and the sweep."""

import math
from itertools import product

import pytest
import torch

from vlm.errors import StoppedError
from vlm.evaluation import decoding
from vlm.evaluation.costs import ARMS
from vlm.evaluation.decoding import Equality, check_equality, decode, lengthened, sweep
from vlm.generation.engine import Layer
from vlm.model.decoder import DecoderConfig, VisionLanguageDecoder
from vlm.model.kv_cache import KVCache

CONFIG = DecoderConfig(
    hidden=32, heads=4, depth=2, text_vocab=40, max_text_len=12, vision_dim=32, vision_tokens=5
)


@pytest.fixture
def decoder() -> VisionLanguageDecoder:
    return VisionLanguageDecoder(CONFIG).eval()


def test_all_arms_decode_the_same(decoder):
    memory = torch.randn(4, 5, 32)
    assert check_equality(decoder, memory, 4, 12).holds


def test_a_longer_decoder_says_the_same(decoder):
    memory = torch.randn(4, 5, 32)
    longer = lengthened(decoder, 30)
    before = decode(ARMS["cached"], decoder, memory, 4, 12).tokens
    assert torch.equal(decode(ARMS["uncached"], longer, memory, 4, 30).tokens[:, :12], before)


def test_the_gate_sees_a_cache_that_swaps_keys_and_values(decoder, monkeypatch):
    advance = KVCache.advance

    def swapped(cache, *args):
        advance(cache, *args)
        cache.keys, cache.values = cache.values, cache.keys

    monkeypatch.setattr(KVCache, "advance", swapped)
    assert not check_equality(decoder, torch.randn(4, 5, 32), 4, 12).holds


def test_the_gate_lets_no_nan_through(decoder):
    with torch.no_grad():
        decoder.head.weight[7, 0] = float("nan")
    with pytest.raises(StoppedError, match="aren't finite"):
        check_equality(decoder, torch.randn(2, 5, 32), 2, 6)


def test_the_sweep_goes_through_every_cell_the_largest_first(decoder):
    memory = torch.randn(4, 5, 32)
    timings = list(
        sweep(
            decoder,
            lambda rows: memory[:rows],
            [2, 4],
            [3, 5],
            repeats=2,
            warmup=1,
            max_seconds=math.inf,
        )
    )
    cells = [(t.batch, t.length, t.arm) for t in timings]
    assert cells == list(product([4, 2], [5, 3], ARMS))
    for timing in timings:
        assert timing.rounds == 2
        assert 0 < timing.seconds_min <= timing.seconds <= timing.seconds_max
        assert timing.cache_bytes == timing.cache_bytes_predicted


class Clock:
    """Time that passes only while something is decoded, and how long each of those takes."""

    def __init__(self, taken: dict[str, list[float]]) -> None:
        self.now = 0.0
        self.taken = {name: iter(seconds) for name, seconds in taken.items()}
        self.turns: list[str] = []

    def decode(self, arm, *args):
        name = next(name for name, known in ARMS.items() if known == arm)
        self.turns.append(name)
        self.now += next(self.taken[name])
        return decode(arm, *args)


def test_arms_take_turns_and_a_slow_one_fewer(decoder, monkeypatch):
    """Median, least and most of the rounds; none begins once an arm's rounds took max_seconds."""
    clock = Clock(
        {
            "uncached": [50.0],
            "cross_only": [4.0, 7.0],
            "self_only": [3.0, 1.0, 2.0],
            "cached": [1.0, 1.0, 4.0],
        }
    )
    monkeypatch.setattr(decoding, "decode", clock.decode)
    monkeypatch.setattr(decoding, "perf_counter", lambda: clock.now)
    memory = torch.randn(2, 5, 32)
    timings = sweep(decoder, lambda _: memory, [2], [3], repeats=3, warmup=0, max_seconds=10.0)
    found = {t.arm: (t.rounds, t.seconds, t.seconds_min, t.seconds_max) for t in timings}
    assert found == {
        "uncached": (1, 50.0, 50.0, 50.0),
        "cross_only": (2, 5.5, 4.0, 7.0),
        "self_only": (3, 2.0, 1.0, 3.0),
        "cached": (3, 1.0, 1.0, 4.0),
    }
    rounds = [list(ARMS), ["cross_only", "self_only", "cached"], ["self_only", "cached"]]
    assert clock.turns == [name for turns in rounds for name in turns]


def test_the_gate_sees_an_engine_that_is_wrong_in_every_arm(decoder, monkeypatch):
    """All arms run the engine, so they agree with one another; the modules don't."""
    monkeypatch.setattr(Layer, "think", lambda self, x, space: x)
    equality = check_equality(decoder, torch.randn(2, 5, 32), 2, 6)
    assert equality.tokens_equal and not equality.holds


def test_of_two_checks_the_worse_counts():
    fine, far = Equality(True, 1e-6, 1e-4), Equality(True, 2e-5, 1e-5)
    other = Equality(False, 0.0, 1e-5)
    assert fine.worse(far) == far.worse(fine) == far
    assert fine.worse(other) == Equality(False, 1e-6, 1e-4)
