"""Lesson 4: a decoder writes text while it looks at a picture.

Each block reads the text so far (causal self-attention), looks at the picture (cross-attention) and
thinks (MLP). A cache spares it from reading the same text again at every word.

    python examples/course/lesson4_fusion.py
"""

import torch

from vlm import DecoderConfig, VisionLanguageDecoder, causal_mask


@torch.no_grad()
def main(length: int = 12, seed: int = 0) -> None:
    torch.manual_seed(seed)
    config = DecoderConfig()
    decoder = VisionLanguageDecoder(config).eval()
    picture, other_picture = torch.randn(2, 1, config.vision_tokens, config.vision_dim)
    text = torch.randint(1, config.text_vocab, (1, length))
    logits = decoder(text, picture)

    print("who sees whom: a row is a reader, a column what it may read")
    print(causal_mask(5).int())
    print(
        f"text {tuple(text.shape)}, picture {tuple(picture.shape)} -> logits {tuple(logits.shape)}"
    )
    print(f"{sum(p.numel() for p in decoder.parameters()):,} parameters")

    def largest_change(other: torch.Tensor) -> torch.Tensor:
        return (other - logits).abs().amax(dim=2)[0]  # one number a position

    # The mask at work: a word changes what follows it, and nothing before.
    place = length // 2
    edited = text.clone()
    edited[0, place] = text[0, place] % (config.text_vocab - 1) + 1
    change = largest_change(decoder(edited, picture))
    print(
        f"token {place} changed: logits before it move by {change[:place].max():.1e},"
        f" from it on by {change[place:].max():.1e}"
    )
    change = largest_change(decoder(text, other_picture))
    print(f"picture changed: logits move by {change.max():.1e}")

    # Caches save work and change no value, up to rounding.
    change = largest_change(decoder(text, picture, use_cache=True))
    print(f"use_cache=True: logits move by {change.max():.1e}")
    cache = decoder.new_cache(batch_size=1)
    steps = [decoder(text[:, [t]], picture, cache=cache) for t in range(length)]
    change = largest_change(torch.cat(steps, dim=1))
    print(f"word by word over a cache: logits move by {change.max():.1e}")


if __name__ == "__main__":
    main()
