"""Cards that show a picture, or what was changed in it, beside what was asked and said."""

from collections.abc import Mapping, Sequence

from vlm.data import png
from vlm.reporting.inputs import Row
from vlm.reporting.markup import Html, described, element, joined, verdict
from vlm.reporting.pictures import Pixels, overlay, picture_data_uri

SIDE = 128  # pixels that a small picture is enlarged to, at most
NOTHING = "(nothing)"


def picture(image: Pixels, alt: str) -> Html:
    """A (C, H, W) picture as an `img` element, enlarged pixel by pixel if it is small."""
    scale = max(1, SIDE // max(image.shape[1:]))
    height, width = (scale * side for side in image.shape[1:])
    uri = picture_data_uri(image, scale)
    named = element("img", src=uri, alt=alt, width=width, height=height)
    return Html(named.removesuffix("</img>"))


def classifier_right(row: Row) -> bool:
    """Whether the classifier gave the true answer."""
    return row["classifier_answer"] == row["answer"]


def generator_right(row: Row) -> bool:
    """Whether the generator wrote the true phrase."""
    return row["generator_phrase"] == row["phrase"]


def question_card(row: Row, image: Pixels, caption: Row | None) -> Html:
    """A test picture with a question, its truth, both heads' answers, and its caption if any."""
    answer, phrase = row["classifier_answer"], row["generator_phrase"] or NOTHING
    said = [
        text if (sure := row.get(f"{head}_confidence")) is None else f"{text} ({_sure(sure)})"
        for head, text in (("classifier", answer), ("generator", phrase))
    ]
    name = f" · {row['picture']}" if row.get("picture") else ""
    facts: list[tuple[str, object]] = [
        ("truth", f"{row['answer']} · {row['phrase']}"),
        ("classifier", verdict(said[0], classifier_right(row))),
        ("generator", verdict(said[1], generator_right(row))),
    ]
    if caption:
        written, exact = caption["caption"] or NOTHING, caption.get("exact")
        facts += [
            ("caption", written if exact is None else verdict(written, exact)),
            ("reference", caption["reference"]),
        ]
    return element(
        "article",
        picture(image, f"test picture {row['scene_id']}"),
        element(
            "div",
            element("small", f"{row['family']} · picture {row['scene_id']}{name}"),
            element("h4", row["question"]),
            described(facts),
        ),
    )


def change_card(row: Row, changed: str) -> Html:
    """A picture, a question or both, before and after a change, and what was said to each.

    Args:
        row: One of the examples.
        changed: What the picture shows afterwards, for those who can't see it.
    """
    pair = [(row["before"], "a test picture as it was drawn")]
    if row["after"] != row["before"]:
        pair.append((row["after"], changed))
    shown = [picture(png.decode(image).transpose(2, 0, 1), alt) for image, alt in pair]
    shown.insert(1, element("span", class_="arrow", aria_hidden="true"))
    right = {
        "classifier": row["classifier_after"] == row["truth_after"],
        "generator": row["generator_after"] == row["phrase_after"],
    }
    facts: list[tuple[str, object]] = [("truth", _then(row["truth_before"], row["truth_after"]))]
    for head, is_right in right.items():
        said = verdict(row[f"{head}_after"] or NOTHING, is_right)
        facts.append((head, _then(row[f"{head}_before"] or NOTHING, said)))
    asked = element("h4", *_asked(row["question_before"], row["question_after"]))
    return element(
        "article",
        element("div", *shown[: 2 * len(pair) - 1], class_="pair"),
        element("div", asked, described(facts)),
        class_="change",
    )


def attention_card(question: str, image: Pixels, weights: Mapping[str, Sequence[float]]) -> Html:
    """A test picture beside itself under the attention of each place, by the place's name."""
    panels = [("the picture", picture(image, "a test picture as it was drawn"))]
    for place, given in weights.items():
        alt = f"the same picture, bright where the {place} attends"
        panels.append((place, picture(overlay(image, given), alt)))
    shown = [element("figure", shown, element("figcaption", name)) for name, shown in panels]
    return element(
        "article",
        element("h4", question),
        element("div", *shown, class_="panels"),
        class_="attention",
    )


def _sure(confidence: float) -> str:
    """A confidence, which is never certainty; not to be broken over two lines."""
    text = f"{confidence:.1%}"
    return f"{'>99.9%' if text == '100.0%' else text}\N{NO-BREAK SPACE}sure"


def _then(before: object, after: object) -> Html:
    arrow = element("span", " →\N{NO-BREAK SPACE}", aria_hidden="true")
    return joined([before, element("span", ", then ", class_="unseen"), arrow, after])


def _asked(before: str, after: str) -> list[object]:
    """The question, or both where it changed."""
    if before == after:
        return [before]
    first, then = (element("small", word) for word in ("first: ", "then: "))
    return [first, before, Html("<br>"), then, after]
