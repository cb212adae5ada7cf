"""Beam search against every text there is, against greedy decoding, and by hand."""

from itertools import product

import pytest
import torch

from vlm.errors import UserError
from vlm.generation import decode_beams, decode_greedy
from vlm.generation.beams import Beams, repeat_rows
from vlm.marks import BOS_ID, EOS_ID, PAD_ID
from vlm.model.attention import CrossAttention
from vlm.model.decoder import DecoderConfig, VisionLanguageDecoder
from vlm.model.memory import Memory, MemoryPart

TINY = DecoderConfig(
    hidden=16, heads=2, depth=1, text_vocab=5, max_text_len=8, vision_dim=8, vision_tokens=3
)


def seeded(seed: int) -> tuple[VisionLanguageDecoder, torch.Tensor]:
    """A decoder that has made up its mind here and there, and memories of three rows."""
    torch.manual_seed(seed)
    decoder = VisionLanguageDecoder(TINY).eval()
    with torch.no_grad():
        decoder.head.weight.mul_(3)
    return decoder, torch.randn(3, 3, 8)


def prompts(rows: int) -> torch.Tensor:
    return torch.full((rows, 1), BOS_ID)


def texts(length: int) -> list[tuple[int, ...]]:
    """Every text of a vocabulary of 5: ended by its one end mark, or `length` long."""
    words = [i for i in range(5) if i != EOS_ID]
    ended = [(*t, EOS_ID) for n in range(length) for t in product(words, repeat=n)]
    return ended + list(product(words, repeat=length))


@torch.no_grad()
def log_prob(decoder: VisionLanguageDecoder, memory: torch.Tensor, text: tuple[int, ...]) -> float:
    """The slow obvious way: the whole text in one call, no cache. memory: (1, S, D)."""
    logits = decoder(torch.tensor([[BOS_ID, *text[:-1]]]), memory).double()
    return float(logits.log_softmax(-1)[0].gather(1, torch.tensor(text)[:, None]).sum())


def trimmed(row: torch.Tensor) -> tuple[int, ...]:
    """Tokens up to the end mark."""
    tokens = row.tolist()
    return tuple(tokens[: tokens.index(EOS_ID) + 1] if EOS_ID in tokens else tokens)


@pytest.mark.parametrize("seed", range(3))
def test_with_a_beam_for_every_text_it_finds_the_best_of_all(seed):
    decoder, memory = seeded(seed)
    every = texts(3)
    for row in range(3):
        one = memory[row : row + 1]
        sums = {text: log_prob(decoder, one, text) for text in every}
        for penalty in (-1.0, 0.0, 0.7, 1.0, 2.0):
            best = max(every, key=lambda text: sums[text] / len(text) ** penalty)
            cache = decoder.new_cache(len(every), 3)
            got = decode_beams(
                decoder, one, prompts(1), 3, len(every), length_penalty=penalty, cache=cache
            ).tokens
            assert trimmed(got[0]) == best
            assert got.shape[1] == len(best)


@pytest.mark.parametrize("seed", range(8))
def test_one_beam_is_greedy(seed):
    decoder, memory = seeded(seed)
    greedy = decode_greedy(decoder, memory, prompts(3), 8).tokens
    for cache in (None, decoder.new_cache(3)):
        for penalty in (0.0, 1.0):
            beam = decode_beams(
                decoder, memory, prompts(3), 8, 1, length_penalty=penalty, cache=cache
            ).tokens
            assert torch.equal(beam, greedy)
            cache = None


def test_beams_move_and_the_cache_moves_with_them():
    """The cached search equals the uncached one, and beams did trade places."""
    moved = better = 0
    for seed in range(8):
        decoder, memory = seeded(seed)
        caches = [decoder.new_cache(9), decoder.new_cache(9, keeps_self=False), None]
        reorder = caches[0].reorder
        seen: list[torch.Tensor] = []
        caches[0].reorder = lambda rows, seen=seen, reorder=reorder: (
            seen.append(rows),
            reorder(rows),
        )
        found = [decode_beams(decoder, memory, prompts(3), 8, 3, cache=c).tokens for c in caches]
        assert all(torch.equal(tokens, found[0]) for tokens in found)
        moved += any(rows.tolist() != sorted(rows.tolist()) for rows in seen[1:])
        greedy = decode_greedy(decoder, memory, prompts(3), 8).tokens
        for row in range(3):
            ours, other = (
                log_prob(decoder, memory[row : row + 1], text) / len(text)
                for text in (trimmed(found[0][row]), trimmed(greedy[row]))
            )
            better += ours > other + 1e-6
    assert moved > 4 and better > 4


