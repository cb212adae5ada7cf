"""Both heads probed further: every question alike, fresh scenes, words in another order."""

from collections.abc import Iterable
from functools import partial

from vlm.reporting import interventions
from vlm.reporting.inputs import Figures, Inputs
from vlm.reporting.markup import (
    MISSING,
    Html,
    counted,
    element,
    number,
    paragraph,
    percent,
    percent_interval,
    section,
    table,
)
from vlm.reporting.results import (
    family_scores,
    family_table,
    headline,
    largest_floor,
    with_interval,
)
from vlm.reporting.verdicts import HEADS, Share, by_head, for_heads, share

MEASURES = ["measure", "value", "95% interval", "floor", "lift"]
FEW = 0.05  # of answers: what the interval of a share must lie below for "hardly any"
SCRAMBLED = "Each question's words are put in another order"
BAG = "A model that reads a question as a bag of words answers alike wherever its words stand."
# What the order of the words says, in the families where another order is another question.
ORDER_SAYS = {"compare": "of which shape there are more", "relation": "which shape is where"}


def every_question(inputs: Inputs) -> Html:
    """Shares of all questions, on the test split and, where there are any, on fresh scenes."""
    figures = inputs.metrics["evaluate"]
    fresh = figures.get("fresh")
    name, floor = largest_floor(figures["floors"], "_per_question")
    rows = [
        headline(f"{head}, test split", figures[head], "exact_match_per_question", floor, name)
        for head in HEADS
    ]
    if fresh:
        name, floor = largest_floor(fresh)
        rows += [
            headline(f"{head}, fresh scenes", fresh[head], "exact_match", floor, name)
            for head in HEADS
        ]
    note = (
        "Share of all questions answered exactly right, every question weighing the same; the"
        " floors are learned for that. The test split has"
        f" {number(figures['questions'])} questions on {number(figures['pictures'])} pictures"
    )
    shares = table(MEASURES, rows, note)
    return section("every-question", "Every question alike", shares, *_fresh(fresh or {}))


def reads(inputs: Inputs) -> Html:
    """Does it read the question?"""
    probed = inputs.metrics["evaluate"].get("word_order") or {}
    return section(
        "reads",
        "Does it read the question?",
        *interventions.probe(inputs, "shuffled_questions"),
        *interventions.probe(inputs, "swapped_words"),
        element("h3", "Scrambled words"),
        *(_scrambled(inputs, probed) if probed else [paragraph(f"{SCRAMBLED}: {MISSING}.")]),
    )


def _scrambled(inputs: Inputs, probed: Figures) -> list[Html]:
    """What becomes of the answers when the question's words change places."""
    figures = inputs.metrics["evaluate"]
    encoders, families = _encoders(probed), probed["classifier"].get("changed_by_family", {})
    header = ["family", *(f"distance{of}" for of in encoders.values())]
    header += [words for head in HEADS for words in (f"changed, {head}", "95% interval")]
    rows: list[list[object]] = [
        [
            family,
            *(_distance(probed[head], "distance_by_family", family) for head in encoders),
            *(cell for head in HEADS for cell in _changed(probed[head], family)),
        ]
        for family in families
    ]
    overall = [cell for head in HEADS for cell in with_interval(probed[head], "changed")]
    distances = [_distance(probed[head], "distance") for head in encoders]
    rows.append(["all", *distances, *overall])
    scales = " and ".join(
        f"{number(probed[head].get('distance_between_questions'))}{of}"
        for head, of in encoders.items()
    )
    note = (
        f"The {number(probed.get('distinct_questions'))} distinct questions, scrambled in"
        f" {number(probed.get('orders'))} ways in all, asked about"
        f" {number(probed.get('pictures'))} test pictures"
        f" ({number(probed.get('questions'))} questions). Distance: 1 - cosine between the text"
        " encoder's vectors of a question and of its scrambled selves, a mean over distinct"
        f" questions with its 95% interval; between two different questions it is {scales} on"
        " average."
        " Changed: the share of answers that become others, in the last row the mean over families."
        " A bag of words has 0 of both"
    )
    name, floor = largest_floor(figures["floors"])
    accuracy = [
        headline(f"{head}, {words}", source[head], "exact_match", floor, name)
        for head in HEADS
        for words, source in (("as asked", figures), ("scrambled", probed))
    ]
    # What own questions ask, and whether by the order of their words, nobody here knows.
    means = [words_alone(families), order_tells(figures, families), scrambled_words(probed)]
    told = [f"{SCRAMBLED} at random.", BAG, *(means if inputs.is_drawn else [])]
    return [
        paragraph(" ".join(filter(None, told))),
        table(header, rows, note),
        table(MEASURES, accuracy, "Exact match with the true answer to the question as asked"),
    ]


