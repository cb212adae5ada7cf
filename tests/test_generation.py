"""Decoding: the same words whatever the cache, the batch and the company, by every strategy."""

from typing import Any

import pytest
import torch

from vlm import PhraseGenerator, VLMConfig, generate, stream
from vlm.errors import UserError
from vlm.generation import decode, decode_beams, decode_greedy, greedy, sampler
from vlm.generation.engine import Engine
from vlm.marks import BOS_ID, EOS_ID, PAD_ID
from vlm.model.vlm import ContrastiveCaptioner

CONFIG = VLMConfig(
    image_size=16,
    patch_size=8,
    in_channels=1,
    vision_hidden=32,
    vision_depth=1,
    vocab_size=40,
    text_hidden=32,
    text_depth=1,
    max_text_len=14,
)
SAMPLING: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.8},
    "top_k": {"temperature": 1.5, "top_k": 5, "seed": 3},
    "top_p": {"temperature": 1.0, "top_p": 0.6, "seed": -4},
}
STRATEGIES = {"greedy": {}, **SAMPLING, "beams": {"num_beams": 3}}
by_strategy = pytest.mark.parametrize("settings", STRATEGIES.values(), ids=STRATEGIES)


def seeded(memory: str = "tokens", context: str = "fused") -> PhraseGenerator:
    torch.manual_seed(1)
    return PhraseGenerator(CONFIG, memory, context, 5.0).eval()  # pyright: ignore[reportArgumentType]


@pytest.fixture
def model() -> PhraseGenerator:
    return seeded()


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def questions() -> torch.Tensor:
    """Of 3, 5 and 8 tokens."""
    ids = torch.randint(4, 40, (3, 8), generator=torch.Generator().manual_seed(3))
    ids[0, 3:] = PAD_ID
    ids[1, 5:] = PAD_ID
    return ids


@pytest.mark.parametrize(
    ("memory", "context"), [("tokens", "fused"), ("tokens", "none"), ("pooled", "none")]
)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_batch_does_not_change_answers(memory, context, order, images, questions):
    model = seeded(memory, context)
    together = generate(model, images[order], questions[order], 12, keep_logits=True)
    assert together.logits is not None
    for row, item in enumerate(order):
        length = int((questions[item] != PAD_ID).sum())
        question = questions[item : item + 1, :length]
        alone = generate(model, images[item : item + 1], question, 12, keep_logits=True)
        assert alone.logits is not None
        n = alone.tokens.shape[1]
        assert torch.equal(together.tokens[row, :n], alone.tokens[0])
        assert float((together.logits[row, :n] - alone.logits[0]).abs().max()) <= 1e-5


def test_cache_changes_no_token(model, images, questions):
    cached = generate(model, images, questions, 14, keep_logits=True)
    plain = generate(model, images, questions, 14, use_cache=False, keep_logits=True)
    assert cached.logits is not None and plain.logits is not None
    assert torch.equal(cached.tokens, plain.tokens)
    scale = max(1.0, float(plain.logits.abs().max()))
    assert float((cached.logits - plain.logits).abs().max()) <= 1e-5 * scale


def test_a_cache_serves_one_batch_after_another(model, images, questions):
    cache = model.decoder.new_cache(3)
    generate(model, images.flip(0), questions, cache=cache)
    again = generate(model, images, questions, cache=cache)
    assert torch.equal(again.tokens, generate(model, images, questions).tokens)
    with pytest.raises(UserError, match="cache batch size 3 does not match 2"):
        generate(model, images[:2], questions[:2], cache=cache)


def test_against_a_loop_over_whole_texts(model, images, questions):
    """The slow obvious way: run everything again for every word of every row."""
    for row in range(3):
        ids = [BOS_ID]
        for _ in range(10):
            with torch.no_grad():
                logits = model(images[row : row + 1], questions[row : row + 1], torch.tensor([ids]))
            ids.append(int(logits[0, -1].argmax()))
            if ids[-1] == EOS_ID:
                break
        got = generate(model, images[row : row + 1], questions[row : row + 1], 10).tokens[0]
        assert got.tolist() == ids[1:]


def test_rows_share_pictures_and_questions(model, images, questions):
    picture, question = torch.tensor([0, 0, 2, 1]), torch.tensor([1, 2, 2, 0])
    shared = generate(model, images, questions, 8, image_rows=picture, question_rows=question)
    written_out = generate(model, images[picture], questions[question], 8)
    assert torch.equal(shared.tokens, written_out.tokens)


def test_rows_end_at_their_own_end_mark_and_are_padded_after(model, images, questions):
    """The end mark takes the place of a word that the rows reach at different steps."""
    before = generate(model, images, questions, 14).tokens.tolist()
    firsts = {
        word: [row.index(word) for row in before]
        for word in before[0]
        if word > EOS_ID and all(word in row for row in before)
    }
    word, ends = next(item for item in firsts.items() if len(set(item[1])) > 1)
    with torch.no_grad():
        weight = model.decoder.head.weight
        weight[[EOS_ID, word]] = weight[[word, EOS_ID]]
    tokens = generate(model, images, questions, 14).tokens
    assert tokens.shape[1] == max(ends) + 1
    for row, old, end in zip(tokens.tolist(), before, ends, strict=True):
        assert row[:end] == old[:end] and row[end] == EOS_ID
        assert all(token == PAD_ID for token in row[end + 1 :])


