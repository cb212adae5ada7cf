"""From pictures and questions to words.

Shapes: P pictures, U distinct questions, B rows, N new tokens, V vocabulary.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vlm.errors import UserError
from vlm.generation.beams import check_beams, decode_beams
from vlm.generation.checks import check_cache, check_rows, check_sizes
from vlm.generation.decoding import Generated, Rows, decode, steps
from vlm.generation.picking import Picker, check_sampling, sampler
from vlm.marks import BOS_ID
from vlm.model.decoder import VisionLanguageDecoder
from vlm.model.kv_cache import KVCache
from vlm.model.memory import Memory, MemoryPart
from vlm.model.vlm import ContrastiveCaptioner
from vlm.model.vqa import PhraseGenerator

Speaker = PhraseGenerator | ContrastiveCaptioner


@torch.inference_mode()
def generate(
    model: Speaker,
    images: Tensor,
    questions: Tensor | None = None,
    max_new_tokens: int | None = None,
    *,
    image_rows: Tensor | None = None,
    question_rows: Tensor | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    seed: int = 0,
    row_ids: Tensor | None = None,
    use_cache: bool = True,
    cache: KVCache | None = None,
    keep_logits: bool = False,
    compile: bool = False,
) -> Generated:
    """Phrases that answer questions about pictures, or captions of pictures.

    Greedy by default. A `temperature` above 0 samples, which `top_k` and `top_p` narrow; several
    beams search. Whatever the strategy, a row's tokens are the same in every batch.

    Args:
        model: a generator, which wants questions, or a captioner, which takes none; in eval mode,
            since in training mode dropout makes every call another.
        images: (P, C, H, W) floats in [0, 1].
        questions: (U, T) ids, padded.
        max_new_tokens: at most; by default as many as the decoder has positions for.
        image_rows: (B,) the picture of each row; None for row b, picture b.
        question_rows: (B,) likewise for the question.
        temperature: what logits are divided by before sampling; 0 is greedy.
        top_k: sample among so many tokens; 0 for all. See `keep_top_k`.
        top_p: sample among the likeliest that make up so much; 1 for all. See `keep_top_p`.
        num_beams: texts of each row that the search follows; 1 is greedy. See `decode_beams`.
        length_penalty: how beams of different length compare.
        seed: of sampling.
        row_ids: (B,) integers that name the rows for sampling, such as ids of questions; by
            default 0 to B - 1. A row's draws are a function of (seed, row id, step).
        use_cache: changes the time, never the tokens.
        cache: one of an earlier call, to be cleared and used again; by default a new one. It has
            room for a row of each beam, and for max_new_tokens.
        keep_logits: return the logits too; not with several beams.
        compile: let `torch.compile` fuse the attention of one token over the text so far. It takes
            a C++ compiler, and seconds at the first call of a process. On CPU it was slower in
            every case that was measured (docs/performance.md).

    Raises:
        UserError: a value out of its range, or sizes that don't fit.
    """
    check_sampling(temperature, top_k, top_p)
    check_beams(num_beams, length_penalty)
    if num_beams > 1 and temperature > 0:
        raise UserError(f"num_beams: got {num_beams} with temperature {temperature}, expected 1")
    if num_beams > 1 and keep_logits:
        raise UserError(f"keep_logits: got True with num_beams {num_beams}, expected num_beams 1")
    batch = _count_rows(model, images, questions, image_rows, question_rows)
    pick = _picker(batch, temperature, top_k, top_p, seed, row_ids)
    decoder, rows = model.decoder, batch * num_beams
    new = decoder.config.max_text_len if max_new_tokens is None else max_new_tokens
    check_sizes(decoder, batch, 1, new)
    if cache is not None:
        if not use_cache:
            raise UserError("use_cache: got False with a cache, expected True")
        cache.clear()
        check_cache(cache, decoder, rows, new)
    task = _start(model, images, questions, new, image_rows, question_rows, batch)
    if use_cache and cache is None:
        cache = decoder.new_cache(rows, new)
    if num_beams > 1:
        return decode_beams(
            *task, num_beams, length_penalty=length_penalty, cache=cache, compile=compile
        )
    return decode(*task, pick, cache=cache, keep_logits=keep_logits, compile=compile)


def stream(
    model: Speaker,
    images: Tensor,
    questions: Tensor | None = None,
    max_new_tokens: int | None = None,
    *,
    image_rows: Tensor | None = None,
    question_rows: Tensor | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    row_ids: Tensor | None = None,
    use_cache: bool = True,
    compile: bool = False,
) -> Iterator[Tensor]:
    """The tokens of `generate`, (B,) at each step, as soon as they are known.

    The arguments are those of `generate`. There are no beams: a search knows its first token only
    at its end. A mistake is told by the call itself, before the first token is asked for, and the
    pictures are encoded by then.
    """
    check_sampling(temperature, top_k, top_p)
    batch = _count_rows(model, images, questions, image_rows, question_rows)
    pick = _picker(batch, temperature, top_k, top_p, seed, row_ids)
    task = _start(model, images, questions, max_new_tokens, image_rows, question_rows, batch)
    cache = task.decoder.new_cache(batch, task.new) if use_cache else None
    return _tokens(steps(*task, Rows(pick), cache=cache, compile=compile))


@torch.inference_mode()
def _tokens(decoding: Iterator[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    for tokens, _ in decoding:
        yield tokens


class _Task(NamedTuple):
    """What every way of decoding begins with, in the order of its arguments."""

    decoder: VisionLanguageDecoder
    memory: Memory
    prompt: Tensor  # (B, 1)
    new: int


def _count_rows(
    model: Speaker,
    images: Tensor,
    questions: Tensor | None,
    image_rows: Tensor | None,
    question_rows: Tensor | None,
) -> int:
    """B, on which pictures and questions agree."""
    check_rows("image_rows", image_rows, len(images))
    batch = len(images) if image_rows is None else len(image_rows)
    if isinstance(model, PhraseGenerator):
        if questions is None:
            raise UserError("questions: got None, expected a question for the generator")
        check_rows("question_rows", question_rows, len(questions))
        asked = len(questions) if question_rows is None else len(question_rows)
        if asked != batch:
            raise UserError(
                f"rows: got {batch} of pictures, {asked} of questions, expected as many"
            )
    return batch


def _picker(
    batch: int, temperature: float, top_k: int, top_p: float, seed: int, row_ids: Tensor | None
) -> Picker:
    if row_ids is None:
        row_ids = torch.arange(batch)
    elif row_ids.shape != (batch,) or row_ids.is_floating_point():
        got = f"{row_ids.dtype} of shape {tuple(row_ids.shape)}"
        raise UserError(f"row_ids: got {got}, expected integers of shape ({batch},)")
    return sampler(row_ids, temperature, top_k, top_p, seed)


@torch.inference_mode()
def _start(
    model: Speaker,
    images: Tensor,
    questions: Tensor | None,
    max_new_tokens: int | None,
    image_rows: Tensor | None,
    question_rows: Tensor | None,
    batch: int,
) -> _Task:
    """Check what is left to check, then encode."""
    decoder = model.decoder
    new = decoder.config.max_text_len if max_new_tokens is None else max_new_tokens
    check_sizes(decoder, batch, 1, new)
    features = model.encode_images(images)
    if isinstance(model, PhraseGenerator):
        assert questions is not None
        memory = model.memory(features, questions, image_rows, question_rows)
    else:
        memory = Memory([MemoryPart(features.tokens, image_rows)])
    return _Task(decoder, memory, torch.full((batch, 1), BOS_ID, device=images.device), new)
