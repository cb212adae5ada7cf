"""Decoding as a textbook has it, over our own layers: what the engine is measured against.

Shapes: B rows, P pictures, M questions, T text tokens, S memory tokens, N new tokens, D width,
H heads, K = D / H width of a head.

Nothing here is slow on purpose, and nothing is shared with `vlm.generation`, so it also is an
oracle of the engine's tokens. What it leaves out is what the engine saves: keys and values grow
by `torch.cat`, the memory is projected again at each step, and every row runs to full length.
"""

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlm.data.loading import chunks, to_floats
from vlm.data.tokenizer import TextTokenizer
from vlm.marks import BOS_ID
from vlm.model.decoder import DecoderBlock, VisionLanguageDecoder
from vlm.model.memory import Memory
from vlm.model.vqa import PhraseGenerator


@torch.inference_mode()
def decode_plainly(
    decoder: VisionLanguageDecoder, memory: Tensor | Memory, max_new_tokens: int
) -> Tensor:
    """The likeliest token, again and again, the end mark ignored: (B, N).

    Args:
        decoder: in eval mode, with N positions.
        memory: (B, S, D), or a `Memory` whose parts have an item a row.
        max_new_tokens: N.
    """
    memory = Memory.of(memory)
    tokens, seen = torch.cat([part.tokens for part in memory.parts], dim=1), memory.mask()
    layers = [PlainLayer(cast(DecoderBlock, block)) for block in decoder.blocks]
    ids = torch.full((len(tokens), 1), BOS_ID)
    text: list[Tensor] = []
    for step in range(max_new_tokens):
        x = decoder.embedding(ids) + decoder.positions(torch.tensor([step]))
        if memory.context is not None:
            x = x + memory.context[:, None]
        for layer in layers:
            x = layer(x, tokens, seen)
        logits = decoder.head(decoder.norm(x))
        ids = logits[:, -1].argmax(dim=-1, keepdim=True)
        text.append(ids)
    return torch.cat(text, dim=1)


class PlainLayer:
    """One block of the decoder, with the keys and values of what it has read.

    Attributes:
        past: keys and values (B, H, T, K); None before the first token.
    """

    def __init__(self, block: DecoderBlock) -> None:
        self.block = block
        self.heads = block.self_attention.heads
        self.past: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Tensor, memory: Tensor, seen: Tensor | None) -> Tensor:
        """(B, 1, D) -> (B, 1, D), given memory (B, S, D) and which of it is seen (B, 1, 1, S)."""
        block = self.block
        x = self._add(x, self._read, block.self_norm)
        x = self._add(x, lambda y: self._look(y, memory, seen), block.cross_norm)
        return self._add(x, block.mlp, block.mlp_norm)

    def _add(self, x: Tensor, branch: Callable[[Tensor], Tensor], norm: nn.LayerNorm) -> Tensor:
        if self.block.norm == "pre":
            return x + branch(norm(x))
        return norm(x + branch(x))

    def _read(self, x: Tensor) -> Tensor:
        """Self-attention over the text so far."""
        attention = self.block.self_attention
        query, key, value = (self._split(part) for part in attention.qkv(x).chunk(3, dim=-1))
        if self.past is not None:
            key = torch.cat([self.past[0], key], dim=2)
            value = torch.cat([self.past[1], value], dim=2)
        self.past = key, value
        return attention.out(_join(F.scaled_dot_product_attention(query, key, value)))

    def _look(self, x: Tensor, memory: Tensor, seen: Tensor | None) -> Tensor:
        """Cross-attention into the memory."""
        attention = self.block.cross_attention
        query = self._split(attention.query(x))
        key, value = (self._split(part) for part in attention.key_value(memory).chunk(2, dim=-1))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return attention.out(_join(mixed))

    def _split(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, H, T, K)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _join(x: Tensor) -> Tensor:
    """(B, H, T, K) -> (B, T, D)."""
    return x.transpose(1, 2).flatten(2)


@torch.inference_mode()
def answer_plainly(
    model: PhraseGenerator,
    images: Tensor,
    image_of: Tensor,
    question_ids: Tensor,
    tokenizer: TextTokenizer,
    batch_size: int,
) -> list[str]:
    """A phrase for each of M questions: a picture a question, and full length for all.

    Args:
        model: in eval mode.
        images: (P, C, H, W) uint8.
        image_of: (M,) the picture of each question.
        question_ids: (M, T), padded.
        tokenizer: the model's; it cuts a text at its end mark.
        batch_size: questions at a time.
    """
    texts: list[str] = []
    for part in chunks(len(question_ids), batch_size):
        features = model.encode_images(to_floats(images[image_of[part]]))
        memory = model.memory(features, question_ids[part])
        tokens = decode_plainly(model.decoder, memory, model.config.max_text_len)
        texts += [tokenizer.decode(row) for row in tokens.tolist()]
    return texts
