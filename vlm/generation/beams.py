"""Beam search: several texts of each row at once, the unlikely ones given up.

Shapes: B rows, K beams of a row, R = B K rows of the decoder (a row's beams lie side by side),
T prompt tokens, N new tokens, V vocabulary.
"""

import math

import torch
from torch import Tensor

from vlm.errors import UserError
from vlm.generation.checks import check_cache, check_memory, check_prompt_mask, check_sizes
from vlm.generation.decoding import Choice, Generated, steps
from vlm.marks import EOS_ID, PAD_ID
from vlm.model.decoder import VisionLanguageDecoder
from vlm.model.kv_cache import KVCache
from vlm.model.memory import Memory, MemoryPart


@torch.inference_mode()
def decode_beams(
    decoder: VisionLanguageDecoder,
    memory: Tensor | Memory,
    prompt: Tensor,
    max_new_tokens: int,
    num_beams: int,
    *,
    length_penalty: float = 1.0,
    cache: KVCache | None = None,
    prompt_mask: Tensor | None = None,
    compile: bool = False,
) -> Generated:
    """The best text of each row that a beam search finds (Graves 2012; Sutskever et al. 2014).

    A text ends with the end mark or with its N-th token. The best has the largest sum of log
    probabilities divided by length ** length_penalty, where the length counts the new tokens,
    the end mark too. One beam is greedy decoding.

    Args:
        decoder, memory, prompt, max_new_tokens, prompt_mask, compile: as in `decode`.
        num_beams: K.
        length_penalty: 0 compares the sums themselves, which favours short texts; 1 compares
            means per token.
        cache: as in `decode`, but for B K rows.

    Returns:
        Tokens (B, N), padded after the end, and no logits.

    Raises:
        UserError: as `decode`; fewer beams than one, or a length penalty that isn't finite.
    """
    check_beams(num_beams, length_penalty)
    batch, given = prompt.shape
    check_sizes(decoder, batch, given, max_new_tokens)
    memory = Memory.of(memory)
    check_memory(memory, decoder, batch)
    check_cache(cache, decoder, batch * num_beams, given + max_new_tokens - 1)
    check_prompt_mask(prompt_mask, prompt)
    beams = Beams(batch, num_beams, max_new_tokens, length_penalty, prompt.device)
    for _ in steps(
        decoder,
        repeat_rows(memory, num_beams),
        prompt.repeat_interleave(num_beams, dim=0),
        max_new_tokens,
        beams,
        cache=cache,
        prompt_mask=None if prompt_mask is None else prompt_mask.repeat_interleave(num_beams, 0),
        compile=compile,
    ):
        pass
    return Generated(beams.best[:, : int(beams.best_length.max())], None)


def check_beams(num_beams: int, length_penalty: float) -> None:
    """Refuse what no search can go by."""
    if num_beams < 1:
        raise UserError(f"num_beams: got {num_beams}, expected 1 or more")
    if not math.isfinite(length_penalty):
        raise UserError(f"length_penalty: got {length_penalty}, expected a finite number")


def repeat_rows(memory: Memory, times: int) -> Memory:
    """Every row `times` over, side by side; the tokens are shared, not copied."""
    parts = []
    for part in memory.parts:
        rows = part.rows
        if rows is None:
            rows = torch.arange(len(part.tokens), device=part.tokens.device)
        parts.append(MemoryPart(part.tokens, rows.repeat_interleave(times), part.mask))
    context = memory.context
    return Memory(parts, None if context is None else context.repeat_interleave(times, dim=0))


class Beams:
    """The strategy, and what the search has found so far.

    A row has K places. A text that ends gives up its place for good, so the search narrows, and a
    row is done once K texts have ended, or sooner: log probabilities only fall, so the best live
    text has a bound, and when the best ended text reaches it, none can win any more.

    Attributes:
        scores: (B, K) sums of log probabilities of the live texts; -inf where there is none.
        texts: (B, K, N) their tokens.
        places: (B,) how many of K no ended text has taken.
        best, best_length, best_score: (B, N), (B,), (B,) the best ended text of each row.
    """

    def __init__(
        self, batch: int, num_beams: int, length: int, penalty: float, device: torch.device
    ) -> None:
        self.penalty = penalty
        self.scores = torch.full((batch, num_beams), -torch.inf, dtype=torch.float64, device=device)
        self.scores[:, 0] = 0.0  # all begin alike, and equal texts must not fill the beam
        self.texts = torch.full((batch, num_beams, length), PAD_ID, device=device)
        self.places = torch.full((batch,), num_beams, device=device)
        self.best = torch.full((batch, length), PAD_ID, device=device)
        self.best_length = torch.ones(batch, dtype=torch.int64, device=device)
        self.best_score = torch.full((batch,), -torch.inf, dtype=torch.float64, device=device)

    def choose(self, logits: Tensor, step: int) -> Choice:
        """See `Strategy`; the logits are (R, V)."""
        batch, width, room = self.texts.shape
        log_probs = logits.double().log_softmax(dim=-1).unflatten(0, (batch, width))
        every = (self.scores[..., None] + log_probs).flatten(1)  # (B, K V)
        # Of equals the lower beam, then the lower id, which topk doesn't promise.
        scores, index = every.sort(dim=1, descending=True, stable=True)
        scores, index = scores[:, :width], index[:, :width]
        parents, tokens = index // logits.shape[-1], index % logits.shape[-1]
        rank = torch.arange(width, device=scores.device)
        scores = scores.masked_fill(rank >= self.places[:, None], -torch.inf)
        self.texts = self.texts.gather(1, parents[..., None].expand(-1, -1, room))
        self.texts[:, :, step] = tokens

        ended = (tokens == EOS_ID) & (scores > -torch.inf)
        last = step + 1 == room
        self._keep_best(scores if last else scores.masked_fill(~ended, -torch.inf), step + 1)
        self.places = self.places - ended.sum(dim=1)
        scores = scores.masked_fill(ended, -torch.inf)
        done = self.best_score >= self._reach(scores.amax(dim=1), step + 1)
        self.scores = scores.masked_fill(done[:, None], -torch.inf)
        own = torch.arange(batch, device=scores.device)[:, None] * width
        return Choice(tokens.flatten(), (own + parents).flatten(), last or bool(done.all()))

    def _keep_best(self, scores: Tensor, length: int) -> None:
        """Hold a row's best text of `length` tokens against the best before; of equals, that."""
        score, beam = (scores / length**self.penalty).max(dim=1)
        better = score > self.best_score
        text = self.texts[torch.arange(len(beam), device=beam.device), beam]
        self.best_score = torch.where(better, score, self.best_score)
        self.best = torch.where(better[:, None], text, self.best)
        self.best_length = self.best_length.masked_fill(better, length)

    def _reach(self, score: Tensor, length: int) -> Tensor:
        """(B,) -> (B,): the most that live texts of these sums can yet score.

        Were all further tokens certain, the sum would stay; then the longest text scores best, or
        with a negative penalty the shortest.
        """
        longest = self.texts.shape[2]
        shortest = min(length + 1, longest)
        return torch.maximum(score / shortest**self.penalty, score / longest**self.penalty)
