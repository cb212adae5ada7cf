"""The answers when every question meets another picture, which any data allows to ask."""

from vlm.reporting.inputs import Inputs
from vlm.reporting.markup import Html, element, number, paragraph, table
from vlm.reporting.results import headline, largest_floor, with_interval
from vlm.reporting.verdicts import HEADS

DONE = (
    "Each question is asked about another picture, and judged by its own picture's answer. Who"
    " looks falls to what can be guessed without a picture; who doesn't look keeps the score, and"
    " the replies."
)


def another_picture(inputs: Inputs) -> list[Html]:
    """Accuracy with the right picture and with another, and the replies that stay."""
    figures = inputs.metrics["evaluate"]
    probed = figures.get("another_picture")
    if not probed:
        return []
    name, floor = largest_floor(figures["floors"])
    header = ["exact match", "value", "95% interval", "floor", "lift"]
    header += ["same reply", "95% interval"]
    rows: list[list[object]] = []
    for head in HEADS:
        rows += [
            [*headline(f"{head}, its own", figures[head], "exact_match", floor, name), "", ""],
            [
                *headline(f"{head}, another", probed[head], "exact_match", floor, name),
                *with_interval(probed[head], "same_reply"),
            ],
        ]
    caption = (
        f"{number(probed['questions'])} questions on {number(probed['pictures'])} pictures; exact"
        " match is the mean over families, same reply the share of all questions"
    )
    return [
        element("h3", "With another picture"),
        paragraph(DONE),
        table(header, rows, caption),
    ]
