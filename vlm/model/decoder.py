"""The text decoder: causal self-attention, cross-attention into a memory, MLP.

Shapes: B batch, T text tokens, S memory tokens, D width, V vocabulary.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vlm.errors import UserError
from vlm.model.attention import MLP, CrossAttention, Norm, SelfAttention, residual
from vlm.model.kv_cache import KVCache, LayerCache
from vlm.model.memory import Memory
from vlm.rules import check_choices, check_heads


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of the decoder.

    Attributes:
        max_text_len: learned positions, and so the longest text.
        vision_dim: width of the memory.
        vision_tokens: tokens of one picture, for those who size a memory; any length works.
        norm: LayerNorm before each branch, or after each sum.
    """

    hidden: int = 256
    heads: int = 8
    depth: int = 4
    mlp_ratio: float = 4.0
    text_vocab: int = 1024
    max_text_len: int = 32
    vision_dim: int = 256
    vision_tokens: int = 197
    dropout: float = 0.0
    norm: Norm = "pre"

    def __post_init__(self) -> None:
        check_choices(self)
        check_heads(self.hidden, self.heads)


class DecoderBlock(nn.Module):
    """What each token does in turn: read the text so far, look at the memory, think."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        hidden, heads, dropout = config.hidden, config.heads, config.dropout
        self.norm: Norm = config.norm
        self.self_norm = nn.LayerNorm(hidden)
        self.self_attention = SelfAttention(hidden, heads, dropout)
        self.cross_norm = nn.LayerNorm(hidden)
        self.cross_attention = CrossAttention(hidden, heads, config.vision_dim, dropout)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp = MLP(hidden, config.mlp_ratio, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: Memory,
        text_mask: Tensor | None,
        seen: Tensor | None,
        *,
        is_causal: bool,
        cache: LayerCache | None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); the masks as in `SelfAttention` and `CrossAttention`."""

        def read(x: Tensor) -> Tensor:
            mixed = self.self_attention(x, text_mask, is_causal=is_causal, cache=cache)
            return self.dropout(mixed)

        def look(x: Tensor) -> Tensor:
            return self.dropout(self.cross_attention(x, memory, seen, cache=cache))

        x = residual(x, read, self.self_norm, self.norm)
        x = residual(x, look, self.cross_norm, self.norm)
        return residual(x, self.mlp, self.mlp_norm, self.norm)


