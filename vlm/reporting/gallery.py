"""Test pictures with what was asked, what is true, and what the models said."""

from collections.abc import Iterable, Mapping

from vlm.reporting.inputs import Inputs, Row
from vlm.reporting.markup import Html, element, joined, paragraph, section, verdict
from vlm.reporting.pictures import picture_data_uri

PER_FAMILY = 3
FAILURES = 9  # of each head
SIDE = 128  # pixels that a small picture is enlarged to, at most


def gallery(inputs: Inputs) -> Html:
    """A fixed spread over the families, then each head's failures."""
    rows = inputs.questions
    wrong = [row for row in rows if not _classifier_right(row)]
    wrong.sort(key=lambda row: (-row["classifier_confidence"], row["question_id"]))
    slips = [row for row in rows if _classifier_right(row) and not _generator_right(row)]
    index = {int(scene): place for place, scene in enumerate(inputs.scenes.scene_id)}
    intro = (
        "Pictures of the test split, which no training saw. Each shows a question with its true"
        " answer, both heads' answers, and the caption that the pretrained model writes, beside"
        " one of the true captions. ✓ marks what is right and ✗ what is wrong; a caption is right"
        " when it states exactly the picture's facts."
    )
    return section(
        "gallery",
        "Test pictures",
        paragraph(intro),
        element("h3", f"A spread: the first {PER_FAMILY} questions of each family"),
        _cards(spread(rows), inputs, index),
        element("h3", f"The classifier's failures, most confident first: {_of(wrong, rows)}"),
        _cards(wrong[:FAILURES], inputs, index),
        element("h3", f"Where only the generator fails: {_of(slips, rows)}"),
        _cards(slips[:FAILURES], inputs, index),
    )


def spread(rows: Iterable[Row]) -> list[Row]:
    """The first questions of each family, no picture twice."""
    chosen: dict[str, list[Row]] = {}
    shown: set[int] = set()
    for row in rows:
        family = chosen.setdefault(row["family"], [])
        if len(family) < PER_FAMILY and row["scene_id"] not in shown:
            family.append(row)
            shown.add(row["scene_id"])
    return [row for family in sorted(chosen) for row in chosen[family]]


def _of(some: list[Row], rows: list[Row]) -> str:
    return f"{min(FAILURES, len(some))} shown of {len(some):,} among {len(rows):,} questions"


def _classifier_right(row: Row) -> bool:
    return row["classifier_answer"] == row["answer"]


def _generator_right(row: Row) -> bool:
    return row["generator_phrase"] == row["phrase"]


def _cards(rows: Iterable[Row], inputs: Inputs, index: Mapping[int, int]) -> Html:
    cards = [_card(row, inputs, index) for row in rows]
    return element("div", *cards, class_="cards") if cards else paragraph("None.")


def _card(row: Row, inputs: Inputs, index: Mapping[int, int]) -> Html:
    image = inputs.scenes.images[index[row["scene_id"]]]
    scale = max(1, SIDE // max(image.shape[1:]))
    height, width = (scale * side for side in image.shape[1:])
    uri = picture_data_uri(image, scale)
    name = f"test picture {row['scene_id']}"
    confidence = f" ({row['classifier_confidence']:.0%} sure)"
    facts: list[tuple[str, object]] = [
        ("truth", f"{row['answer']} · {row['phrase']}"),
        ("classifier", verdict(row["classifier_answer"] + confidence, _classifier_right(row))),
        ("generator", verdict(row["generator_phrase"] or "(nothing)", _generator_right(row))),
    ]
    caption = inputs.captions.get(row["scene_id"])
    if caption:
        facts += [
            ("caption", verdict(caption["caption"] or "(nothing)", caption["exact"])),
            ("reference", caption["reference"]),
        ]
    listed = joined(joined((element("dt", term), element("dd", what))) for term, what in facts)
    return element(
        "article",
        Html(f'<img src="{uri}" alt="{name}" width="{width}" height="{height}">'),
        element(
            "div",
            element("small", f"{row['family']} · picture {row['scene_id']}"),
            element("h4", row["question"]),
            element("dl", listed),
        ),
    )
