"""The decoder as generation runs it: the arithmetic of its modules, and nothing besides.

Shapes: B rows, T new tokens, S tokens that are seen, D width, M width of the MLP, H heads,
K = D / H width of a head, V vocabulary. Tokens come first, (T, B, ...), as they do in the cache.

The modules are there to be read and trained, and are the oracle of this one. A step of decoding
is so little arithmetic that looking modules up, copying and allocating cost more than it. So here
one token attends as `one_query` has it, factors go into the weights beforehand and residuals into
the matrix products, and what a step writes to is allocated once, for all layers and steps.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from vlm.generation.one_query import Pairs, compiled
from vlm.generation.workspace import Sizes, Workspace
from vlm.model.attention import MLP, CrossAttention, MultiHeadAttention, SelfAttention
from vlm.model.decoder import DecoderBlock, Start, VisionLanguageDecoder
from vlm.model.kv_cache import KVCache
from vlm.model.memory import Memory, MemoryPairs, OwnPairs

SQRT_HALF = 0.5**0.5
KNOWN = {VisionLanguageDecoder, DecoderBlock, SelfAttention, CrossAttention, MLP, nn.ModuleList}
KNOWN |= {nn.Embedding, nn.Linear, nn.LayerNorm, nn.Identity, nn.Dropout, nn.GELU}
# What single tokens are worked on with, for as long as there is the cache that they go to: a cache
# that serves many batches then brings its workspace along.
SPACES: WeakKeyDictionary[KVCache, Workspace] = WeakKeyDictionary()


class Engine:
    """Next-token logits of a decoder, for tokens that come one by one.

    Make one anew when the weights have changed: it holds copies of some of them. It drops nothing
    out. Where a module of the decoder has a hook, stands in for another, or shows its attention
    (`watch_attention`), the modules themselves run.

    Args:
        decoder: in any mode.
        compile: let `torch.compile` make one pass of one token's self-attention; see `generate`.
    """

    def __init__(self, decoder: VisionLanguageDecoder, *, compile: bool = False) -> None:
        self.decoder = decoder
        if compile:
            compiled()  # seconds, the first time
        self.attentions = [m for m in decoder.modules() if isinstance(m, MultiHeadAttention)]
        # Without blocks there is nothing to speed up.
        self.by_modules = not decoder.blocks or any(map(_is_special, decoder.modules()))
        if self.by_modules:
            return
        self.layers = [Layer(cast(DecoderBlock, block), compile) for block in decoder.blocks]
        self.embedding, self.positions = decoder.embedding.weight, decoder.positions.weight
        self.norm = _norm(decoder.norm)
        self.head = decoder.head.weight.t()
        self._space: Workspace | None = None
        self._seen: tuple[Memory, Workspace, Tensor | None] | None = None

    @torch.inference_mode()
    def __call__(
        self,
        text_ids: Tensor,
        memory: Memory,
        cache: KVCache | None = None,
        text_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, V) after the last of text_ids (B, T); the arguments as the decoder's."""
        if self.by_modules or any(layer.watcher is not None for layer in self.attentions):
            args = text_ids, memory
            return self.decoder(*args, cache=cache, text_mask=text_mask, last_only=True)[:, 0]
        batch, new = text_ids.shape
        x, start = self._begin(text_ids, memory, cache, text_mask)
        space, rooms = self._workspace(new, batch, cache), self._rooms(cache, new)
        mask, seen = space.mask(start.mask), self._memory_mask(memory, space)
        for index, layer in enumerate(self.layers):
            x = layer.read(x, space, rooms[index], mask, is_causal=start.is_causal)
            x = layer.look(x, space, layer.lay_out(memory, cache, index), seen)
            x = layer.think(x, space)
        if cache is not None:
            cache.advance(new, start.real)
        return torch.mm(self.norm(x[-batch:]), self.head)

    def _begin(
        self, text_ids: Tensor, memory: Memory, cache: KVCache | None, text_mask: Tensor | None
    ) -> tuple[Tensor, Start]:
        """The new tokens' vectors (T B, D), and who sees whom; as `decoder.begin` has it.

        Without its detours where texts without padding get one more token.
        """
        if (
            cache is None
            or text_ids.shape[1] > 1
            or not 0 < cache.length < len(self.positions)
            or text_mask is not None
            or cache.text_mask is not None
        ):
            start = self.decoder.begin(text_ids, memory, cache, text_mask)
            return start.x.transpose(0, 1).flatten(0, 1), start
        cache.check(len(text_ids), 1)
        x = self.embedding.index_select(0, text_ids.flatten()).add_(self.positions[cache.length])
        if memory.context is not None:
            x.add_(memory.context)
        return x, Start(x, mask=None, is_causal=False, real=None)

    def _workspace(self, new: int, batch: int, cache: KVCache | None) -> Workspace:
        """The last one, where it fits; that of single tokens stays with the cache."""
        sizes = self.layers[0].sizes(new, batch)
        space = SPACES.get(cache) if new == 1 and cache is not None else self._space
        if space is None or space.sizes != sizes:
            self._space = None  # so that its memory may serve the next
            space = Workspace(sizes, held=1 if cache is None else cache.max_length)
            if new == 1 and cache is not None:
                SPACES[cache] = space
            else:
                self._space = space
        return space

    def _memory_mask(self, memory: Memory, space: Workspace) -> Tensor | None:
        """The memory's mask as attention wants it, made once."""
        if self._seen is None or self._seen[0] is not memory or self._seen[1] is not space:
            self._seen = memory, space, space.mask(memory.mask())
        return self._seen[2]

    def _rooms(self, cache: KVCache | None, new: int) -> list["Room | None"]:
        """For each layer, where its new keys and values go; None where they aren't kept."""
        if cache is None or not cache.keeps_self:
            return [None] * len(self.layers)
        past, end = cache.length, cache.length + new
        return [
            Room(
                keys.narrow(0, 0, end),
                values.narrow(0, 0, end),
                keys.narrow(0, past, new),
                values.narrow(0, past, new),
            )
            for keys, values in zip(cache.keys.unbind(0), cache.values.unbind(0), strict=True)
        ]


