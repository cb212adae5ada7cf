"""Test pictures with what was asked, what is true, and what the models said."""

from collections.abc import Callable, Iterable

from vlm.reporting.cards import SIDE as SIDE  # which other pages take from here
from vlm.reporting.cards import classifier_right, generator_right, question_card
from vlm.reporting.inputs import Inputs, Row
from vlm.reporting.markup import Html, cards, counted, element, paragraph, section

PER_FAMILY = 3
FAILURES = 9  # of each head
RIGHT = {"classifier": classifier_right, "generator": generator_right}


def gallery(inputs: Inputs) -> Html:
    """A fixed spread over the families, then each head's failures."""
    rows = inputs.questions
    exact = "is one of the picture's, word for word"
    if inputs.is_drawn:
        exact = "states exactly the picture's facts"
    intro = (
        "Pictures of the test split, which no training saw. Each shows a question with its true"
        " answer, both heads' answers and how sure they are of them, and the caption that the"
        " pretrained model writes, beside one of the true captions. ✓ marks what is right and ✗"
        f" what is wrong; a caption is right when it {exact}."
    )
    parts: list[Html] = []
    for head, right in RIGHT.items():
        wrong = failures(rows, head, right)
        of = f"{min(FAILURES, len(wrong))} shown of {len(wrong):,}"
        among = counted(len(rows), "question")
        known = any(row.get(f"{head}_confidence") is not None for row in wrong)
        first = ", the one it is surest of first" if known else ""
        title = f"The {head}'s failures{first}: {of} among {among}"
        parts += [element("h3", title), _shown(wrong[:FAILURES], inputs)]
    return section(
        "gallery",
        "Test pictures",
        paragraph(intro),
        element("h3", f"A spread: the first {PER_FAMILY} questions of each family"),
        _shown(spread(rows), inputs),
        *parts,
    )


def failures(rows: Iterable[Row], head: str, right: Callable[[Row], bool]) -> list[Row]:
    """What a head has wrong, by its own confidence where there is one, the highest first."""
    wrong = [row for row in rows if not right(row)]
    key = f"{head}_confidence"
    return sorted(wrong, key=lambda row: (-(row.get(key) or 0.0), row["question_id"]))


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


def _shown(rows: Iterable[Row], inputs: Inputs) -> Html:
    index = {int(scene): place for place, scene in enumerate(inputs.scenes.scene_id)}
    images, captions = inputs.scenes.images, inputs.captions
    return cards(
        question_card(row, images[index[row["scene_id"]]], captions.get(row["scene_id"]))
        for row in rows
    )
