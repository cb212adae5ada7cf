"""One self-contained HTML page about a run: no script, no network, the same bytes each time."""

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
from vlm.reporting.markup import element
from vlm.reporting.skeleton import SKELETON

TITLE = "A vision-language model, made and measured"
LEAD = (
    "A small model that looks at pictures of simple shapes, answers questions about them and"
    " describes them, made from nothing by this pipeline and measured on pictures it never saw."
)
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


def build_page(inputs: Inputs) -> str:
    """The report as HTML."""
    links = [element("a", words, href=f"#{anchor}") for anchor, words in CONTENTS.items()]
    sections = [
        summary.summary(inputs),
        results.answers(inputs),
        probes.every_question(inputs),
        interventions.looks(inputs),
        probes.reads(inputs),
        errors.where_errors_are(inputs),
        confidence.knows(inputs),
        attention.where(inputs),
        unlike.unlike(inputs),
        results.language(inputs),
        gallery.gallery(inputs),
        record.training(inputs),
        decoding.kv_cache(inputs),
        record.data(inputs),
        record.run_record(inputs),
    ]
    return Template(SKELETON).substitute(
        title=element("title", TITLE),
        heading=element("h1", TITLE),
        lead=element("p", LEAD, class_="lead"),
        contents=element("nav", *links, aria_label="contents"),
        sections="\n".join(sections),
    )