def test_captions_need_no_question(images):
    torch.manual_seed(0)
    model = ContrastiveCaptioner(CONFIG).eval()
    assert generate(model, images, max_new_tokens=5).tokens.shape[0] == 3


def test_mixed_prompts_decode_as_each_alone(model):
    decoder, memory = model.decoder, torch.randn(3, 5, 32)
    prompts = [[1, 7, 8], [1, 5, 6, 9, 11], [1, 4, 4, 10, 12, 13, 20, 22]]
    ids, mask = torch.zeros(3, 8, dtype=torch.int64), torch.zeros(3, 8, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids[row, 8 - len(prompt) :] = torch.tensor(prompt)
        mask[row, 8 - len(prompt) :] = True
    for cache in (decoder.new_cache(3), None):
        together = decode_greedy(
            decoder, memory, ids, 6, cache=cache, prompt_mask=mask, stop_at_end=False
        ).tokens
        for row, prompt in enumerate(prompts):
            alone = decode_greedy(
                decoder, memory[row : row + 1], torch.tensor([prompt]), 6, stop_at_end=False
            ).tokens
            assert torch.equal(together[row], alone[0])


@by_strategy
def test_no_strategy_minds_the_cache(settings, model, images, questions):
    cached = generate(model, images, questions, **settings).tokens
    assert torch.equal(
        generate(model, images, questions, use_cache=False, **settings).tokens, cached
    )


@by_strategy
def test_no_strategy_minds_the_batch(settings, model, images, questions):
    """Reversed, one by one, and beside a row twice: a row goes by its name, not by its place."""
    names = torch.tensor([70, 2**40, 7])
    together = generate(model, images, questions, 14, row_ids=names, **settings).tokens
    for order in ([2, 1, 0], [0], [1], [2], [1, 2, 1]):
        got = generate(
            model, images[order], questions[order], 14, row_ids=names[order], **settings
        ).tokens
        assert torch.equal(got, together[order, : got.shape[1]])
        assert bool((together[order, got.shape[1] :] == PAD_ID).all())


@by_strategy
def test_rows_share_pictures_under_every_strategy(settings, model, images, questions):
    picture, question = torch.tensor([0, 0, 2, 1]), torch.tensor([1, 2, 2, 0])
    rows = {"image_rows": picture, "question_rows": question}
    shared = generate(model, images, questions, 8, **rows, **settings)
    written_out = generate(model, images[picture], questions[question], 8, **settings)
    assert torch.equal(shared.tokens, written_out.tokens)


def test_a_name_draws_its_own_words_and_a_seed_others(model, images, questions):
    def drawn(names: list[int], **settings: Any) -> torch.Tensor:
        rows = torch.zeros(len(names), dtype=torch.int64)
        return generate(
            model,
            images,
            questions,
            image_rows=rows,
            question_rows=rows,
            row_ids=torch.tensor(names),
            temperature=2.0,
            **settings,
        ).tokens

    first = drawn([4, 5, 4])
    assert torch.equal(first[0], first[2]) and not torch.equal(first[0], first[1])
    assert torch.equal(drawn([4, 5, 4]), first)
    assert not torch.equal(drawn([4, 5, 4], seed=1)[0, :5], first[0, :5])


@pytest.mark.parametrize(
    "narrow",
    [
        {"temperature": 0.0},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 1e-9},
        {"num_beams": 1, "length_penalty": 0.0},
    ],
)
def test_narrow_enough_is_greedy(narrow, model, images, questions):
    plain = generate(model, images, questions).tokens
    assert torch.equal(generate(model, images, questions, **narrow).tokens, plain)


def test_sampling_keeps_the_logits_it_drew_from(model, images, questions):
    settings = SAMPLING["top_k"]
    tokens, logits = generate(model, images, questions, keep_logits=True, **settings)
    assert logits is not None
    for step in range(tokens.shape[1]):
        going = tokens[:, step] != PAD_ID
        ranks = logits[:, step].argsort(descending=True).argsort()
        drawn = ranks.gather(1, tokens[:, step : step + 1])[going]
        assert bool((drawn < 5).all())


@pytest.mark.parametrize("settings", [{}, *SAMPLING.values()], ids=["greedy", *SAMPLING])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_stream_gives_the_same_tokens(settings, use_cache, model, images, questions):
    expected = generate(model, images, questions, **settings).tokens
    steps = list(stream(model, images, questions, use_cache=use_cache, **settings))
    assert torch.equal(torch.stack(steps, dim=1), expected)


