"""The probes that change the picture or the question: whether the answers follow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vlm.reporting import charts
from vlm.reporting.cards import change_card
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
    listed,
    paragraph,
    percent,
    percent_interval,
    points,
    section,
    table,
)
from vlm.reporting.results import with_interval
from vlm.reporting.verdicts import (
    HEADS,
    NEARLY_ALWAYS,
    Grade,
    Share,
    by_head,
    for_heads,
    grade,
    share,
)

EXAMPLES = 3  # of each probe
GUESS = "the best guess from the question's words"
INTRO = (
    "Something is changed, and what is then true is worked out from the scene anew. Where the truth"
    " changes, an answer has to follow; where it stays, so must the answer. Guessing means the best"
    " guess from the question's words, learned on the training split: no"
    " more is to be had without looking at the picture."
)


@dataclass(frozen=True)
class Probe:
    """One change, in the page's words.

    Attributes:
        title: Its heading.
        done: A sentence on what was done.
        changed: What was changed.
        shows: What it means for an answer if it follows.
        after: What a picture shows afterwards.
    """

    title: str
    done: str
    changed: str
    shows: str
    after: str


PROBES = {
    "shuffled_pictures": Probe(
        "Shuffled pictures",
        "Each picture's questions are asked about another picture of the test split.",
        "the picture",
        "it comes from the picture that is shown",
        "another test picture, shown in its place",
    ),
    "erased_object": Probe(
        "One object erased",
        "One object of each picture is gone, and the noise is drawn as before.",
        "the object",
        "it comes from the objects that are there",
        "the same picture with one object gone",
    ),
    "moved_object": Probe(
        "One object moved",
        "One object of each picture is moved, and only where things are is asked about.",
        "its place",
        "it comes from where the objects are",
        "the same picture with one object moved",
    ),
    "erased_background": Probe(
        "Background erased",
        "Every pixel that belongs to no object is made black, so no truth changes.",
        "the background",
        "it comes from the background",
        "the same picture with black around the objects",
    ),
    "shuffled_questions": Probe(
        "Shuffled questions",
        "Each picture is asked questions that were meant for other pictures.",
        "the question",
        "it belongs to the question that is asked",
        "another test picture",
    ),
    "swapped_words": Probe(
        "Swapped words",
        "The same words in another order that is a question too: is there a plus left of a circle,"
        " in place of a circle left of a plus.",
        "the order of the words",
        "it hangs on the order of the words",
        "another test picture",
    ),
}
LOOKS = ("shuffled_pictures", "erased_object", "moved_object", "erased_background")
FOLLOWS = {
    Grade.SURE: "the answer follows the change nearly always, so {shows}",
    Grade.ABOVE: "the answer follows the change more often than guesses do, so in part {shows}",
    Grade.LIKE: "the answer follows no more often than guesses would, as far as this can tell:"
    " no sign that {shows}",
    Grade.BELOW: "the answer follows less often than guesses would: no sign that {shows}",
}


def looks(inputs: Inputs) -> Html:
    """Does it look at the picture?"""
    figures = inputs.metrics["evaluate"].get("probes") or {}
    return section(
        "looks",
        "Does it look at the picture?",
        paragraph(INTRO),
        chart(figures),
        *(part for name in LOOKS for part in probe(inputs, name)),
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
        _table(figures, told.title, same=name in LOOKS),
        *_by_family(figures, told.title),
        cards(change_card(row, told.after) for row in examples(inputs.examples, name)),
    ]


def conclusion(name: str, figures: Figures) -> str:
    """What the figures of a change show, by the rules of `verdicts`."""
    if "follows_floor" not in figures:
        return _steady(figures, PROBES[name].changed)
    floor = figures["follows_floor"]
    own = {head: found for head in HEADS if (found := share(figures.get(head, {}), "follows"))}
    if not own:
        return f"What follows it: {MISSING}."
    clauses = {
        head: FOLLOWS[grade(found, floor)].format(shows=PROBES[name].shows)
        for head, found in own.items()
    }
    of = counted(figures.get("changed_truths", 0), "question")
    values = by_head({head: percent(found.value) for head, found in own.items()})
    told = (
        f"{for_heads(clauses)}. It is right in {values} of the {of} whose truth changed; {GUESS} is"
        f" right in {percent(floor)}."
    )
    easy = [
        family
        for family, guessed in figures.get("follows_floor_by_family", {}).items()
        if guessed > NEARLY_ALWAYS
    ]
    if easy:
        told += f" In {listed(easy)} guesses do so well that following there shows little."
    return told


def _steady(figures: Figures, changed: str) -> str:
    """Where no truth changed: whether answers stayed what they were."""
    own = {head: found for head in HEADS if (found := share(figures.get(head, {}), "same_reply"))}
    if not own:
        return f"No truth changed; whether the answers did: {MISSING}."
    clauses = {head: _stays(found, changed) for head, found in own.items()}
    of = counted(figures.get("questions", 0), "question")
    values = by_head({head: percent(found.value) for head, found in own.items()})
    right = by_head({head: percent(figures[head].get("holds")) for head in own})
    return f"{for_heads(clauses)}. It is the same in {values} of {of}, and right in {right}."


def _stays(same: Share, changed: str) -> str:
    if same.low > NEARLY_ALWAYS:
        return f"the answer stays what it was nearly always, so {changed} hardly matters"
    if same.high < NEARLY_ALWAYS:
        return f"the answer changes more than one time in ten, so {changed} matters"
    return f"the answer stays about nine times in ten: whether {changed} matters stays open"


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


def _table(figures: Figures, title: str, *, same: bool) -> Html:
    """What both heads do; with `same`, how often they say what they said before."""
    header, parts = ["head"], []
    if "follows_floor" in figures:
        header += ["follows", "95% interval", "guessing", "lift", "right before and after"]
        parts.append("follows")
    if "holds_floor" in figures:
        header += ["stays right", "95% interval", "guessing"]
        parts.append("holds")
    header += ["same answer", "95% interval"] if same else []
    rows: list[list[object]] = []
    for head in HEADS:
        own: Mapping[str, float] = figures.get(head, {})
        row: list[object] = [head]
        for key in parts:
            floor = figures[f"{key}_floor"]
            row += [*with_interval(own, key), percent(floor)]
            if key == "follows":
                row += [points(own.get(key), floor), percent(own.get("both_right"))]
        rows.append([*row, *(with_interval(own, "same_reply") if same else ())])
    asked = counted(figures.get("questions", 0), "question")
    caption = f"{title}: {asked} about {counted(figures.get('pictures', 0), 'picture')}."
    if "follows_floor" in figures:
        changed = figures.get("changed_truths", 0)
        caption += f" Follows: right where the truth changed ({changed:,}). Stays right: where not"
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