def words_alone(families: Iterable[str]) -> str:
    """Where the words of a question, in any order, tell what is asked."""
    telling = [family for family in ORDER_SAYS if family in families]
    where = f"In every family but {' and '.join(telling)} the" if telling else "The"
    return (
        f"{where} words alone tell what is asked, so an answer that changes is an error, brought"
        " about by order alone."
    )


def order_tells(figures: Figures, families: Iterable[str]) -> str:
    """What order means where it counts; how seldom it turns the truth, if that was measured."""
    says = [f"in {family} {what}" for family, what in ORDER_SAYS.items() if family in families]
    if not says:
        return ""
    words = (
        f"The order says {' and '.join(says)}, so there an answer may have to change. Few of these"
        " orders are questions, so what shows here is whether order acts on the answer, and not"
        " whether it is read rightly."
    )
    swapped = (figures.get("probes") or {}).get("swapped_words") or {}
    changed, asked = swapped.get("changed_truths"), swapped.get("questions")
    if changed is None or not asked:
        return words
    of = f"{percent(changed / asked)} of {counted(asked, 'question')}"
    return f"{words} Exchanging the two nouns, above, changes the truth of {of} only."


def scrambled_words(probed: Figures) -> str:
    """What the shares of changed answers show, in families where order tells and where not."""
    changed = {
        head: {
            family: found
            for family in probed[head].get("changed_by_family", {})
            if (found := share(probed[head], "changed_by_family", family))
        }
        for head in HEADS
    }
    families = {family for own in changed.values() for family in own}
    groups = [
        (families - ORDER_SAYS.keys(), _kept),
        *(({family}, partial(_turned, family)) for family in ORDER_SAYS),
    ]
    told = []
    for members, rule in groups:
        own = {
            h: [each for f, each in found.items() if f in members] for h, found in changed.items()
        }
        known = {head: found for head, found in own.items() if found}
        if known:
            clauses = for_heads({head: rule(own) for head, own in known.items()})
            told.append(f"{clauses}: {by_head({h: _ends(own) for h, own in known.items()})}.")
    return " ".join(told)


def _kept(changed: list[Share]) -> str:
    """Of families where order can't matter."""
    if all(one.high < FEW for one in changed):
        return "hardly any answer changes where order can't matter"
    if any(one.low > FEW for one in changed):
        return "answers change even where order can't matter, by an order it never saw"
    return "whether answers change where order can't matter stays open"


def _turned(family: str, changed: list[Share]) -> str:
    """Of a family where order tells."""
    if all(one.low > FEW for one in changed):
        return f"answers change in {family}, where order counts"
    if all(one.high < FEW for one in changed):
        return f"hardly any answer changes in {family}, where order counts"
    return f"whether answers change in {family}, where order counts, stays open"


def _ends(changed: list[Share]) -> str:
    """The least and the most that changes in any of the families."""
    least, most = (percent(end(one.value for one in changed)) for end in (min, max))
    return most if least == most else f"{least.removesuffix('%')} to {most}"


def _fresh(fresh: Figures) -> list[Html]:
    """The fresh scenes by family, and whether any of their pictures were seen in training."""
    if not fresh:
        return []
    shared = fresh.get("pictures_also_in_train")
    words = (
        f"{number(fresh.get('scenes'))} fresh scenes with {number(fresh.get('questions'))}"
        " questions were drawn for this measurement alone, from random streams that no split uses."
        f" Of their pictures {number(shared)} equal a training picture, pixel for pixel."
    )
    caption = "Exact match on fresh scenes by question family, beside its floors"
    floors = fresh.get("floors_by_family", {})
    return [paragraph(words), family_table(family_scores(fresh), floors, caption)]


def _encoders(probed: Figures) -> dict[str, str]:
    """The heads whose text encoders are shown, with words to tell them apart where they differ."""
    one, other = (probed[head].get("distance_by_family") for head in HEADS)
    return {HEADS[0]: ""} if one == other else {head: f", {head}" for head in HEADS}


def _distance(figures: Figures, key: str, family: str | None = None) -> str:
    found = [figures.get(key + end) for end in ("", "_low", "_high")]
    value, low, high = found if family is None else [(one or {}).get(family) for one in found]
    return f"{number(value)} ({number(low)} to {number(high)})"


def _changed(figures: Figures, family: str) -> tuple[str, str]:
    value, low, high = (
        figures.get(f"changed_by_family{end}", {}).get(family) for end in ("", "_low", "_high")
    )
    return percent(value), percent_interval(low, high)
