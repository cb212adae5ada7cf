"""Where the errors are: whole pictures, numbers of objects, and how far counting is off."""

from collections.abc import Mapping

from vlm.reporting import charts
from vlm.reporting.charts import Scores
from vlm.reporting.inputs import Figures, Inputs
from vlm.reporting.markup import (
    MISSING,
    Html,
    counted,
    element,
    figure,
    paragraph,
    percent,
    percent_interval,
    section,
    table,
)
from vlm.reporting.results import FLOORS, largest_floor, with_interval
from vlm.reporting.verdicts import HEADS, Share, by_head, compare, for_heads, share

NO_ERROR = "+0"


def where_errors_are(inputs: Inputs) -> Html:
    """Where are the errors?"""
    figures = inputs.metrics["evaluate"]
    parts = {"All questions of a picture": whole_pictures(figures.get("whole_pictures") or {})}
    if inputs.is_drawn:
        parts |= {
            "By number of objects": by_objects(figures.get("by_objects") or {}),
            "Counting": counting(figures.get("counting") or {}),
        }
    return section(
        "errors",
        "Where are the errors?",
        *(one for title, found in parts.items() for one in (element("h3", title), *found)),
    )


def whole_pictures(figures: Figures) -> list[Html]:
    """Whether errors keep to few pictures."""
    done = "A picture counts as right only if all of its questions are."
    own = {head: found for head in HEADS if (found := share(figures.get(head, {}), "all_right"))}
    if not own:
        return [paragraph(f"{done} In this run: {MISSING}.")]
    clauses = {head: _spread(found, figures[head]["if_independent"]) for head, found in own.items()}
    name, floor = largest_floor(figures, "_floor")
    values = by_head({head: percent(found.value) for head, found in own.items()})
    rows = [
        [head, *with_interval(figures[head], "all_right"), percent(figures[head]["if_independent"])]
        for head in own
    ]
    return [
        paragraph(f"{done} That holds of {values}. {for_heads(clauses)}."),
        table(
            ["head", "all right", "95% interval", "if errors fell by chance"],
            [*rows, [f"guessing ({name})", percent(floor), "—", "—"]],
            "Pictures all of whose questions are right. By chance: what the accuracies of the"
            " families would give if errors fell on pictures independently",
        ),
    ]


def _spread(own: Share, by_chance: float) -> str:
    if own.value in (0.0, 1.0):
        return "there are no errors" if own.value else "no picture is all right"
    if own.low > by_chance:
        return "that is more than if errors fell by chance, so they keep to few pictures"
    if own.high < by_chance:
        return "that is less than if errors fell by chance, so they spread over many pictures"
    return "errors lie as chance would spread them over the pictures, as far as this can tell"


def by_objects(figures: Figures) -> list[Html]:
    """Accuracy against the number of objects in the picture."""
    done = "Questions are sorted by how many objects their picture has."
    numbers = {
        head: [*found] for head in HEADS if (found := figures.get(head, {}).get("by_number"))
    }
    if not numbers:
        return [paragraph(f"{done} In this run: {MISSING}.")]
    names = sorted({name for own in numbers.values() for name in own}, key=int)
    floors = {name: _largest(figures, name) for name in names}
    scores = {
        head: Scores(*(figures[head].get(f"by_number{end}", {}) for end in ("", "_low", "_high")))
        for head in numbers
    }
    clauses = {head: _trend(figures[head], names[0], names[-1]) for head in numbers}
    shown = charts.shares_by_row(
        {head: _named(one) for head, one in scores.items()},
        {_objects(name): floor for name, floor in floors.items()},
        "accuracy by number of objects",
        "right, %",
    )
    rows = [
        [
            name,
            *(cell for one in scores.values() for cell in _cells(one, name)),
            percent(floors[name]),
        ]
        for name in names
    ]
    header = ["objects", *(h for head in scores for h in (head, "95% interval")), "floor"]
    found = table(header, rows, "Every question weighs the same; the floor is the largest of three")
    chart = figure(shown, "Right answers by the number of objects; the upright bar is the floor.")
    return [paragraph(f"{done} {for_heads(clauses)}."), chart, found]


def _objects(name: str) -> str:
    return counted(int(name), "object")


def _named(scores: Scores) -> Scores:
    ends = (scores.value, scores.low, scores.high)
    return Scores(*({_objects(name): value for name, value in end.items()} for end in ends))


def _cells(scores: Scores, name: str) -> tuple[str, str]:
    ends = percent_interval(scores.low.get(name), scores.high.get(name))
    return percent(scores.value.get(name)), ends


def _largest(figures: Figures, name: str) -> float:
    guesses: list[Mapping[str, float]] = [figures.get(f"{floor}_floor", {}) for floor in FLOORS]
    return max(guess.get(name, 0.0) for guess in guesses)


def _trend(figures: Figures, fewest: str, most: str) -> str:
    few, many = (share(figures, "by_number", name) for name in (fewest, most))
    if fewest == most or few is None or many is None:
        return "there is nothing to compare"
    values = f" ({percent(few.value)} with {_objects(fewest)},"
    values += f" {percent(many.value)} with {_objects(most)})"
    words = {
        1: "pictures with more objects are harder",
        -1: "pictures with more objects are easier",
        0: "no difference shows between the fewest objects and the most",
    }
    return words[compare(few, many)] + values


def counting(figures: Figures) -> list[Html]:
    """How far counts are off."""
    done = "A count that is said minus the true one is the size of its error."
    own = {head: found for head in HEADS if (found := figures.get(head, {}).get("errors"))}
    if not own:
        return [paragraph(f"{done} In this run: {MISSING}.")]
    clauses = {head: _misses(errors) for head, errors in own.items()}
    floor = percent(figures.get("within_one_floor"))
    asked = counted(figures.get("questions", 0), "counting question")
    wrong = {size for errors in own.values() for size in errors} - {NO_ERROR}
    sizes = sorted(wrong, key=_size)
    rows = [
        [
            head,
            *(percent(errors.get(size, 0.0)) for size in (NO_ERROR, *sizes)),
            *with_interval(figures[head], "within_one"),
            floor,
        ]
        for head, errors in own.items()
    ]
    header = ["head", "right", *sizes, "within one", "95% interval", "floor"]
    note = (
        "Share of counts by size of error. Within one: right or off by one; its floor is what"
        " always saying the same number scores at best"
    )
    parts = [table(header, rows, note)]
    if wrong:
        drawn = charts.error_sizes(own, sizes, "errors of counting by size")
        parts.append(figure(drawn, "Wrong counts by size of error: said minus true."))
    return [
        paragraph(f"{done} {for_heads(clauses)} ({asked})."),
        element("div", *parts, class_="charts"),
    ]


def _misses(errors: Mapping[str, float]) -> str:
    wrong = {size: part for size, part in errors.items() if size != NO_ERROR and part}
    if not wrong:
        return "every count is right"
    most = max(wrong, key=lambda size: wrong[size])
    total = sum(wrong.values())
    return f"{percent(total)} of counts are wrong, most often by {most} ({percent(wrong[most])})"


def _size(name: str) -> tuple[bool, int]:
    """By size; what is no number comes last."""
    number = name.removeprefix("+").removeprefix("-")
    return (False, int(name)) if number.isdigit() else (True, 0)
