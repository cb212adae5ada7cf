"""The page of `vlm compare`: two runs' figures side by side, and the questions that changed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template

import matplotlib
import numpy as np

from vlm.evaluation.comparing import HEADS, Changes, Comparison, Head
from vlm.evaluation.intervals import DEFAULT_RESAMPLES
from vlm.evaluation.pairing import Pair
from vlm.reporting.charts import INK, PALETTE, STYLE, panel, svg
from vlm.reporting.gallery import SIDE
from vlm.reporting.markup import (
    Html,
    element,
    figure,
    joined,
    paragraph,
    percent,
    section,
    table,
    verdict,
)
from vlm.reporting.pictures import Pixels, picture_data_uri
from vlm.reporting.skeleton import SKELETON

TITLE = "Two runs, question by question"
ABOUT_P = (
    "p is McNemar's, exact and two-sided, on the trials that one side alone has right. Questions"
    " about one picture aren't independent, so over questions it is too small: go by the interval,"
    " which resamples pictures. For all_right, caption.exact and R@1 from picture to caption, a"
    " trial a picture, it is as it says. R@1 from caption to picture has none: pictures with one"
    " caption are one query, and are resampled together. Holm's correction is for the number of"
    " families."
)
ABOUT_FIGURES = (
    f"Differences are B - A in percentage points. Intervals are at 95%, from {DEFAULT_RESAMPLES:,}"
    " resamples of the pictures, each for both sides alike. Exact match is a mean over families; it"
    " has no p of its own, since McNemar's test weighs every question alike. All right: every"
    " question about a picture. "
)
KINDS = {
    "lost": ("Lost", "A was right and B is wrong"),
    "still_wrong": ("Still wrong", "both are wrong, and say different things"),
    "gained": ("Gained", "A was wrong and B is right"),
}
WORDS = {
    "exact_match": "exact match",
    "exact_match_per_question": "every question alike",
    "all_right": "all of a picture right",
    "bleu4": "BLEU-4",
    "exact": "exact facts",
    "image_to_text_R@1": "R@1, picture to caption",
    "text_to_image_R@1": "R@1, caption to picture",
}


@dataclass(frozen=True, eq=False)
class Compared:
    """All that the page shows."""

    name_a: str
    name_b: str
    pairs: Sequence[Pair]
    only_in_a: int  # questions
    only_in_b: int
    figures: Sequence[Comparison]
    changes: Mapping[str, Changes]  # by head
    pictures: Mapping[int, Pixels]  # by scene; none where no test split is at hand

    @property
    def num_pictures(self) -> int:
        """How many pictures the pairs ask about."""
        return len({pair.b["scene_id"] for pair in self.pairs})


def build_page(compared: Compared, limit: int) -> str:
    """The comparison as HTML, with at most `limit` cards a head and a kind of change."""
    contents = {"figures": "Figures"} | {head.name: f"Changed: {head.name}" for head in HEADS}
    links = [element("a", words, href=f"#{anchor}") for anchor, words in contents.items()]
    sections = [_figures(compared), *(_changed(compared, head, limit) for head in HEADS)]
    a, b = (element("code", name) for name in (compared.name_a, compared.name_b))
    alone = (
        f": {len(compared.pairs):,} questions about {compared.num_pictures:,} pictures in both;"
        f" {compared.only_in_a:,} only in A and {compared.only_in_b:,} only in B, left out."
    )
    return Template(SKELETON).substitute(
        title=element("title", f"{TITLE}: {compared.name_a}, {compared.name_b}"),
        heading=element("h1", TITLE),
        lead=element("p", "A is ", a, ", B is ", b, alone, class_="lead"),
        contents=element("nav", *links, aria_label="contents"),
        sections="\n".join(sections),
    )


def forest(figures: Sequence[Comparison], color: str, reach: float, label: str) -> str:
    """Differences with their intervals in percentage points, one under another, beside 0.

    Args:
        figures: From top to bottom.
        color: Of the points.
        reach: How far the scale goes from 0 to either side.
        label: Says the chart to those who can't see it.
    """
    with matplotlib.rc_context(STYLE):
        drawn, axes = panel(height=0.9 + 0.36 * len(figures))
        rows = np.arange(len(figures))
        value, low, high = (
            100 * np.array(ends)
            for ends in zip(*((one.difference, *one.interval) for one in figures), strict=True)
        )
        whiskers = np.maximum(0, [value - low, high - value])
        axes.errorbar(
            value, rows, xerr=whiskers, color=color, marker="o", linestyle="none", capsize=3
        )
        axes.axvline(0, color=INK, linewidth=1)
        axes.locator_params(axis="x", nbins=6)  # few enough to stand apart under a single row
        axes.set_yticks(rows, [_words(one.name).replace("$", r"\$") for one in figures])
        axes.set(xlabel="B - A, points", xlim=(-reach, reach), ylim=(len(figures) - 0.5, -0.5))
        return svg(drawn, label)


def _figures(compared: Compared) -> Html:
    """The table of all figures, and a forest of their differences for each head."""
    ends = [abs(end) for one in compared.figures for end in (*one.interval, one.difference)]
    reach = 110 * max(ends, default=0.0) or 1.0
    groups: dict[str, list[Comparison]] = {}
    for one in compared.figures:
        groups.setdefault(one.name.partition(".")[0], []).append(one)
    panels = [
        figure(
            forest(ones, color, reach, f"differences between the two runs: {name}"),
            f"{name}: B - A with its 95% interval; left of the line B is worse, right of it better."
            " All panels have one scale.",
        )
        for (name, ones), color in zip(groups.items(), PALETTE, strict=False)
    ]
    header = ["figure", "A", "B", "B - A", "95% interval", "only A right", "only B right"]
    rows = [
        [
            _words(one.name, with_group=True),
            f"{one.a:.2%}",
            f"{one.b:.2%}",
            f"{100 * one.difference:+z.2f} points",
            f"{100 * one.interval.low:+z.2f} to {100 * one.interval.high:+z.2f}",
            *("—" if count is None else f"{count:,}" for count in (one.only_a, one.only_b)),
            *("—" if p is None else f"{p:.2g}" for p in (one.p, one.p_holm)),
        ]
        for one in compared.figures
    ]
    return section(
        "figures",
        "Figures",
        element("div", *panels, class_="charts"),
        table([*header, "p", "p, Holm"], rows, ABOUT_FIGURES + ABOUT_P),
    )


def _changed(compared: Compared, head: Head, limit: int) -> Html:
    """A head's questions that changed: what was lost first, and what B is surest of first."""
    found = compared.changes[head.name]
    parts = []
    if not compared.pictures:
        parts.append(paragraph("No pictures: no test split at hand asks these questions."))
    for kind, (title, meaning) in KINDS.items():
        pairs: list[Pair] = getattr(found, kind)
        count = f"{min(limit, len(pairs)):,} shown of {len(pairs):,}"
        parts.append(element("h3", f"{title}, {meaning}: {count}"))
        cards = [_card(pair, compared.pictures) for pair in pairs[:limit]]
        parts.append(element("div", *cards, class_="cards") if pairs else paragraph("None."))
    intro = f"{len(found):,} of {len(compared.pairs):,} answers of the {head.name} changed."
    return section(head.name, f"Changed: {head.name}", paragraph(intro), *parts)


