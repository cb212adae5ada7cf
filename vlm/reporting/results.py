"""The measured half of the page: answers, retrieval and captions."""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from vlm.reporting import charts
from vlm.reporting.charts import Scores
from vlm.reporting.inputs import Figures, Inputs
from vlm.reporting.markup import (
    MISSING,
    Html,
    element,
    figure,
    number,
    percent,
    percent_interval,
    points,
    section,
    table,
)
from vlm.reporting.verdicts import HEADS

FLOORS = {
    "majority": "majority answer",
    "question_only": "question only",
    "image_only": "image only",
}
CAPTIONS = {
    "exact": "exact facts",
    "fact_f1": "fact F1",
    "bleu4": "corpus BLEU-4",
    "rouge_l": "ROUGE-L (F1)",
    "rouge_l_coco": "ROUGE-L (COCO, beta 1.2)",
}
# Own pictures have no facts, and their captions may be questions with answers.
OWN_CAPTIONS = {"exact": "one of the picture's, word for word"} | {
    key: words for key, words in CAPTIONS.items() if key not in ("exact", "fact_f1")
}
FACTS = (
    " Fact F1: how many facts that a caption tells are true, and how many true ones it tells, over"
    " all pictures."
)
STAND_IN = (
    " Where a picture has no caption of its own, its questions with their answers stand in, here as"
    " in training."
)
DIRECTIONS = {"image_to_text": "picture to caption", "text_to_image": "caption to picture"}


def answers(inputs: Inputs) -> Html:
    """Accuracy by family, and what the classifier mistakes for what."""
    figures = inputs.metrics["evaluate"]
    floors = figures["floors"].get("by_family", {})
    heads = family_scores(figures)
    best = {
        family: max((floors[name].get(family, 0.0) for name in FLOORS if name in floors), default=0)
        for family in heads["classifier"].value
    }
    chart = figure(
        charts.shares_by_row(heads, best, "accuracy of both heads by question family"),
        "Exact match by family: points are the heads, whiskers their 95% intervals (bootstrap over"
        " pictures), and the upright bar the family's largest floor. A head whose whiskers clear"
        " the bar uses the picture and the question together.",
    )
    return section(
        "answers",
        "Answers",
        element("div", chart, _confusion(inputs), class_="charts"),
        family_table(heads, floors, "Exact match by question family, beside its floors"),
        _floor_table(figures["floors"]),
        _phrases(figures["generator"]),
    )


def language(inputs: Inputs) -> Html:
    """Retrieval both ways, and the captions."""
    figures = inputs.metrics["evaluate"]
    retrieval, caption = figures["retrieval"], figures["caption"]
    same = "that state the same facts" if inputs.is_drawn else "of the same words"
    measures = CAPTIONS if inputs.is_drawn else OWN_CAPTIONS
    rows = []
    for measure in ("R@1", "R@5", "R@10"):
        row: list[object] = [measure]
        for direction in DIRECTIONS:
            row += with_interval(retrieval, f"{direction}_{measure}")
        rows.append([*row, *_unseeing(retrieval, measure)])
    mrr: list[object] = ["MRR (mean of 1 / rank)"]
    for direction in DIRECTIONS:
        mrr += with_interval(retrieval, f"{direction}_MRR")
    rows.append([*mrr, *_unseeing(retrieval, "MRR")])
    for words, key in (("median rank", "median_rank"), ("R@1, by id only", "id_R@1")):
        write = percent if "R@" in key else _rank
        cells = [(write(retrieval.get(f"{direction}_{key}")), "—") for direction in DIRECTIONS]
        rows.append(
            [words, *(c for pair in cells for c in pair), *_unseeing(retrieval, key, write)]
        )
    header = ["measure", *(h for words in DIRECTIONS.values() for h in (words, "95% interval"))]
    found = table(
        [*header, "floor", "chance"],
        rows,
        f"Finding the right one among {number(retrieval.get('gallery'))} pictures or captions. R@K:"
        f" it is among the first K. Captions {same} count as right; “by id only”"
        " counts no other picture's caption. The floor is what the best ranking that is the same"
        " for every query scores; chance is what a constant similarity scores",
    )
    written = table(
        ["measure", "value", "95% interval", "floor", "lift"],
        [headline(words, caption, key, *common(caption, key)) for key, words in measures.items()],
        "Captions of the pretrained model. The floor is what one of the training split's commonest"
        f" captions scores, given to every picture.{FACTS if inputs.is_drawn else STAND_IN}"
        " ROUGE-L: the longest common subsequence of words. BLEU:"
        f" {caption.get('bleu_signature', MISSING)}",
    )
    return section("language", "Retrieval and captions", found, written)


