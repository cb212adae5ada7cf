"""The engine against its oracle, the decoder's own modules: the same logits in every situation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm import DecoderConfig, VisionLanguageDecoder
from vlm.errors import UserError
from vlm.generation import decode_greedy
from vlm.generation.engine import Engine
from vlm.generation.one_query import Pairs, Scratch, attend_pairs, compiled
from vlm.model.attention import CrossAttention, attention, watch_attention
from vlm.model.kv_cache import KVCache
from vlm.model.memory import Memory, MemoryPairs, MemoryPart, OwnPairs, SharedPairs, Sharing

SIZES = {"hidden": 32, "heads": 4, "depth": 2, "text_vocab": 40, "vision_dim": 24}
ROWS = {  # of 6 rows, which of 4 pictures each reads
    "own": None,
    "in order": [0, 0, 1, 1, 2, 2],
    "any order": [3, 1, 1, 0, 3, 1],
    "one picture": [2, 2, 2, 2, 2, 2],
}


def seeded(norm: str = "pre") -> VisionLanguageDecoder:
    torch.manual_seed(3)
    decoder = VisionLanguageDecoder(DecoderConfig(**SIZES, norm=norm))  # pyright: ignore[reportArgumentType]
    for module in decoder.modules():
        if isinstance(module, torch.nn.LayerNorm):  # else weights of 1 and biases of 0 hide faults
            torch.nn.init.normal_(module.weight, mean=1.0, std=0.3)
            torch.nn.init.normal_(module.bias, std=0.3)
    return decoder.eval()


def memories(kind: str) -> Memory:
    """Pictures that rows share as ROWS says, questions of mixed length, and a context."""
    generator = torch.Generator().manual_seed(5)
    rows = ROWS[kind]
    pictures = 6 if rows is None else 3 if kind == "in order" else 4
    picture = MemoryPart(
        torch.randn(pictures, 7, 24, generator=generator),
        None if rows is None else torch.tensor(rows),
    )
    question = MemoryPart(
        torch.randn(2, 5, 24, generator=generator),
        torch.tensor([1, 0, 0, 1, 1, 0]),
        torch.tensor([[True] * 5, [True] * 3 + [False] * 2]),
    )
    pooled = MemoryPart(
        torch.randn(3, 1, 24, generator=generator), torch.tensor([0, 2, 1, 1, 0, 2])
    )
    return Memory([picture, question, pooled], torch.randn(6, 32, generator=generator))


def attend_one(query: torch.Tensor, pairs: Pairs, mask: torch.Tensor | None = None) -> torch.Tensor:
    out = query.new_empty(query.numel())
    hidden = None if mask is None else ~mask.t().unsqueeze(-1)
    attend_pairs(query, pairs, hidden, Scratch(query), out)
    return out.view(query.shape)


def close(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return float((got - expected).abs().max()) <= 1e-5 * max(1.0, float(expected.abs().max()))


@torch.inference_mode()
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("chunks", [[1] * 12, [4, 1, 1, 4, 1, 1], [12]])
def test_cached_chunks_equal_the_modules(norm, kind, chunks):
    decoder, memory = seeded(norm), memories(kind)
    ids = torch.randint(0, 40, (6, 12))
    expected = decoder(ids, memory)
    engine, cache, begin = Engine(decoder), decoder.new_cache(6, 12), 0
    for size in chunks:
        got = engine(ids[:, begin : begin + size], memory, cache)
        begin += size
        assert close(got, expected[:, begin - 1])
    assert cache.length == 12


@torch.inference_mode()
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize(
    ("keeps_self", "keeps_cross"), [(True, False), (False, True), (False, False)]
)
def test_half_a_cache_equals_the_modules(kind, keeps_self, keeps_cross):
    decoder, memory = seeded(), memories(kind)
    ids = torch.randint(0, 40, (6, 5))
    expected, engine = decoder(ids, memory), Engine(decoder)
    cache = decoder.new_cache(6, 5, keeps_self=keeps_self, keeps_cross=keeps_cross)
    for end in range(1, 6):
        got = engine(ids[:, cache.length : end], memory, cache)
        assert close(got, expected[:, end - 1])
        assert close(engine(ids[:, :end], memory), expected[:, end - 1])  # and with none


@torch.inference_mode()
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("chunks", [[8, 1, 1], [3, 5, 1, 1], [1] * 10])
def test_padded_prompts_equal_each_alone(norm, chunks):
    decoder, memory = seeded(norm), torch.randn(3, 7, 24)
    real = torch.ones(3, 10, dtype=torch.bool)
    real[0, :5] = real[1, :2] = False
    ids = torch.randint(4, 40, (3, 10)) * real
    engine, cache, begin = Engine(decoder), decoder.new_cache(3, 10), 0
    for size in chunks:
        end = begin + size
        got = engine(ids[:, begin:end], Memory.of(memory), cache, real[:, begin:end])
        for row in range(3):
            if real[row, end - 1]:
                alone = decoder(ids[row : row + 1, :end][:, real[row, :end]], memory[row : row + 1])
                assert close(got[row], alone[0, -1])
        begin = end


@torch.inference_mode()
@pytest.mark.parametrize("memory_mask", [None, torch.tensor([[True, False, True], [False] * 3])])
def test_a_query_that_sees_nothing_gives_0(memory_mask):
    query, key, value = torch.randn(3, 2, 4, 8).unbind(0)
    key, value = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 3, 8)
    pairs = [OwnPairs(key.permute(2, 0, 1, 3), value.permute(2, 0, 1, 3))]
    mask = None if memory_mask is None else memory_mask[:, None, None]
    expected = attention(query[:, :, None], key, value, mask)[:, :, 0]
    torch.testing.assert_close(attend_one(query, pairs, memory_mask), expected)


@given(
    rows=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    size=st.integers(2, 6),
    seed=st.integers(0, 100),
)
@settings(deadline=None, max_examples=60)
def test_rows_that_share_items_attend_as_if_each_had_its_own(rows, size, seed):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(len(rows), 2, 4, generator=generator)
    key, value = torch.randn(2, 5, 2, size, 4, generator=generator).unbind(0)
    shared = SharedPairs(key, value, Sharing(torch.tensor(rows), 5))
    expected = attention(query[:, :, None], *shared.expand())[:, :, 0]
    torch.testing.assert_close(attend_one(query, [shared]), expected)
    other = OwnPairs(*torch.randn(2, 3, len(rows), 2, 4, generator=generator).unbind(0))
    joined = [other, shared, other]
    expected = attention(query[:, :, None], *MemoryPairs(joined).expand())[:, :, 0]
    torch.testing.assert_close(attend_one(query, joined), expected)


@torch.inference_mode()
@pytest.mark.parametrize("in_order", [True, False])
def test_many_questions_of_a_picture_hold_it_once(in_order):
    """The cache grows by no byte of the picture for a further question, and projects it once."""
    decoder, sizes = seeded(), []
    for times in (1, 64):
        rows = torch.arange(2).repeat_interleave(times)
        memory = Memory([MemoryPart(torch.randn(2, 50, 24), rows if in_order else rows.flip(0))])
        cache = decoder.new_cache(2 * times, 4)
        decode_greedy(decoder, memory, torch.ones(2 * times, 1, dtype=torch.int64), 4, cache=cache)
        sizes.append(sum(pairs.num_bytes for pairs in cache.cross_pairs if pairs is not None))
    assert sizes[0] == sizes[1] == 2 * 2 * 50 * 2 * 32 * 4  # layers, pictures, tokens, K and V


@torch.inference_mode()
def test_a_lopsided_batch_takes_no_more_room_than_rows_of_their_own():
    """One picture with nearly all questions, and many with one: groups of one size would waste."""
    decoder = seeded()
    rows = torch.cat([torch.zeros(100, dtype=torch.int64), torch.arange(100)])
    memory = Memory([MemoryPart(torch.randn(100, 5, 24), rows)])
    cache, ids = decoder.new_cache(200, 3), torch.randint(0, 40, (200, 3))
    engine = Engine(decoder)
    got = [engine(ids[:, t : t + 1], memory, cache) for t in range(3)]
    assert close(torch.stack(got, dim=1), decoder(ids, memory))
    assert cache.num_bytes <= 2 * 200 * (3 + 5) * 2 * 32 * 4


@torch.inference_mode()
def test_a_reordered_cache_goes_on_as_the_rows_that_it_was_given():
    decoder, memory = seeded(), memories("any order")
    ids, rows = torch.randint(0, 40, (6, 6)), torch.tensor([5, 0, 0, 2, 4, 1])
    engine, cache = Engine(decoder), decoder.new_cache(6, 6)
    for t in range(3):
        engine(ids[:, t : t + 1], memory, cache)
    cache.reorder(rows)
    moved = Memory(
        [MemoryPart(p.tokens, p.rows[rows], p.mask) for p in memory.parts if p.rows is not None],
        None if memory.context is None else memory.context[rows],
    )
    expected = decoder(ids[rows], moved)
    for t in range(3, 6):
        assert close(engine(ids[rows, t : t + 1], moved, cache), expected[:, t])


@torch.inference_mode()
def test_a_decoder_without_blocks_decodes_too():
    decoder = VisionLanguageDecoder(DecoderConfig(**{**SIZES, "depth": 0})).eval()
    ids, cache = torch.randint(0, 40, (6, 3)), decoder.new_cache(6, 3)
    memory, engine = memories("own"), Engine(decoder)
    got = [engine(ids[:, t : t + 1], memory, cache) for t in range(3)]
    assert close(torch.stack(got, dim=1), decoder(ids, memory))


def test_the_memory_is_projected_once_a_layer(monkeypatch):
    calls = []
    project = CrossAttention.project
    monkeypatch.setattr(CrossAttention, "project", lambda *a: calls.append(1) or project(*a))
    decoder, memory = seeded(), memories("in order")
    prompt = torch.ones(6, 1, dtype=torch.int64)
    decode_greedy(decoder, memory, prompt, 9, cache=decoder.new_cache(6, 9), stop_at_end=False)
    assert len(calls) == 2


def test_whoever_watches_sees_each_step():
    decoder, memory = seeded(), memories("in order")

    def run(cache: KVCache) -> torch.Tensor:
        prompt = torch.ones(6, 1, dtype=torch.int64)
        return decode_greedy(decoder, memory, prompt, 5, cache=cache, stop_at_end=False).tokens

    with watch_attention(decoder) as seen:
        tokens = run(decoder.new_cache(6, 5))
    looks = seen["blocks.1.cross_attention"]
    assert [tuple(w.shape) for w in looks] == [(6, 4, 1, 13)] * 5
    assert torch.equal(tokens, run(decoder.new_cache(6, 5)))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # PyTorch's own
@torch.inference_mode()
def test_compiled_attention_gives_the_same_tokens():
    """Unpadded texts go through the fused function, padded ones through the ordinary one."""
    decoder, memory = seeded(), memories("in order")
    real = torch.ones(6, 3, dtype=torch.bool)
    real[1, :2] = False
    for prompt_mask in (None, real):
        ids = torch.randint(4, 40, (6, 3))
        runs = [
            decode_greedy(
                decoder,
                memory,
                ids,
                8,
                cache=decoder.new_cache(6, 10),
                prompt_mask=prompt_mask,
                keep_logits=True,
                stop_at_end=False,
                compile=compile,
            )
            for compile in (False, True)
        ]
        assert torch.equal(runs[0].tokens, runs[1].tokens)
        assert runs[0].logits is not None and runs[1].logits is not None
        assert close(runs[1].logits, runs[0].logits)


def test_a_machine_without_a_compiler_is_told_so(monkeypatch):
    from torch._dynamo.exc import TorchDynamoException

    def fail(function, **_):
        def call(*_):
            raise TorchDynamoException("InvalidCxxCompiler: No working C++ compiler found\nmore")

        return call

    compiled.cache_clear()
    monkeypatch.setattr(torch, "compile", fail)
    with pytest.raises(UserError, match=r"compile: got InvalidCxxCompiler: .*found; expected a C"):
        Engine(seeded(), compile=True)
    compiled.cache_clear()


@torch.inference_mode()
@pytest.mark.parametrize("keeps_cross", [True, False])
def test_a_memory_without_tokens_is_no_memory(keeps_cross):
    decoder, ids = seeded(), torch.randint(0, 40, (3, 4))
    memory = Memory.of(torch.zeros(3, 0, 24))
    engine, cache = Engine(decoder), decoder.new_cache(3, 4, keeps_cross=keeps_cross)
    got = [engine(ids[:, t : t + 1], memory, cache) for t in range(4)]
    assert close(torch.stack(got, dim=1), decoder(ids, memory))


class Doubled(torch.nn.Module):
    """Stands in for a linear layer, as adapters do."""

    def __init__(self, linear: torch.nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.linear(x)


@pytest.mark.parametrize("how", ["hook", "adapter"])
def test_a_decoder_that_is_more_than_its_weights_runs_by_its_modules(how):
    decoder, memory, ids = seeded(), memories("own"), torch.randint(0, 40, (6, 4))
    plain = Engine(decoder)(ids, memory)
    if how == "hook":
        decoder.blocks[1].mlp.register_forward_hook(lambda module, args, out: 2 * out)
    else:
        decoder.blocks[0].self_attention.out = Doubled(decoder.blocks[0].self_attention.out)
    with torch.no_grad():
        expected = decoder(ids, memory)[:, -1]
    assert close(Engine(decoder)(ids, memory), expected) and not close(plain, expected)


def test_a_cache_serves_inside_inference_mode_and_outside():
    """What is kept with the cache must not be bound to the mode that it was made in."""
    decoder, memory, ids = seeded(), memories("own"), torch.randint(0, 40, (6, 3))
    cache, engine = decoder.new_cache(6), Engine(decoder)
    with torch.inference_mode():
        first = [engine(ids[:, t : t + 1], memory, cache) for t in range(3)]
    cache.clear()
    again = [Engine(decoder)(ids[:, t : t + 1], memory, cache) for t in range(3)]
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