def _card(pair: Pair, pictures: Mapping[int, Pixels]) -> Html:
    row = pair.b
    facts: list[tuple[str, object]] = [("truth", f"{row['answer']} · {row['phrase']}")]
    for head in HEADS:
        for side, said in zip("AB", pair, strict=True):
            sure = said.get(head.confidence)
            text = said[head.said] or "(nothing)"
            known = sure is not None and not math.isnan(sure)
            text += f" ({percent(sure)} sure)" if known else ""
            facts.append((f"{head.name}, {side}", verdict(text, head.right(said))))
    listed = joined(joined((element("dt", term), element("dd", what))) for term, what in facts)
    return element(
        "article",
        _picture(row["scene_id"], pictures),
        element(
            "div",
            element("small", f"{row['family']} · picture {row['scene_id']}"),
            element("h4", row["question"]),
            element("dl", listed),
        ),
    )


def _picture(scene: int, pictures: Mapping[int, Pixels]) -> Html:
    image = pictures.get(scene)
    if image is None:
        return Html("")
    scale = max(1, SIDE // max(image.shape[1:]))
    height, width = (scale * side for side in image.shape[1:])
    uri, name = picture_data_uri(image, scale), f"test picture {scene}"
    return Html(f'<img src="{uri}" alt="{name}" width="{width}" height="{height}">')


def _words(name: str, with_group: bool = False) -> str:
    """A figure's dotted name in words."""
    group, _, rest = name.partition(".")
    words = WORDS.get(rest, rest.removeprefix("by_family."))
    return f"{group}: {words}" if with_group else words