def _rank(value: float | None) -> str:
    return number(value, 1)


def _unseeing(
    retrieval: Figures, measure: str, write: Callable[[float | None], str] = percent
) -> list[str]:
    """What a retrieval measure is without looking: its floor, and chance; a dash where unknown."""
    found = [retrieval.get(f"{of}_{measure}") for of in ("floor", "chance")]
    return ["—" if one is None else write(one) for one in found]


def family_scores(figures: Figures) -> dict[str, Scores]:
    """Each head's exact match by family, with intervals."""
    return {
        head: Scores(*(figures[head].get(f"by_family{end}", {}) for end in ("", "_low", "_high")))
        for head in HEADS
    }


def family_table(heads: Mapping[str, Scores], floors: Figures, caption: str) -> Html:
    """Both heads' scores by family, beside the floors of each family."""
    known = {name: words for name, words in FLOORS.items() if name in floors}
    rows = []
    for family in heads["classifier"].value:
        row: list[object] = [family]
        for head in heads.values():
            row.append(percent(head.value.get(family)))
            row.append(percent_interval(head.low.get(family), head.high.get(family)))
        rows.append([*row, *(percent(floors[name].get(family)) for name in known)])
    header = ["family", *(h for head in HEADS for h in (head, "95% interval"))]
    return table([*header, *(f"floor: {words}" for words in known.values())], rows, caption)


def headline(
    words: str, figures: Figures, key: str, floor: float | None, floor_name: str
) -> list[object]:
    """A row: a figure, its interval, its floor, and how far it lies above that."""
    low = "—" if floor is None else f"{percent(floor)} ({floor_name})"
    value, interval = with_interval(figures, key)
    return [words, element("strong", value), interval, low, points(figures.get(key), floor)]


def with_interval(figures: Figures, key: str) -> tuple[str, str]:
    """A share and its interval, in percent."""
    ends = percent_interval(figures.get(f"{key}_low"), figures.get(f"{key}_high"))
    return percent(figures.get(key)), ends


def exact_captions(inputs: Inputs) -> str:
    """What makes a caption right, as a headline."""
    if inputs.is_drawn:
        return "Captions with exactly the facts"
    return "Captions word for word as one of the picture's"


def common(figures: Figures, key: str) -> tuple[float | None, str]:
    """The floor of one of the captions' figures, and its name."""
    return figures.get(f"{key}_floor"), "one caption for all"


def largest_floor(floors: Figures, ending: str = "") -> tuple[str, float | None]:
    """The largest of the floors whose names end so, in words and as a share."""
    keys = {f"{name}{ending}": words for name, words in FLOORS.items()}
    known = [(floors[key], words) for key, words in keys.items() if key in floors]
    value, words = max(known, default=(None, ""))
    return words, value


def _floor_table(floors: Figures) -> Html:
    rows = [
        [words + known, *with_interval(floors, name + ending)]
        for known, ending in (("", ""), (", knowing the family", "_by_family_mean"))
        for name, words in FLOORS.items()
    ]
    note = (
        "Floors over all families. Who also knows the family of a question guesses better; the lift"
        " is over the largest of the first three"
    )
    return table(["floor", "value", "95% interval"], rows, note)


def _phrases(generator: Figures) -> Html:
    floor = generator.get("bleu4_floor"), "commonest phrase to each question"
    row = headline("corpus BLEU-4", generator, "bleu4", *floor)
    header = ["measure", "value", "95% interval", "floor", "lift"]
    return table(
        header, [row], "The generator's phrases; BLEU-4 gives credit for nearly right ones"
    )


def _confusion(inputs: Inputs) -> Html:
    pairs = Counter(inputs.confusion)
    names = sorted({name for pair in pairs for name in pair})
    counts = np.array([[pairs[truth, guess] for guess in names] for truth in names], np.int64)
    return figure(
        charts.confusion_matrix(counts, names, "confusion of the classifier's answers"),
        "What the classifier answers (columns) where the truth is the row: number of questions, and"
        " below it the share of the row. The diagonal is right; a dark cell off it is a habit.",
    )
