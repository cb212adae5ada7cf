"""The text side: an embedding table, and a small encoder over it.

Shapes: B texts, T tokens, D width, V vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from vlm.errors import UserError
from vlm.marks import PAD_ID
from vlm.model.attention import EncoderBlock, Norm
from vlm.rules import check_choices, check_heads


@dataclass(frozen=True)
class TextConfig:
    """Sizes of the text encoder; depth 0 is the mean of the embeddings."""

    vocab_size: int
    hidden: int = 128
    depth: int = 0
    heads: int = 4
    mlp_ratio: float = 4.0
    dropout: float = 0.0
    max_length: int = 32
    norm: Norm = "pre"

    def __post_init__(self) -> None:
        check_choices(self)
        check_heads(self.hidden, self.heads)


class TextEncoder(nn.Module):
    """Texts to token vectors and one vector each.

    tokens, pooled = encoder(text_ids): (B, T) ids -> (B, T, D), (B, D). Padding is seen by no
    other token and is left out of the mean. At depth 0 a token's vector is its embedding, blind
    to order; from depth 1 on, learned positions and transformer blocks.
    """

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden)
        if config.depth:
            # As large as the embeddings: smaller, and word order drowns among the words.
            self.positions = nn.Embedding(config.max_length, config.hidden)
            self.norm = nn.LayerNorm(config.hidden) if config.norm == "pre" else nn.Identity()
        self.blocks = nn.ModuleList(
            EncoderBlock(
                config.hidden, config.heads, config.mlp_ratio, config.dropout, norm=config.norm
            )
            for _ in range(config.depth)
        )

    def forward(self, text_ids: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) ids -> token vectors (B, T, D) and their mean over real tokens (B, D).

        Raises:
            UserError: texts longer than `max_length`, where positions are learned.
        """
        length, room = text_ids.shape[1], self.config.max_length
        if self.config.depth and length > room:
            raise UserError(f"text length {length} exceeds max_length {room}")
        real = text_ids != PAD_ID  # (B, T)
        x = self.embedding(text_ids)
        if self.config.depth:
            x = x + self.positions.weight[:length]
            for block in self.blocks:
                x = block(x, real[:, None, None].expand(-1, 1, length, -1))
            x = self.norm(x)
        return x, masked_mean(x, real)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of x (B, T, D) over the positions where mask (B, T) is True; 0 where none is."""
    weights = mask.to(x.dtype).unsqueeze(-1)
    return (x * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
