"""What becomes of an answer when the question's words are put in another order.

A model that takes a question for a bag of words doesn't notice: distance 0, no answer changed.
That is the floor of every figure here; the accuracies have the floors of their split.

Shapes: M questions, U distinct ones, T tokens, D width.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from vlm.data.loading import TextTable, chunks
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.heads import HEADS, Heads, Replies
from vlm.evaluation.intervals import bootstrap
from vlm.evaluation.scoring import Figures, Scorer, score_head
from vlm.model.text import TextEncoder

Floats = npt.NDArray[np.float64]
TEXTS = 512  # encoded at once
ORDERS = 8  # ways in which a question is scrambled


def scramble(text: str, seed: int, turn: int = 0) -> str:
    """The words of `text` in another order: a function of the three, and of nothing else.

    All orders that read differently are equally likely. A text whose words allow no other order
    comes back as it is.
    """
    words = text.split()
    if len({word.lower() for word in words}) < 2:  # the tokenizer, too, knows no capitals
        return text
    rng = np.random.default_rng((seed, turn, *text.encode()))
    while True:
        order = rng.permutation(len(words))
        drawn = [words[place] for place in order]
        if " ".join(drawn).lower() != " ".join(words).lower():
            return " ".join(drawn)


def scrambled(questions: QuestionTable, seed: int) -> QuestionTable:
    """The same questions with their words in other orders; answers and phrases stay.

    A question asked about several pictures is scrambled in `ORDERS` ways by turns: some orders are
    kinder than others.
    """
    turns: Counter[str] = Counter()
    drawn: dict[tuple[str, int], str] = {}
    other = np.empty(len(questions), dtype=object)
    for row, text in enumerate(questions.question):
        pair = text, turns[text] % ORDERS
        turns[text] += 1
        if pair not in drawn:
            drawn[pair] = scramble(text, seed, pair[1])
        other[row] = drawn[pair]
    return replace(questions, question=other)


def score_word_order(
    heads: Heads,
    scenes: SceneTable,
    questions: QuestionTable,
    before: Replies,
    spoken: Mapping[str, str],
    scorer: Scorer,
    floors: Figures,
) -> Figures:
    """How far scrambling moves the questions' vectors, and what it does to both heads' answers.

    Args:
        heads: what is probed.
        scenes, questions: of the split.
        before: what the heads say to the questions as they stand.
        spoken: the short answer that each phrase gives.
        scorer, floors: of the split.

    Returns:
        By head: `distance` between a question and its scrambled self, `changed` answers, and the
        accuracy on scrambled questions. Beside them, how much was probed.
    """
    other = scrambled(questions, scorer.seed)
    after = heads.reply(scenes, other)
    changed, right = after.changed(before, spoken), after.right(questions)
    families = dict(zip(questions.question, questions.family, strict=True))
    orders: dict[str, list[str]] = {text: [] for text in questions.question}
    for text, scrambled_text in dict.fromkeys(zip(questions.question, other.question, strict=True)):
        orders[text].append(scrambled_text)
    figures: Figures = {
        "pictures": len(scenes),
        "questions": len(questions),
        "distinct_questions": len(orders),
        "orders": sum(map(len, orders.values())),
        "without_another_order": sum(texts == [text] for text, texts in orders.items()),
    }
    for head, encoder in zip(HEADS, (heads.classifier.text, heads.generator.text), strict=True):
        figures[head] = {
            **score_distances(encoder, heads.tokenizer, orders, families, scorer),
            **scorer.accuracy("changed", changed[head]),
            **scorer.by_family(changed[head], "changed_"),
            **score_head(scorer, right[head], floors),
        }
    return figures


def score_distances(
    encoder: TextEncoder,
    tokenizer: TextTokenizer,
    orders: dict[str, list[str]],
    families: dict[str, str],
    scorer: Scorer,
) -> Figures:
    """1 - cosine between the vectors of each distinct text and of its scrambled selves.

    Means, overall and by family, each with its interval over the distinct texts; a text's own is
    the mean over its orders. The scale to read
    them by is `distance_between_questions`, the mean 1 - cosine over all pairs of distinct texts;
    a single text has none.
    """
    whole = encode(encoder, tokenizer, list(orders))
    text_of = np.repeat(np.arange(len(orders)), [len(texts) for texts in orders.values()])
    other = encode(encoder, tokenizer, [text for texts in orders.values() for text in texts])
    each = np.clip(1 - (whole[text_of] * other).sum(axis=1), 0, 2)  # rounding makes it -1e-16
    distances = np.bincount(text_of, each) / np.bincount(text_of)
    labels = np.array([families[text] for text in orders])
    figures: Figures = dict(zip(_ends("distance"), _mean(distances, scorer), strict=True))
    names = _ends("distance_by_family")
    figures |= {name: {} for name in names}
    for family in np.unique(labels).tolist():
        for name, value in zip(names, _mean(distances[labels == family], scorer), strict=True):
            figures[name][family] = value
    if len(orders) > 1:
        figures["distance_between_questions"] = mean_distance(whole)
    return figures


@torch.inference_mode()
def encode(encoder: TextEncoder, tokenizer: TextTokenizer, texts: list[str]) -> Floats:
    """The encoder's vector of each text, at length 1: (U, D), in double precision."""
    device = next(encoder.parameters()).device
    table = TextTable(texts, tokenizer, encoder.config.max_length)
    parts = [
        encoder(table.take(table.rows[part]).to(device))[1] for part in chunks(len(texts), TEXTS)
    ]
    return torch.nn.functional.normalize(torch.cat(parts).double(), dim=-1).cpu().numpy()


def mean_distance(vectors: Floats) -> float:
    """The mean of 1 - cosine over all pairs of different rows of (U, D) unit vectors.

    All cosines sum to the squared length of the vectors' sum; U of them are of a row with itself.
    """
    count, total = len(vectors), vectors.sum(axis=0)
    among_others = float(total @ total) - float((vectors * vectors).sum())
    return 1 - among_others / (count * (count - 1))


def _mean(values: Floats, scorer: Scorer) -> tuple[float, float, float]:
    """A mean and the ends of its interval, each value drawn on its own."""
    count = len(values)
    interval = bootstrap(
        values[:, None], lambda sums: sums[:, 0] / count, 0.95, scorer.resamples, scorer.seed
    )
    return float(values.mean()), interval.low, interval.high


def _ends(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"
