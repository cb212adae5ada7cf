"""The probes that change the picture or the question: whether the answers follow."""

from collections.abc import Mapping, Sequence

from vlm.reporting import charts
from vlm.reporting.another_picture import another_picture
from vlm.reporting.cards import change_card
from vlm.reporting.changes import LOOKS, PROBES, conclusion
from vlm.reporting.charts import Scores
from vlm.reporting.inputs import Figures, Inputs, Row
from vlm.reporting.markup import (
    MISSING,
    Html,
    cards,
    counted,
    details,
    element,
    figure,
    paragraph,
    percent,
    percent_interval,
    points,
    section,
    table,
)
from vlm.reporting.results import with_interval
from vlm.reporting.verdicts import HEADS, Share, share

EXAMPLES = 3  # of each probe
INTRO = (
    "Something is changed, and what is then true is worked out from the scene anew. Where the truth"
    " changes, an answer has to follow; where it stays, so must the answer. Who ignores the change"
    " keeps the reply, and so is never right both before and after it where the truth changes."
    " Guessing is the better of two guessers who see no picture: one has learned on the training"
    " split; the other on the validation split with the same change made to it, and so knows how"
    " answers change, for one that erasing turns yes into no."
)


def looks(inputs: Inputs) -> Html:
    """Does it look at the picture?"""
    found = inputs.metrics["evaluate"]
    figures, title = found.get("probes"), "Does it look at the picture?"
    swapped = another_picture(inputs)
    if not inputs.is_drawn:  # nobody knows what a change of such a picture makes true
        return section("looks", title, *swapped)
    return section(
        "looks",
        title,
        paragraph(INTRO),
        chart(figures or {}),
        *(part for name in LOOKS for part in probe(inputs, name)),
        *swapped,
    )


def chart(probes: Figures) -> Html:
    """What follows each change, for both heads, beside guessing."""
    floors: dict[str, float] = {}
    shown: dict[str, dict[str, Share]] = {head: {} for head in HEADS}
    for name in [one for one in PROBES if one in probes]:
        figures = probes[name]
        key = "follows" if "follows_floor" in figures else "holds"
        row = PROBES[name].title
        floors[row] = figures.get(f"{key}_floor", 0.0)
        for head in HEADS:
            if found := share(figures.get(head, {}), key):
                shown[head][row] = found
    if not floors:
        return paragraph(f"Changes of picture and question: {MISSING}.")
    heads = {
        head: Scores(*({row: one[end] for row, one in own.items()} for end in range(3)))
        for head, own in shown.items()
    }
    drawn = charts.shares_by_row(heads, floors, "right answers after each change", "right, %")
    return figure(
        drawn,
        "Right answers where a change makes another answer true, and for an erased background right"
        " answers after it. Points are the heads, whiskers their 95% intervals (bootstrap over"
        " pictures), and the upright bar is guessing.",
    )


def probe(inputs: Inputs, name: str) -> list[Html]:
    """One probe: what was done, what its figures show, the figures, and examples."""
    told = PROBES[name]
    figures = (inputs.metrics["evaluate"].get("probes") or {}).get(name)
    title = element("h3", told.title)
    if not figures:
        return [title, paragraph(f"{told.done} In this run: {MISSING}.")]
    return [
        title,
        paragraph(f"{told.done} {conclusion(name, figures)}"),
        _table(figures, told.title),
        *_by_family(figures, told.title),
        cards(change_card(row, told.after) for row in examples(inputs.examples, name)),
    ]


def examples(rows: Sequence[Row], name: str) -> list[Row]:
    """A few of a probe's examples: a failure where there is any, then other questions first."""
    own = [row for row in rows if row["probe"] == name]
    wrong = [row for row in own if not _all_right(row)]
    seen: dict[str, Row] = {}
    for row in own:
        if _all_right(row):
            seen.setdefault(row["question_after"], row)
    return [*wrong[:1], *seen.values(), *wrong[1:]][:EXAMPLES]


def _all_right(row: Row) -> bool:
    return (
        row["classifier_after"] == row["truth_after"]
        and row["generator_after"] == row["phrase_after"]
    )


def _table(figures: Figures, title: str) -> Html:
    """What both heads do, and how often they say what they said before."""
    header, parts = ["head"], []
    if "follows_floor" in figures:
        header += ["right before and after", "95% interval"]
        header += ["follows", "95% interval", "guessing", "lift"]
        parts.append("follows")
    if "holds_floor" in figures:
        header += ["stays right", "95% interval", "guessing"]
        parts.append("holds")
    # Beside what follows there is no room for one more interval.
    last = 1 if "follows" in parts else 2
    header += ["same answer", "95% interval"][:last]
    rows: list[list[object]] = []
    for head in HEADS:
        own: Mapping[str, float] = figures.get(head, {})
        row: list[object] = [head]
        for key in parts:
            floor = figures[f"{key}_floor"]
            row += with_interval(own, "both_right") if key == "follows" else ()
            row += [*with_interval(own, key), percent(floor)]
            row += [points(own.get(key), floor)] if key == "follows" else []
        rows.append([*row, *with_interval(own, "same_reply")[:last]])
    asked = counted(figures.get("questions", 0), "question")
    caption = f"{title}: {asked} about {counted(figures.get('pictures', 0), 'picture')}."
    if "follows_floor" in figures:
        changed = figures.get("changed_truths", 0)
        caption += f" Right before and after: where the truth changed ({changed:,}), for which who"
        caption += (
            " ignores the change has 0. Follows: right after it there. Stays right: elsewhere"
        )
    return table(header, rows, caption.removesuffix("."))


def _by_family(figures: Figures, title: str) -> list[Html]:
    """Who follows in which family, to be opened; nothing where only one is asked."""
    floors: Mapping[str, float] = figures.get("follows_floor_by_family", {})
    if len(floors) < 2:
        return []
    rows: list[list[object]] = []
    for family, floor in floors.items():
        row: list[object] = [family]
        for head in HEADS:
            found = share(figures.get(head, {}), "follows_by_family", family)
            value, low, high = found or (None, None, None)
            row += [percent(value), percent_interval(low, high)]
        rows.append([*row, percent(floor)])
    header = ["family", *(h for head in HEADS for h in (head, "95% interval")), "guessing"]
    caption = "Right where the truth changed, by question family"
    return [details(f"{title}, by family", table(header, rows, caption))]
