"""From a memory to words: one loop, and the ways of choosing that it runs under.

`picking` takes logits to tokens, `decoding` is the loop, `beams` is beam search under it, and
`phrases` starts from pictures and questions.
"""

from vlm.generation.beams import decode_beams
from vlm.generation.decoding import Generated, decode, decode_greedy
from vlm.generation.phrases import generate, stream
from vlm.generation.picking import greedy, sampler

__all__ = [
    "Generated",
    "decode",
    "decode_beams",
    "decode_greedy",
    "generate",
    "greedy",
    "sampler",
    "stream",
]