def test_a_stream_decodes_no_further_than_it_is_read(model, images, questions, monkeypatch):
    calls = []
    step = Engine.__call__
    monkeypatch.setattr(Engine, "__call__", lambda *a: calls.append(1) or step(*a))
    tokens = stream(model, images, questions)
    assert not calls
    assert next(tokens).shape == (3,)
    next(tokens)
    assert len(calls) == 2
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_several_captions_of_one_picture(images):
    torch.manual_seed(0)
    model = ContrastiveCaptioner(CONFIG).eval()
    rows = torch.tensor([1, 1, 1])
    drawn = generate(model, images, None, 6, image_rows=rows, temperature=1.0).tokens
    assert len(drawn) == 3 and len({tuple(row) for row in drawn.tolist()}) > 1
    alike = generate(model, images, None, 6, image_rows=rows).tokens
    assert torch.equal(alike, generate(model, images[rows], None, 6).tokens)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_mixed_prompts_under_every_strategy(strategy, cached, model):
    decoder, memory = model.decoder, torch.randn(3, 5, 32)
    prompts = [[1, 7, 8], [1, 5, 6, 9, 11], [1, 4, 4, 10, 12, 13, 20, 22]]
    ids, mask = torch.zeros(3, 8, dtype=torch.int64), torch.zeros(3, 8, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids[row, 8 - len(prompt) :] = torch.tensor(prompt)
        mask[row, 8 - len(prompt) :] = True

    def decoded(rows: list[int], ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        given = (decoder, memory[rows], ids, 6)
        beams = STRATEGIES[strategy].get("num_beams", 1)
        cache = decoder.new_cache(len(rows) * beams) if cached else None
        if beams > 1:
            return decode_beams(*given, beams, cache=cache, prompt_mask=mask).tokens
        chance = STRATEGIES[strategy]
        pick = sampler(torch.tensor(rows), **chance) if chance else greedy
        return decode(*given, pick, cache=cache, prompt_mask=mask).tokens

    together = decoded([0, 1, 2], ids, mask)
    for row, prompt in enumerate(prompts):
        alone = decoded([row], torch.tensor([prompt]), None)[0]
        assert torch.equal(together[row, : len(alone)], alone)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature: got -1.0, expected 0 or more, and finite"),
        ({"top_k": -1}, "top_k: got -1, expected 0 or more"),
        ({"top_p": 0.0}, "top_p: got 0.0, expected more than 0 and at most 1"),
        ({"max_new_tokens": 15}, "prompt of 1 and 15 new tokens need 15 positions; …has 14"),
        ({"image_rows": torch.arange(2)}, "rows: got 2 of pictures, 3 of questions, expected …"),
        (
            {"image_rows": torch.arange(0), "question_rows": torch.arange(0)},
            "batch 0, prompt 1, new tokens 14: expected 1 or more each",
        ),
        (
            {"row_ids": torch.arange(2)},
            "row_ids: got torch.int64 of shape (2,), expected integers of shape (3,)",
        ),
        (
            {"row_ids": torch.zeros(3)},
            "row_ids: got torch.float32 of shape (3,), expected integers of shape (3,)",
        ),
    ],
)
def test_errors_before_any_work(settings, message, model, images, questions, monkeypatch):
    """Told by the call, before a picture is encoded; by a stream too, before it is read."""
    monkeypatch.setattr(model, "encode_images", None)  # no call would get through
    for call in (generate, stream):
        with pytest.raises(UserError) as error:
            call(model, images, questions, **settings)
        assert says(message, str(error.value))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams: got 0, expected 1 or more"),
        ({"temperature": 0.7}, "num_beams: got 4 with temperature 0.7, expected 1"),
        ({"keep_logits": True}, "keep_logits: got True with num_beams 4, expected num_beams 1"),
        ({"length_penalty": float("inf")}, "length_penalty: got inf, expected a finite number"),
    ],
)
def test_errors_of_beams_before_any_work(settings, message, model, images, questions, monkeypatch):
    monkeypatch.setattr(model, "encode_images", None)
    with pytest.raises(UserError) as error:
        generate(model, images, questions, **({"num_beams": 4} | settings))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 5, 32), "memory batch size 2 does not match 3"),
        ((3, 5, 31), "memory width 31 does not match 32"),
    ],
)
def test_a_memory_that_does_not_fit_is_an_error_before_any_block_runs(
    shape, message, model, monkeypatch
):
    monkeypatch.setattr(model.decoder.embedding, "forward", None)
    with pytest.raises(UserError) as error:
        decode_greedy(model.decoder, torch.zeros(shape), torch.full((3, 1), BOS_ID), 5)
    assert str(error.value) == message


def says(message: str, line: str) -> bool:
    """Whether a line has the parts of a message, in which "…" stands for some words."""
    return all(part in line for part in message.split("…"))


def test_more_tokens_than_positions_is_an_error_before_any_work(model, images, questions):
    with pytest.raises(UserError, match="prompt of 1 and 15 new tokens need 15 positions"):
        generate(model, images, questions, 15)
    with pytest.raises(UserError, match="new tokens 0: expected 1 or more"):
        generate(model, images, questions, 0)
    with pytest.raises(UserError, match="questions: got None"):
        generate(model, images)
