"""Where does it look? The attention that falls on the objects a question names."""

from collections.abc import Mapping, Sequence

from vlm.reporting.cards import attention_card
from vlm.reporting.inputs import Figures, Inputs
from vlm.reporting.markup import (
    MISSING,
    Html,
    cards,
    number,
    paragraph,
    percent,
    percent_interval,
    section,
    table,
)
from vlm.reporting.verdicts import Share, share

SHOWN = 3  # pictures
PLACES = {"encoder": "picture encoder", "words": "words"}  # by how the place's name ends
DONE = (
    "A question names objects, and some share of the attention (its mass) lies on them. Attention"
    " that took no notice of the picture would give them their share of the area, so the mass is"
    " set against that; and against the same network with random weights, since some pattern comes"
    " from the architecture alone."
)
DOUBT = (
    " The picture encoder sees no question, so it can at most prefer objects to what lies around"
    " them. And attention isn't use: what decides the answer is told by erasing and moving objects,"
    " above."
)


def where(inputs: Inputs) -> Html:
    """Where does it look?"""
    title = "Where does it look?"
    figures = inputs.metrics["evaluate"].get("attention") or {}
    if not figures:
        return section("attention", title, paragraph(f"{DONE} In this run: {MISSING}."))
    rows = []
    for place, own in figures.items():
        mass, ratio, others = (share(own, key) for key in ("mass", "times_area", OTHERS))
        rows.append(
            [
                in_words(place),
                number(own.get("questions")),
                percent(own.get("mass")),
                percent_interval(*mass[1:]) if mass else MISSING,
                percent(own.get("area")),
                _times(ratio),
                number(own.get("random_weights_times_area"), 2),
                _times(others),
            ]
        )
    header = ["where", "questions", "mass", "95% interval", "area", "mass / area"]
    header += ["random weights", "other objects"]
    note = (
        "Attention on the objects that a question names. Mass / area: 1 is no notice of them;"
        " beside it the same for random weights, without an interval, and for the picture's other"
        " objects"
    )
    told = " ".join(conclusion(place, own) for place, own in figures.items())
    return section(
        "attention",
        title,
        paragraph(f"{DONE} {told}{DOUBT}"),
        table(header, rows, note),
        paragraph(
            "Orange light is in proportion to attention, full on the patch that has most of it. The"
            " first pictures of the test split about which a question names an object."
        ),
        _pictures(inputs),
    )


OTHERS = "others_times_area"
AGAINST_AREA = {
    1: ": more than by chance",
    0: ", which can't be told from taking no notice",
    -1: ": less than by chance",
}
AGAINST_RANDOM = {
    1: "it is more",
    0: "it can't be told apart",
    -1: "it is less",
}


def in_words(place: str) -> str:
    """A place of attention in words: `classifier_encoder` is the classifier's picture encoder."""
    head, _, part = place.partition("_")
    return f"{head}'s {PLACES.get(part, part)}"


def conclusion(place: str, figures: Figures) -> str:
    """Whether more attention than area lies on what is named, and more than without training."""
    found = share(figures, "times_area")
    if found is None:
        return f"Attention of the {in_words(place)}: {MISSING}."
    random = figures.get("random_weights_times_area")
    told = f"The {in_words(place)} puts {found.value:.2f} times their area on the named objects"
    told += AGAINST_AREA[_beside(found, 1.0)]
    if random is not None:
        told += f"; beside random weights ({random:.2f}) {AGAINST_RANDOM[_beside(found, random)]}"
    told += "."
    others = share(figures, OTHERS)
    if place.endswith("_words") and others:
        more = "more than" if found.low > others.high else "not clearly more than"
        told += f" That is {more} it puts on other objects ({others.value:.2f})."
    return told


def _beside(own: Share, value: float) -> int:
    """1 where the interval lies above a value, -1 where below, and 0 where it holds it."""
    return int(own.low > value) - int(own.high < value)


def _times(found: Share | None) -> str:
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})" if found else MISSING


def _pictures(inputs: Inputs) -> Html:
    index = {int(scene): place for place, scene in enumerate(inputs.scenes.scene_id)}
    shown: dict[tuple[int, str], dict[str, Sequence[float]]] = {}
    for row in inputs.attention:
        places = shown.setdefault((row["scene_id"], row["question"]), {})
        places[in_words(row["place"])] = row["weights"]
    first: Sequence[tuple[tuple[int, str], Mapping[str, Sequence[float]]]] = [*shown.items()][
        :SHOWN
    ]
    return cards(
        attention_card(question, inputs.scenes.images[index[scene]], weights)
        for (scene, question), weights in first
    )