class VisionLanguageDecoder(nn.Module):
    """Next-token logits for a text, given a memory of a picture (and a question).

    logits = decoder(text_ids, memory): (B, T) ids, (B, S, vision_dim) -> (B, T, V).
    """

    def __init__(self, cfg: DecoderConfig) -> None:
        super().__init__()
        self.config = cfg
        self.embedding = nn.Embedding(cfg.text_vocab, cfg.hidden)
        self.positions = nn.Embedding(cfg.max_text_len, cfg.hidden)
        with torch.no_grad():  # as large as sinusoids are; larger, and words are harder to hear
            self.positions.weight.mul_(0.5**0.5)
        self.blocks = nn.ModuleList(DecoderBlock(cfg) for _ in range(cfg.depth))
        # After post-norm blocks a further norm would only repeat the last one.
        self.norm = nn.LayerNorm(cfg.hidden) if cfg.norm == "pre" else nn.Identity()
        self.head = nn.Linear(cfg.hidden, cfg.text_vocab, bias=False)

    def new_cache(
        self,
        batch_size: int,
        max_length: int | None = None,
        *,
        keeps_self: bool = True,
        keeps_cross: bool = True,
    ) -> KVCache:
        """An empty cache for `batch_size` rows; `max_length` defaults to `max_text_len`."""
        config, weight = self.config, self.head.weight
        room = config.max_text_len if max_length is None else max_length
        return KVCache(
            config.depth,
            batch_size,
            config.heads,
            config.hidden // config.heads,
            room if keeps_self else 0,
            keeps_cross=keeps_cross,
            device=weight.device,
            dtype=weight.dtype,
        )

    def forward(
        self,
        text_ids: Tensor,
        memory: Tensor | Memory,
        use_cache: bool = False,
        cache: KVCache | None = None,
        *,
        text_mask: Tensor | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """Logits for the new tokens.

        Args:
            text_ids: (B, T) ids; with a cache, the tokens after those it holds.
            memory: (B, S, vision_dim), or a `Memory` of parts that rows share.
            use_cache: without `cache`, runs the call through a cache of its own, which projects
                the memory's keys and values once; it changes no value.
            cache: holds the text so far, and is extended in place.
            text_mask: (B, T) bool, False on padding before a prompt that is shorter than
                others; such a row's positions count from its first real token.
            last_only: logits of the last token alone, which is all that decoding needs.

        Returns:
            (B, T, V), or (B, 1, V) with `last_only`.

        Raises:
            UserError: more tokens than positions or room in the cache, or a memory of another
                width or batch.
        """
        memory = Memory.of(memory)
        if cache is None and use_cache:
            cache = self.new_cache(len(text_ids), keeps_self=False)
        start = self.begin(text_ids, memory, cache, text_mask)
        x, seen = start.x, memory.mask()
        for index, block in enumerate(self.blocks):
            layer = None if cache is None else cache.layer(index)
            x = block(x, memory, start.mask, seen, is_causal=start.is_causal, cache=layer)
        if cache is not None:
            cache.advance(text_ids.shape[1], start.real)
        return self.head(self.norm(x[:, -1:] if last_only else x))

    def begin(
        self,
        text_ids: Tensor,
        memory: Memory,
        cache: KVCache | None = None,
        text_mask: Tensor | None = None,
    ) -> "Start":
        """What comes before the blocks: the checks, the first vectors, and who sees whom."""
        batch, new = text_ids.shape
        past = 0 if cache is None else cache.length
        total, room = past + new, self.config.max_text_len
        if total > room:
            raise UserError(f"text length {total} exceeds max_text_len {room}")
        if cache is not None:
            cache.check(batch, new)
        memory.check(batch, self.config.vision_dim)
        real = _real_tokens(text_mask, cache, batch, new)
        x = self.embedding(text_ids) + self._positions(real, past, new)
        if memory.context is not None:
            x = x + memory.context[:, None]
        # One new token sees all before it, and a whole text needs only the kernel's own causal
        # mask; a mask of our own is for the rest: chunks over a cache, and padding.
        is_causal = real is None and past == 0 and new > 1
        plain = is_causal or (real is None and new == 1)
        mask = None if plain else _mask(real, past, new, x.device)
        return Start(x, mask, is_causal, real)

    def _positions(self, real: Tensor | None, past: int, new: int) -> Tensor:
        """(T, D) or (B, T, D) position vectors of the new tokens."""
        if real is None:
            device = self.positions.weight.device
            return self.positions(torch.arange(past, past + new, device=device))
        return self.positions((real.cumsum(dim=1) - 1).clamp(min=0)[:, past:])


class Start(NamedTuple):
    """What the blocks of a decoder begin with.

    Attributes:
        x: (B, T, D) the new tokens' vectors.
        mask: bool over the held and the new tokens, as `SelfAttention` takes it; or None.
        is_causal: the kernel's own causal mask serves.
        real: (B, past + T) bool over held and new tokens; None where there is no padding at all.
    """

    x: Tensor
    mask: Tensor | None
    is_causal: bool
    real: Tensor | None


def _real_tokens(
    text_mask: Tensor | None, cache: KVCache | None, batch: int, new: int
) -> Tensor | None:
    """(B, past + T) bool over held and new tokens; None where there is no padding at all."""
    held = None if cache is None else cache.text_mask
    if text_mask is None and held is None:
        return None
    device = (text_mask if held is None else held).device  # type: ignore[union-attr]
    if text_mask is None:
        text_mask = torch.ones(batch, new, dtype=torch.bool, device=device)
    if held is None:
        past = 0 if cache is None else cache.length
        held = torch.ones(batch, past, dtype=torch.bool, device=device)
    return torch.cat([held, text_mask], dim=1)


def _mask(real: Tensor | None, past: int, new: int, device: torch.device) -> Tensor:
    """(T, S) or (B, 1, T, S) bool: the causal mask's last T rows, padding left out."""
    total = past + new
    mask = torch.ones(new, total, dtype=torch.bool, device=device).tril(diagonal=past)
    return mask if real is None else mask & real[:, None, None, :]
