"""One self-contained HTML page about a run: no script, no network, the same bytes each time."""

from collections.abc import Callable
from string import Template

from vlm.reporting import (
    attention,
    confidence,
    decoding,
    errors,
    gallery,
    interventions,
    probes,
    record,
    results,
    summary,
    unlike,
)
from vlm.reporting.inputs import Inputs
from vlm.reporting.markup import Html, element
from vlm.reporting.skeleton import SKELETON

TITLE = "A vision-language model, made and measured"
LEAD = (
    "A small model that looks at pictures{what}, answers questions about them and describes them,"
    " made from nothing by this pipeline and measured on pictures it never saw."
)
SHAPES = " of simple shapes"
NEEDS_A_WORLD = ("attention", "unlike")  # sections that are about drawn scenes alone
CONTENTS = {
    "summary": "Summary",
    "answers": "Answers",
    "every-question": "Every question alike",
    "looks": "Does it look at the picture?",
    "reads": "Does it read the question?",
    "errors": "Where are the errors?",
    "calibration": "Does it know when it is wrong?",
    "attention": "Where does it look?",
    "unlike": "Scenes unlike training",
    "language": "Retrieval and captions",
    "gallery": "Pictures",
    "training": "Training",
    "kv-cache": "KV cache",
    "data": "Data",
    "run": "Run record",
}


SECTIONS: dict[str, Callable[[Inputs], Html]] = {
    "summary": summary.summary,
    "answers": results.answers,
    "every-question": probes.every_question,
    "looks": interventions.looks,
    "reads": probes.reads,
    "errors": errors.where_errors_are,
    "calibration": confidence.knows,
    "attention": attention.where,
    "unlike": unlike.unlike,
    "language": results.language,
    "gallery": gallery.gallery,
    "training": record.training,
    "kv-cache": decoding.kv_cache,
    "data": record.data,
    "run": record.run_record,
}


def build_page(inputs: Inputs) -> str:
    """The report as HTML."""
    shown = [name for name in CONTENTS if inputs.is_drawn or name not in NEEDS_A_WORLD]
    links = [element("a", CONTENTS[name], href=f"#{name}") for name in shown]
    return Template(SKELETON).substitute(
        title=element("title", TITLE),
        heading=element("h1", TITLE),
        lead=element("p", LEAD.format(what=SHAPES if inputs.is_drawn else ""), class_="lead"),
        contents=element("nav", *links, aria_label="contents"),
        sections="\n".join(SECTIONS[name](inputs) for name in shown),
    )
