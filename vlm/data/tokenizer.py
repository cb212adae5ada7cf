"""Text to ids and back, with a tokenizer of words or of byte pairs (`tokenizers` library).

Either knows texts in lower case, whatever their capitals.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch import Tensor

from vlm.errors import UserError
from vlm.files import write_text
from vlm.marks import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from vlm.rules import check_vocabulary

Kind = Literal["word", "bpe"]
PAD, BOS, EOS, UNK = MARKS = "<pad>", "<bos>", "<eos>", "<unk>"
FILE = "tokenizer.json"
CHUNK = 65536  # texts counted at once
BYTE_PAIRS = 30_000  # tokens of that kind, where nobody says how many
SEEN_TWICE = 2  # times, or a pair of bytes isn't worth a token
SHOWN = 60  # characters of a text in a message


class LongTextError(UserError):
    """A text, `text`, of more tokens than the model reads; `index` says which of those given."""

    def __init__(self, index: int, tokens: int, limit: int, text: str) -> None:
        start = text if len(text) <= SHOWN else text[:SHOWN] + "..."
        super().__init__(
            f"text of {tokens} tokens, marks included, exceeds max_length {limit}: {start!r}"
        )
        self.index = index
        self.text = text


class TextTokenizer:
    """Texts in lower case to ids, each with a begin and an end mark, and padding after.

    >>> TextTokenizer.fit(["a circle"]).encode(["a circle", "a"]).tolist()
    [[1, 4, 5, 2], [1, 4, 2, 0]]

    Of kind `word`, words and punctuation marks are tokens, and one that isn't known is the mark
    `<unk>`. Of kind `bpe`, pieces of words are, down to single bytes: nothing is unknown.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._whole = Tokenizer.from_str(tokenizer.to_str())  # cuts nothing and pads nothing
        self._whole.no_truncation()
        self._whole.no_padding()

    @classmethod
    def fit(
        cls, texts: Iterable[str], kind: Kind = "word", max_vocab: int | None = None
    ) -> "TextTokenizer":
        """Learn the vocabulary of `texts`, which are read once and not kept.

        Args:
            texts: any number; memory grows with their distinct words alone.
            kind: `word`, the most frequent first and ties in alphabetical order; or `bpe`, byte
                pairs merged as long as they are seen twice.
            max_vocab: tokens known at most, the four marks included; None: all words, or so many
                byte pairs as `BYTE_PAIRS`.

        Raises:
            UserError: a `max_vocab` without room for the marks and, of `bpe`, every byte.
        """
        check_vocabulary(kind, max_vocab)
        tokenizer = _words(texts, max_vocab) if kind == "word" else _byte_pairs(texts, max_vocab)
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

    def cut_at(self, max_length: int) -> None:
        """From now on a longer text loses its end, not its end mark; `save` keeps this too."""
        self._tokenizer.enable_truncation(max_length)

    @property
    def cuts_at(self) -> int | None:
        """The most tokens of a text, marks included, where a longer one is cut; else None."""
        truncation = self._tokenizer.truncation
        return None if truncation is None else truncation["max_length"]

    @property
    def vocab_size(self) -> int:
        """V, the four marks included."""
        return self._tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str], max_length: int | None = None) -> Tensor:
        """(n, T) int64 ids: begin, tokens, end, padding to the longest.

        Raises:
            LongTextError: of texts of more than `max_length` ids the longest, where none is cut.
        """
        encoded = self._tokenizer.encode_batch_fast(list(texts))
        ids = torch.tensor([e.ids for e in encoded], dtype=torch.int64).reshape(len(texts), -1)
        if max_length is not None and ids.shape[1] > max_length:
            longest = int((ids != PAD_ID).sum(dim=1).argmax())
            raise LongTextError(longest, ids.shape[1], max_length, texts[longest])
        return ids

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, whatever its length, without begin and end."""
        encoded = self._whole.encode_batch_fast(list(texts), add_special_tokens=False)
        return [each.ids for each in encoded]

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """The text up to the end mark, as `spelled` writes it.

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
        tokens = [self._tokenizer.id_to_token(index) or UNK for index in kept]
        if self._tokenizer.decoder is None:
            return " ".join(tokens)
        shown = [f" {token}" if token in MARKS else token for token in tokens]
        return self._tokenizer.decoder.decode(shown).removeprefix(" ")

    def spelled(self, text: str) -> str:
        """The text as `decode` gives it back if all of it is known: "it's" is "it ' s" in words.

        What is said can be held against what is true only in one spelling. An unknown word stays
        as it is, and so equals nothing that is said.
        """
        normal = self._tokenizer.normalizer.normalize_str(text)
        if self._tokenizer.decoder is not None:
            return normal
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(normal)
        return " ".join(word for word, _ in words)

    def spelling(self, texts: Iterable[str]) -> dict[str, str]:
        """Each distinct text, and how it is `spelled`."""
        return {text: self.spelled(text) for text in dict.fromkeys(texts)}


def counted(texts: Iterable[str], size: int = CHUNK) -> Iterator[Counter[str]]:
    """How often each text is said, `size` texts at a time."""
    remaining = iter(texts)
    while chunk := Counter(islice(remaining, size)):
        yield chunk


def _words(texts: Iterable[str], max_vocab: int | None) -> Tokenizer:
    """Lower case; words and punctuation marks are tokens of their own."""

    def of(vocabulary: dict[str, int]) -> Tokenizer:
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        return tokenizer

    split = of({UNK: UNK_ID})
    counts: Counter[str] = Counter()
    for chunk in counted(texts):
        for text, times in chunk.items():
            normal = split.normalizer.normalize_str(text)
            for word, _ in split.pre_tokenizer.pre_tokenize_str(normal):
                counts[word] += times
    words = sorted(counts, key=lambda word: (-counts[word], word))
    if max_vocab is not None:
        words = words[: max_vocab - len(MARKS)]
    return of({word: index for index, word in enumerate([*MARKS, *words])})


def _byte_pairs(texts: Iterable[str], max_vocab: int | None) -> Tokenizer:
    """Lower case, single spaces; the bytes of words merged into pieces (Sennrich et al. 2016)."""

    def of(model: models.BPE) -> Tokenizer:
        tokenizer = Tokenizer(model)
        single = normalizers.Replace(Regex(r"\s+"), " ")
        steps: list[normalizers.Normalizer] = [normalizers.Lowercase(), single, normalizers.Strip()]
        tokenizer.normalizer = normalizers.Sequence(steps)
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    trainer = trainers.BpeTrainer(
        vocab_size=BYTE_PAIRS if max_vocab is None else max_vocab,
        min_frequency=SEEN_TWICE,
        special_tokens=list(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained = of(models.BPE())
    trained.train_from_iterator(texts, trainer)
    # Made anew, since the trainer's marks would be found in texts too: an own "<eos>" is no mark.
    learned = json.loads(trained.to_str())["model"]
    return of(models.BPE(learned["vocab"], [(one, two) for one, two in learned["merges"]]))
