"""How much of a split the model's words and answers cover, and the choice of the answers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TypedDict

from vlm.data.tables import QuestionTable
from vlm.data.tokenizer import LongTextError, TextTokenizer, counted
from vlm.marks import UNK_ID

MARKS = 2  # begin and end


class TextCoverage(TypedDict):
    """What the model can't read of some texts.

    Attributes:
        unknown_words: the share of `words` (tokens) that the vocabulary lacks, and of `texts` that
            hold such a one.
        texts_cut: how many texts lose their end.
    """

    unknown_words: dict[str, float]
    texts_cut: int


def split_texts(
    captions: Iterable[Sequence[str]], questions: QuestionTable | None = None
) -> Iterator[str]:
    """Every caption, question and phrase of a split; a phrase that isn't known is left out."""
    for own in captions:
        yield from own
    if questions is not None:
        yield from questions.question
        yield from (phrase for phrase in questions.phrase if phrase is not None)


def text_coverage(
    texts: Iterable[str], tokenizer: TextTokenizer, max_length: int | None = None
) -> TextCoverage:
    """How much of `texts`, read once and not kept, is unknown or cut; a repeated text counts again.

    No text at all is covered.

    Raises:
        LongTextError: of texts of more than `max_length` ids, marks included, the longest, where
            none is cut; its index is 0.
    """
    words, unknown, said, affected, cut = 0, 0, 0, 0, 0
    most, longest = 0, ""
    limit = tokenizer.cuts_at
    for chunk in counted(texts):
        tokens = tokenizer.tokens(list(chunk))
        for ids, (text, times) in zip(tokens, chunk.items(), strict=True):
            if len(ids) + MARKS > most:
                most, longest = len(ids) + MARKS, text
            lacking = ids.count(UNK_ID)
            words += times * len(ids)
            unknown += times * lacking
            said += times
            affected += times * (lacking > 0)
            cut += times * (limit is not None and len(ids) + MARKS > limit)
    if max_length is not None and limit is None and most > max_length:
        raise LongTextError(0, most, max_length, longest)
    shares = {"words": unknown / max(words, 1), "texts": affected / max(said, 1)}
    return {"unknown_words": shares, "texts_cut": cut}


def answer_vocabulary(answers: Iterable[str | None], at_most: int) -> list[str]:
    """The `at_most` commonest answers, ties by the alphabet; in alphabetical order.

    The order is that of the classifier's columns. An unanswered question (None) has no part in it.
    """
    counts = Counter(answer for answer in answers if answer is not None)
    commonest = sorted(counts, key=lambda answer: (-counts[answer], answer))
    return sorted(commonest[:at_most])


def answer_coverage(answers: Iterable[str | None], vocabulary: Set[str]) -> float:
    """The share of the answered questions whose answer is in the vocabulary; 1 where there's none.

    The others are counted as wrong, whatever is said to them.
    """
    counts = Counter(answer for answer in answers if answer is not None)
    known = sum(times for answer, times in counts.items() if answer in vocabulary)
    return known / counts.total() if counts else 1.0