def test_greedy_is_misled_where_two_beams_are_not():
    """Word 3 begins better (0.6 to 0.4), and goes on worse (0.36 to 0.9)."""
    beams = Beams(1, 2, 2, 1.0, torch.device("cpu"))
    first = torch.tensor([0.0, 0.0, 0.0, 0.6, 0.4]).log()
    choice = beams.choose(first.expand(2, -1), 0)
    assert choice.tokens.tolist() == [3, 4] and choice.parents is not None
    after_3 = torch.tensor([0.0, 0.34, 0.36, 0.3, 0.0]).log()
    after_4 = torch.tensor([0.0, 0.1, 0.9, 0.0, 0.0]).log()
    choice = beams.choose(torch.stack([after_3, after_4]), 1)
    assert choice.finished and choice.parents is not None
    assert choice.tokens[0] == EOS_ID and choice.parents[0] == 1
    assert beams.best.tolist() == [[4, EOS_ID]]
    assert float(beams.best_score) == pytest.approx(float(torch.tensor(0.36).log()) / 2)


@pytest.mark.parametrize(("length", "finished"), [(4, True), (400, False)])
def test_it_ends_when_no_live_text_can_win(length, finished):
    """log 0.9 stands against log 0.1 over at most `length` tokens."""
    beams = Beams(1, 2, length, 1.0, torch.device("cpu"))
    logits = torch.tensor([0.0, 0.0, 0.9, 0.1, 0.0]).log()
    assert beams.choose(logits.expand(2, -1), 0).finished == finished
    assert beams.best[0, 0] == EOS_ID and int(beams.best_length) == 1


def test_ended_texts_take_their_place_with_them():
    """Two texts have ended: a search of two beams is over, though a third could yet win."""
    beams = Beams(1, 2, 400, 1.0, torch.device("cpu"))
    logits = torch.tensor([[0.0, 0.0, 0.5, 0.5, 0.0], [0.2] * 5]).log()
    assert not beams.choose(logits, 0).finished
    assert beams.places.tolist() == [1]
    live = torch.tensor([0.0, 0.0, 0.6, 0.4, 0.0]).log()
    assert beams.choose(live.expand(2, -1), 1).finished
    assert beams.places.tolist() == [0]


def test_the_best_ended_text_is_kept_though_later_ones_end():
    beams = Beams(1, 3, 3, 1.0, torch.device("cpu"))
    beams.choose(torch.tensor([0.0, 0.0, 0.3, 0.7, 0.0]).log().expand(3, -1), 0)
    beams.choose(torch.tensor([0.0, 0.0, 0.9, 0.1, 0.0]).log().expand(3, -1), 1)
    assert beams.best.tolist() == [[3, EOS_ID, PAD_ID]]
    beams.choose(torch.tensor([0.0, 0.0, 0.01, 0.99, 0.0]).log().expand(3, -1), 2)
    assert beams.best.tolist() == [[3, EOS_ID, PAD_ID]]


def test_beams_share_the_memory(monkeypatch):
    """Tokens are the same tensor, and each layer projects each picture once."""
    decoder, memory = seeded(0)
    rows = torch.tensor([0, 2, 2, 1, 0])
    wide = repeat_rows(Memory([MemoryPart(memory, rows)], torch.arange(5.0)[:, None]), 2)
    assert wide.parts[0].tokens is memory and wide.parts[0].rows is not None
    assert wide.parts[0].rows.tolist() == [0, 0, 2, 2, 2, 2, 1, 1, 0, 0]
    assert wide.context is not None
    assert wide.context.flatten().tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    sizes = []
    project = CrossAttention.project
    monkeypatch.setattr(
        CrossAttention,
        "project",
        lambda self, m: sizes.append(len(m.parts[0].tokens)) or project(self, m),
    )
    shared = Memory([MemoryPart(memory, rows)])
    got = decode_beams(decoder, shared, prompts(5), 6, 4, cache=decoder.new_cache(20)).tokens
    assert sizes == [3] * TINY.depth
    assert torch.equal(got, decode_beams(decoder, memory[rows], prompts(5), 6, 4).tokens)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_beams": 0}, "num_beams: got 0, expected 1 or more"),
        (
            {"length_penalty": float("nan")},
            "length_penalty: got nan, expected a finite number",
        ),
        ({"memory": torch.zeros(2, 3, 8)}, "memory batch size 2 does not match 3"),
        ({"memory": torch.zeros(3, 3, 9)}, "memory width 9 does not match 8"),
        (
            {"max_new_tokens": 9},
            "prompt of 1 and 9 new tokens need 9 positions; the decoder has 8",
        ),
        (
            {"prompt": torch.zeros(0, 1, dtype=torch.int64)},
            "batch 0, prompt 1, new tokens 8: expected 1 or more each",
        ),
    ],
)
def test_errors_before_any_work(change, message, monkeypatch):
    decoder, memory = seeded(0)
    monkeypatch.setattr(decoder, "forward", None)  # no call would get through
    given = {"memory": memory, "prompt": prompts(3), "max_new_tokens": 8, "num_beams": 2}
    with pytest.raises(UserError) as error:
        decode_beams(decoder, **(given | change))
    assert str(error.value) == message
