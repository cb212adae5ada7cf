"""Text to ids and back, with a word-level tokenizer of the `tokenizers` library."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from vlm.errors import UserError
from vlm.files import write_text
from vlm.marks import BOS_ID, EOS_ID, PAD_ID

PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"
FILE = "tokenizer.json"


class TextTokenizer:
    """Words in lower case to ids; each text gets a begin and an end mark, and padding after.

    >>> TextTokenizer.fit(["a circle"]).encode(["a circle", "a"]).tolist()
    [[1, 4, 5, 2], [1, 4, 2, 0]]
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def fit(cls, texts: Iterable[str]) -> "TextTokenizer":
        """The vocabulary of `texts`: the most frequent word first, ties in alphabetical order."""
        split = _pipeline(Tokenizer(models.WordLevel({UNK: 0}, unk_token=UNK)))
        counts: Counter[str] = Counter()
        for text, times in Counter(texts).items():
            normal = split.normalizer.normalize_str(text)
            for word, _ in split.pre_tokenizer.pre_tokenize_str(normal):
                counts[word] += times
        words = sorted(counts, key=lambda word: (-counts[word], word))
        vocabulary = {word: index for index, word in enumerate([PAD, BOS, EOS, UNK, *words])}
        tokenizer = _pipeline(Tokenizer(models.WordLevel(vocabulary, unk_token=UNK)))
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A {EOS}", special_tokens=[(BOS, BOS_ID), (EOS, EOS_ID)]
        )
        tokenizer.enable_padding(pad_id=PAD_ID, pad_token=PAD)
        return cls(tokenizer)

    @classmethod
    def load(cls, folder: str | Path) -> "TextTokenizer":
        """Read the tokenizer of a model folder."""
        path = Path(folder) / FILE
        if not path.is_file():
            raise UserError(f"{path}: no such file; expected a model folder with {FILE}")
        try:
            return cls(Tokenizer.from_str(path.read_text(encoding="utf-8")))
        except Exception as error:  # the library raises no narrower one
            raise UserError(f"{path}: not readable as a tokenizer: {error}") from None

    def save(self, folder: str | Path) -> None:
        """Write it into a model folder."""
        write_text(Path(folder) / FILE, self._tokenizer.to_str(pretty=True) + "\n")

    @property
    def vocab_size(self) -> int:
        """V, the four marks included."""
        return self._tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str], max_length: int | None = None) -> Tensor:
        """(n, T) int64 ids: begin, words, end, padding to the longest.

        Raises:
            UserError: a text of more than `max_length` ids.
        """
        encoded = self._tokenizer.encode_batch_fast(list(texts))
        ids = torch.tensor([e.ids for e in encoded], dtype=torch.int64).reshape(len(texts), -1)
        if max_length is not None and ids.shape[1] > max_length:
            longest = texts[int((ids != PAD_ID).sum(dim=1).argmax())]
            raise UserError(
                f"text of {ids.shape[1]} tokens, marks included, exceeds max_length {max_length}:"
                f" {longest!r}"
            )
        return ids

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """Words up to the end mark, single spaces between.

        A begin mark at the start and padding at the end are left out; a mark between words is
        shown, since a text that holds one isn't the text without it.
        """
        kept = [int(index) for index in ids]
        if EOS_ID in kept:
            kept = kept[: kept.index(EOS_ID)]
        while kept and kept[-1] == PAD_ID:
            kept.pop()
        if kept and kept[0] == BOS_ID:
            kept = kept[1:]
        return " ".join(self._tokenizer.id_to_token(index) or UNK for index in kept)


def _pipeline(tokenizer: Tokenizer) -> Tokenizer:
    """Lower case; words and punctuation marks are tokens of their own."""
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer
