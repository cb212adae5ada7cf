"""Decoding: from a memory to words, with or without a cache.

Shapes: B rows, T prompt tokens, N new tokens, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vlm.errors import UserError
from vlm.marks import BOS_ID, EOS_ID, PAD_ID
from vlm.model.attention import Memory
from vlm.model.decoder import VisionLanguageDecoder
from vlm.model.kv_cache import KVCache
from vlm.model.vlm import ContrastiveCaptioner
from vlm.model.vqa import PhraseGenerator


class Generated(NamedTuple):
    """New tokens (B, N), padded after each row's end mark, and their logits (B, N, V) if asked."""

    tokens: Tensor
    logits: Tensor | None


@torch.inference_mode()
def decode_greedy(
    decoder: VisionLanguageDecoder,
    memory: Tensor | Memory,
    prompt: Tensor,
    max_new_tokens: int,
    *,
    cache: KVCache | None = None,
    prompt_mask: Tensor | None = None,
    stop_at_end: bool = True,
    keep_logits: bool = False,
) -> Generated:
    """The most likely token, again and again.

    Args:
        decoder: in eval mode.
        memory: what it looks at.
        prompt: (B, T) ids.
        max_new_tokens: N at most; decoding ends sooner once every row has ended.
        cache: fresh, with room for T + N - 1 positions, or for none (then every step reads the
            whole text again); None decodes without any.
        prompt_mask: (B, T) bool, False on padding before a shorter prompt.
        stop_at_end: False ignores the end mark and decodes all N tokens.
        keep_logits: return the logits too.

    Raises:
        UserError: an empty batch, or more tokens than the decoder has positions.
    """
    batch, given = prompt.shape
    _check(decoder, batch, given, max_new_tokens)
    ids = torch.full((batch, given + max_new_tokens), PAD_ID, device=prompt.device)
    ids[:, :given] = prompt
    real = None
    if prompt_mask is not None:
        real = torch.ones_like(ids, dtype=torch.bool)
        real[:, :given] = prompt_mask
    ended = torch.zeros(batch, dtype=torch.bool, device=prompt.device)
    logits: list[Tensor] = []
    end = given
    while end < ids.shape[1]:
        begin = 0 if cache is None else cache.length
        step = decoder(
            ids[:, begin:end],
            memory,
            cache=cache,
            text_mask=None if real is None else real[:, begin:end],
            last_only=True,
        )[:, 0]
        if keep_logits:
            logits.append(step)
        token = step.argmax(dim=-1)
        if stop_at_end:
            token = token.masked_fill(ended, PAD_ID)
            ended |= token == EOS_ID
        ids[:, end] = token
        end += 1
        if stop_at_end and bool(ended.all()):
            break
    return Generated(ids[:, given:end], torch.stack(logits, dim=1) if keep_logits else None)


@torch.inference_mode()
def generate(
    model: PhraseGenerator | ContrastiveCaptioner,
    images: Tensor,
    questions: Tensor | None = None,
    max_new_tokens: int | None = None,
    *,
    image_rows: Tensor | None = None,
    question_rows: Tensor | None = None,
    use_cache: bool = True,
    keep_logits: bool = False,
) -> Generated:
    """Phrases that answer questions about pictures, or captions of pictures.

    Args:
        model: a generator, which wants questions, or a captioner, which takes none.
        images: (P, C, H, W) floats in [0, 1].
        questions: (U, T) ids, padded.
        max_new_tokens: at most; by default as many as the decoder has positions for.
        image_rows: (B,) the picture of each row; None for row b, picture b.
        question_rows: (B,) likewise for the question.
        use_cache: changes the time, never the tokens.
        keep_logits: return the logits too.
    """
    features = model.encode_images(images)
    if isinstance(model, PhraseGenerator):
        if questions is None:
            raise UserError("questions: got None, expected a question for the generator")
        memory = model.memory(features, questions, image_rows, question_rows)
        batch = len(questions) if question_rows is None else len(question_rows)
    else:
        memory, batch = Memory.of(features.tokens), len(images)
    decoder = model.decoder
    new = decoder.config.max_text_len if max_new_tokens is None else max_new_tokens
    prompt = torch.full((batch, 1), BOS_ID, device=images.device)
    _check(decoder, batch, 1, new)
    cache = decoder.new_cache(batch, new) if use_cache else None
    return decode_greedy(decoder, memory, prompt, new, cache=cache, keep_logits=keep_logits)


def _check(decoder: VisionLanguageDecoder, batch: int, given: int, new: int) -> None:
    if batch < 1 or given < 1 or new < 1:
        raise UserError(f"batch {batch}, prompt {given}, new tokens {new}: expected 1 or more each")
    room = decoder.config.max_text_len
    if given + new - 1 > room:  # the last token is never read
        raise UserError(
            f"prompt of {given} and {new} new tokens need {given + new - 1} positions;"
            f" the decoder has {room}"
        )
