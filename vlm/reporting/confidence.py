"""Does it know when it is wrong? Confidence against accuracy, before and after a temperature."""

from vlm.reporting import charts
from vlm.reporting.inputs import Figures, Inputs
from vlm.reporting.markup import MISSING, Html, element, figure, number, paragraph, section, table
from vlm.reporting.verdicts import HEADS, Share, by_head, for_heads, share

DONE = (
    "A head that is 80% sure should be right in 80 of 100 cases. The expected calibration error"
    " (ECE) is how far confidence and accuracy lie apart, bin by bin. One number, the temperature,"
    " is fitted on the validation split and divides the logits: above 1 it makes a head less sure,"
    " below 1 surer."
)
ERRORS = {"as it is": "ece", "with temperature": "ece_calibrated"}


def knows(inputs: Inputs) -> Html:
    """Does it know when it is wrong?"""
    title = "Does it know when it is wrong?"
    figures = inputs.metrics["evaluate"].get("calibration") or {}
    heads = [head for head in HEADS if head in figures]
    if not heads:
        return section("calibration", title, paragraph(f"{DONE} In this run: {MISSING}."))
    panels = []
    for head in heads:
        curves = {name: inputs.reliability[f"{head}_{name}"] for name in ("before", "after")}
        label = f"confidence against accuracy of the {head}"
        words = f"{head}: accuracy against confidence, before and after the temperature."
        words += " Larger points hold more questions (by the power of ten); small ones stray."
        panels.append(figure(charts.reliability(curves, label), words))
    rows = [
        [
            f"{head}, {words}",
            *_error(figures[head], key),
            number(figures[head].get("temperature")) if key != "ece" else "1",
            _fine(figures[head].get(f"mean_confidence{key.removeprefix('ece')}")),
        ]
        for head in heads
        for words, key in ERRORS.items()
    ]
    header = ["head", "ECE", "95% interval", "ECE if calibrated"]
    header += ["97.5% of calibrated ones stay below", "temperature", "mean confidence"]
    note = (
        "ECE over 15 bins. If calibrated: what answers would score that are right exactly as often"
        " as they are sure, as many as these, on average; and what 97.5% of such stay below: only"
        " an ECE above that tells of bad calibration"
    )
    return section(
        "calibration",
        title,
        paragraph(f"{DONE} {conclusion(figures)}"),
        element("div", *panels, class_="charts"),
        table(header, rows, note),
    )


def conclusion(figures: Figures) -> str:
    """What the errors show, before and after."""
    told = []
    for words, key in ERRORS.items():
        own = {head: found for head in HEADS if (found := share(figures.get(head, {}), key))}
        clauses = {
            head: _off(found, figures[head].get(f"{key}_floor_high")) for head, found in own.items()
        }
        values = by_head({head: f"{found.value:.2%}" for head, found in own.items()})
        if own:
            first = words[:1].upper() + words[1:]
            joint = for_heads(clauses)
            told.append(f"{first}: {joint[:1].lower()}{joint[1:]}; ECE {values}.")
    return " ".join(told)


def _off(own: Share, bound: float | None) -> str:
    """Chance alone makes some error: only one that it hardly ever makes tells of a real one."""
    if bound is None:
        return "nothing is known of the error that chance alone makes"
    if own.value > bound:
        return "confidence strays from accuracy further than chance explains"
    return "confidence can't be told from a calibrated one"


def _error(figures: Figures, key: str) -> list[str]:
    found = share(figures, key)
    ends = MISSING if found is None else f"{100 * found.low:.2f} to {found.high:.2%}"
    chance = (_fine(figures.get(f"{key}_floor{end}")) for end in ("", "_high"))
    return [_fine(figures.get(key)), ends, *chance]


def _fine(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2%}"
