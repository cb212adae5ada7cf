"""An encoder-decoder of Transformers with the sizes of our decoder.

Shapes: B rows, S memory tokens, D width, N new tokens.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
)
from transformers.modeling_outputs import BaseModelOutput

from vlm.marks import BOS_ID, PAD_ID
from vlm.model.decoder import DecoderConfig

Decode = Callable[[Tensor], Tensor]  # memory (B, S, D) to tokens (B, N)


def bart_like(config: DecoderConfig) -> BartForConditionalGeneration:
    """A BART whose decoder has these sizes, random weights, and no end mark to stop at.

    Its encoder is as small as it can be, since it never runs: `decoding` hands over the memory
    as what the encoder gave.
    """
    hidden, wide = config.hidden, int(config.hidden * config.mlp_ratio)
    sizes = BartConfig(
        vocab_size=config.text_vocab,
        d_model=hidden,
        decoder_layers=config.depth,
        decoder_attention_heads=config.heads,
        decoder_ffn_dim=wide,
        encoder_layers=1,
        encoder_attention_heads=config.heads,
        encoder_ffn_dim=wide,
        max_position_embeddings=config.max_text_len,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=None,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS_ID,
    )
    model = AutoModelForSeq2SeqLM.from_config(sizes, attn_implementation="sdpa")
    assert isinstance(model, BartForConditionalGeneration)
    return model.eval()


def decoding(model: BartForConditionalGeneration, length: int) -> Decode:
    """Greedy decoding of exactly `length` tokens with the cache that `generate` keeps."""
    # Without an end mark nothing stops it; `min_new_tokens` would do, at a cost in every step.
    settings = GenerationConfig(
        max_new_tokens=length,
        do_sample=False,
        num_beams=1,
        use_cache=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        decoder_start_token_id=BOS_ID,
    )

    @torch.inference_mode()
    def decode(memory: Tensor) -> Tensor:
        given = BaseModelOutput(last_hidden_state=memory)
        tokens = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
            encoder_outputs=given, generation_config=settings
        )
        assert isinstance(tokens, Tensor)
        return tokens[:, 1:]  # the begin mark comes first

    return decode
