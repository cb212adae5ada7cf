"""Scenes unlike training: shapes where none stood, and more objects than any picture had."""

from vlm.reporting.inputs import Figures, Inputs
from vlm.reporting.markup import (
    MISSING,
    Html,
    counted,
    details,
    element,
    listed,
    paragraph,
    percent,
    percent_interval,
    section,
    table,
)
from vlm.reporting.results import family_scores, family_table, headline, largest_floor
from vlm.reporting.verdicts import HEADS, Share, by_head, compare, for_heads, grade, share

KINDS = {
    "combination": (
        "A shape in a cell where train never has it",
        "Each picture has a shape in a cell of the picture where no training picture has that"
        " shape, though both are known.",
    ),
    "crowd": (
        "More objects than any training picture",
        "Each picture has more objects than any picture of the training split.",
    ),
}


def unlike(inputs: Inputs) -> Html:
    """Scenes unlike training."""
    figures = inputs.metrics["evaluate"]
    found = figures.get("ood") or {}
    title = "Scenes unlike training"
    kinds = [kind for kind in KINDS if kind in found]
    if not kinds:
        words = f"Accuracy on scenes of kinds that training never had: {MISSING} in this run."
        return section("unlike", title, paragraph(words))
    rows = []
    for kind in kinds:
        name, floor = largest_floor(found[kind]["floors"])
        words = KINDS[kind][0]
        for head in HEADS:
            own = found[kind].get(head, {})
            rows.append(headline(f"{words} ({head})", own, "exact_match", floor, name))
    asked = counted(found.get("questions", 0), "question")
    note = (
        f"{counted(found.get('pictures', 0), 'picture')} with {asked}, all unlike training."
        " Families weigh the same; floors are learned on train"
    )
    parts = [part for kind in kinds for part in _kind(kind, found, inputs)]
    header = ["scenes", "value", "95% interval", "floor", "lift"]
    return section("unlike", title, table(header, rows, note), *parts)


def _kind(kind: str, found: Figures, inputs: Inputs) -> list[Html]:
    words, done = KINDS[kind]
    told = f"{done} {conclusion(found[kind], inputs.metrics['evaluate'])}"
    if kind == "crowd":
        told += unanswerable(found, inputs.metrics["generate"])
    caption = f"{words}: exact match by question family, beside its floors"
    floors = found[kind]["floors"].get("by_family", {})
    parts = [
        element("h3", words),
        paragraph(told),
        details("By family", family_table(family_scores(found[kind]), floors, caption)),
    ]
    return [*parts, *_cells(found)] if kind == "combination" else parts


def conclusion(unlike: Figures, figures: Figures) -> str:
    """How the heads do on such scenes beside those of the test split."""
    _, floor = largest_floor(unlike["floors"])
    pairs = {
        head: (own, usual)
        for head in HEADS
        if (own := share(unlike.get(head, {}), "exact_match"))
        and (usual := share(figures.get(head, {}), "exact_match"))
    }
    if not pairs:
        return f"Accuracy on them: {MISSING}."
    clauses = {head: _beside(own, usual, floor or 0.0) for head, (own, usual) in pairs.items()}
    values = by_head(
        {
            head: f"{percent(own.value)} beside {percent(usual.value)}"
            for head, (own, usual) in pairs.items()
        }
    )
    return f"{for_heads(clauses)}: {values}."


def _beside(own: Share, usual: Share, floor: float) -> str:
    words = {
        1: "they are easier than those of the test split",
        0: "no drop shows from the test split",
        -1: "accuracy falls from that of the test split",
    }[compare(own, usual)]
    above = grade(own, floor) > 1
    return words + ("" if above else ", and isn't above the floor")


def unanswerable(found: Figures, generated: Figures) -> str:
    """Answers that training never had, and the families that have them.

    Args:
        found: What was measured on such scenes.
        generated: The metrics of `generate`, which know the answers of each split by family.
    """
    share_outside = found.get("answers_outside_vocabulary", 0.0)
    if not share_outside:
        return ""
    told = (
        f" {percent(share_outside)} of all questions of this section have an answer that no"
        " training question has, a number too large. The classifier has no output for it, and no"
        " training phrase says it: this is known beforehand, and not a failure of sight."
    )
    own, train = (generated.get(split, {}).get("answers", {}) for split in ("test_ood", "train"))
    known = {answer for answers in train.values() for answer in answers}
    outside = [family for family, answers in own.items() if set(answers) - known]
    if not outside:
        return told
    told += f" Such answers occur in {listed(outside)}"
    rights = [found["crowd"].get(head, {}).get("by_family", {}) for head in HEADS]
    lost = [name for name in outside if all(own.get(name) == 0 for own in rights)]
    where = "there" if lost == outside else f"in {listed(lost)}"
    return told + (f", so nothing {where} is right." if lost else ".")


def _cells(found: Figures) -> list[Html]:
    """Each held-out combination, beside another shape in the same cell in the test split."""
    own, usual = found.get("by_cell") or {}, found.get("by_cell_in_test") or {}
    names = list(own.get(HEADS[0], {}))
    if not names:
        return []
    header = ["combination"]
    for head in HEADS:
        header += [head, "95% interval", "same cell in test", "95% interval"]
    rows: list[list[object]] = []
    for name in names:
        shape, _, cell = name.partition("@")
        row: list[object] = [f"{shape}, {cell}"]
        for head in HEADS:
            for figures in (own, usual):
                one = share(figures, head, name)
                row += [percent(one and one.value), percent_interval(*(one or (None,) * 3)[1:])]
        rows.append(row)
    note = (
        "Each combination beside pictures of the test split with another shape in that cell, as"
        " training has had them. Every question weighs the same"
    )
    clauses = {head: _falls(own, usual, head, names) for head in HEADS}
    return [paragraph(f"Cell by cell: {_lower(for_heads(clauses))}."), table(header, rows, note)]


def _falls(own: Figures, usual: Figures, head: str, names: list[str]) -> str:
    pairs = [(name, share(own, head, name), share(usual, head, name)) for name in names]
    worse = [
        name.replace("@", " at the ")
        for name, one, other in pairs
        if one and other and compare(one, other) < 0
    ]
    if worse:
        return f"accuracy falls for {listed(worse)}"
    return "no combination does clearly worse than another shape in its cell"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
