"""Greedy decoding: the same words whatever the cache, the batch and the company."""

import pytest
import torch

from vlm import PhraseGenerator, VLMConfig, generate
from vlm.errors import UserError
from vlm.generation import decode_greedy
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


def test_more_tokens_than_positions_is_an_error_before_any_work(model, images, questions):
    with pytest.raises(UserError, match="prompt of 1 and 15 new tokens need 15 positions"):
        generate(model, images, questions, 15)
    with pytest.raises(UserError, match="new tokens 0: expected 1 or more"):
        generate(model, images, questions, 0)
    with pytest.raises(UserError, match="questions: got None"):
        generate(model, images)