class Room(NamedTuple):
    """One layer's keys and values in the cache.

    Attributes:
        keys, values: (S, B, H, K), all that will be held, the new ones last.
        new_keys, new_values: (T, B, H, K), those that are to be written.
    """

    keys: Tensor
    values: Tensor
    new_keys: Tensor
    new_values: Tensor


class Layer:
    """One block of the decoder; what `DecoderBlock` does, in the same order.

    `read`, `look` and `think` take x (T B, D), write it over and give what comes next.
    """

    def __init__(self, block: DecoderBlock, compile: bool) -> None:
        self.attentions = block.self_attention, block.cross_attention
        reads, looks = self.attentions
        self.heads, self.width = reads.heads, reads.out.in_features // reads.heads
        self.pre, self.compile = block.norm == "pre", compile
        self.read_norm = _norm(block.self_norm)
        self.look_norm = _norm(block.cross_norm)
        self.think_norm = _norm(block.mlp_norm)
        self.qkv_weight, self.qkv_bias = _linear(reads.qkv)
        self.query_weight, self.query_bias = _linear(looks.query)
        self.read_weight, self.read_bias = _linear(reads.out)
        self.look_weight, self.look_bias = _linear(looks.out)
        # GELU(h) = h (1 + erf(h / sqrt 2)) / 2 = sqrt(1/2) (u + u erf u), where u = sqrt(1/2) h.
        up, down = (cast(nn.Linear, block.mlp[place]) for place in (0, 2))
        self.up_weight, self.up_bias = _linear(up, SQRT_HALF)
        self.down_weight, self.down_bias = down.weight.t() * SQRT_HALF, down.bias

    def sizes(self, new: int, batch: int) -> Sizes:
        """Of a workspace for so many tokens and rows."""
        hidden, wide = self.up_weight.shape
        weight = self.up_weight
        return Sizes(new, batch, hidden, wide, self.heads, weight.dtype, weight.device)

    def read(
        self,
        x: Tensor,
        space: Workspace,
        room: Room | None,
        mask: Tensor | None,
        *,
        is_causal: bool,
    ) -> Tensor:
        """Self-attention over the text so far."""
        y = self.read_norm(x) if self.pre else x
        torch.addmm(self.qkv_bias, y, self.qkv_weight, out=space.qkv)
        key, value = space.key, space.value
        if room is not None:
            room.new_keys.copy_(key)
            room.new_values.copy_(value)
            key, value = room.keys, room.values
        mixed = space.read(key, value, mask, is_causal=is_causal, compile=self.compile)
        x.add_(self.read_bias).addmm_(mixed, self.read_weight)
        return x if self.pre else self.read_norm(x)

    def look(self, x: Tensor, space: Workspace, pairs: Pairs, seen: Tensor | None) -> Tensor:
        """Cross-attention into the memory."""
        y = self.look_norm(x) if self.pre else x
        torch.addmm(self.query_bias, y, self.query_weight, out=space.asked)
        mixed = space.look(pairs, seen)
        x.add_(self.look_bias).addmm_(mixed, self.look_weight)
        return x if self.pre else self.look_norm(x)

    def think(self, x: Tensor, space: Workspace) -> Tensor:
        """The MLP."""
        u = torch.addmm(
            self.up_bias, self.think_norm(x) if self.pre else x, self.up_weight, out=space.wide
        )
        bent = torch.addcmul(u, u, torch.erf(u, out=space.bent), out=space.bent)
        x.add_(self.down_bias).addmm_(bent, self.down_weight)
        return x if self.pre else self.think_norm(x)

    def lay_out(self, memory: Memory, cache: KVCache | None, layer: int) -> Pairs:
        """The memory's keys and values, of rows that share them only where grouping pays."""

        def project() -> MemoryPairs:
            pairs = self.attentions[1].project(memory).pairs
            return MemoryPairs(
                [
                    pair
                    if isinstance(pair, OwnPairs) or pair.sharing.worthwhile()
                    else OwnPairs(*(tensor.permute(2, 0, 1, 3) for tensor in pair.expand()))
                    for pair in pairs
                ]
            )

        return (project() if cache is None else cache.layer(layer).cross(project)).pairs


def _is_special(module: nn.Module) -> bool:
    """Whether a module is more than its class: it has hooks, or is of a class that isn't ours."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    return bool(hooks) or type(module) not in KNOWN


def _linear(linear: nn.Linear, factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """A linear layer's weight (in, out) and bias (out,), both times a factor."""
    weight, bias = linear.weight.t(), linear.bias
    return (weight, bias) if factor == 1 else (weight * factor, bias * factor)


def _norm(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    """A LayerNorm's function, without the search for its parts at each call."""
    if not isinstance(norm, nn.LayerNorm):
        return norm
    shape, weight, bias = list(norm.normalized_shape), norm.weight, norm.bias
    return partial(torch.layer_norm, normalized_shape=shape, weight=weight, bias=bias, eps=norm.eps)
