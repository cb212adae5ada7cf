import math
import re
from dataclasses import replace

import numpy as np
import pytest
from example_run import FAMILIES, HOSTILE
from page_reader import Reader, check_offline, text_of

from vlm.evaluation.comparing import HEADS, changes, compare_captions, compare_questions
from vlm.evaluation.intervals import Interval
from vlm.evaluation.pairing import pair_captions, pair_questions
from vlm.reporting.comparison import Compared, build_page
from vlm.reporting.pictures import picture_data_uri

PICTURES = {
    scene: np.random.default_rng(scene).integers(0, 256, (1, 32, 32), np.uint8)
    for scene in range(30)
}
RIGHT = "yes there is a plus"


def rows(classifier: dict[int, str], generator: dict[int, str]) -> list[dict]:
    """Four questions a picture, right but for the answers that are given."""
    return [
        {
            "question_id": number,
            "scene_id": number // 4,
            "family": FAMILIES[number % 5],
            "question": HOSTILE if number == 8 else f"what is number {number}",
            "answer": "yes",
            "phrase": RIGHT,
            "classifier_answer": classifier.get(number, "yes"),
            "classifier_confidence": 0.5 + number / 1000,
            "generator_phrase": generator.get(number, RIGHT),
        }
        for number in range(120)
    ]


def compared(names: tuple[str, str] = ("v1", "workspace")) -> Compared:
    a = rows({50: "no", 60: "no", 70: "no"}, {5: "yes"})
    b = rows({8: "no", 9: HOSTILE, 40: "no", 60: "maybe", 70: "no"}, {5: ""})
    pairs = pair_questions(a, b)
    one, other = (
        [{"scene_id": n, "reference": "r", "exact": n < exact} for n in range(30)]
        for exact in (30, 28)
    )
    caption = compare_captions(pair_captions(one, other), 50)
    return Compared(
        *names,
        pairs,
        3,
        1,
        [*compare_questions(pairs, 50), caption],
        {head.name: changes(pairs, head) for head in HEADS},
        PICTURES,
    )


COMPARED = compared()


@pytest.fixture(scope="module")
def page() -> str:
    return build_page(COMPARED, 60)


def test_the_page_is_well_formed_and_asks_for_nothing_outside_it(page: str) -> None:
    check_offline(page)


def test_ids_are_unique_and_every_link_has_its_target(page: str) -> None:
    attributes = [attributes for _, attributes in Reader(page).tags]
    ids = [one["id"] for one in attributes if "id" in one]
    assert len(ids) == len(set(ids))
    links = {str(one["href"])[1:] for one in attributes if str(one.get("href")).startswith("#")}
    assert {"figures", "classifier", "generator"} <= links <= set(ids)


def test_text_from_data_and_names_is_escaped(page: str) -> None:
    assert HOSTILE not in page
    assert page.count("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &quot;quoted") >= 2
    hostile = build_page(compared((HOSTILE, "$title")), 60)
    assert HOSTILE not in hostile
    assert "A is &lt;script&gt;" in text_of(hostile) and "B is $title" in text_of(hostile)
    Reader(hostile)


@pytest.mark.parametrize(
    "words",
    [
        "A is v1 , B is workspace : 120 questions about 30 pictures in both; 3 only in A and 1",
        "classifier: every question alike 97.50% 95.83% -1.67 points",
        "caption: exact facts 100.00% 93.33% -6.67 points",
        "5 of 120 answers of the classifier changed.",
        "McNemar's, exact and two-sided",
        "aren't independent, so over questions it is too small: go by the interval",
    ],
)
def test_figures_and_counts_stand_on_the_page(page: str, words: str) -> None:
    assert words in text_of(page).replace("&#x27;", "'")


def test_all_figures_are_drawn_on_one_scale_beside_0(page: str) -> None:
    svgs = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(svgs) == 3
    assert "BLEU-4" not in svgs[0] and "BLEU-4" in svgs[1] and "exact facts" in svgs[2]
    for svg in svgs:
        assert {"0", "10", "\u221210"} <= set(re.findall(r">\s*(\u2212?\d+)\s*</text>", svg))


def test_what_was_lost_comes_first_and_the_surest_of_it(page: str) -> None:
    asked = re.findall(r"<h4>(?:what is number )?(\d+|&lt;)", page)
    assert asked == ["40", "9", "&lt;", "60", "50", "5"]  # lost, still wrong, gained; generator
    words = text_of(page)
    titles = ["Lost, A was right", "Still wrong, both", "Gained, A was wrong"] * 2
    places = []
    for title in titles:
        places.append(words.index(title, places[-1] + 1 if places else 0))
    assert "Lost, A was right and B is wrong: 3 shown of 3" in words
    assert "generator, B ✗ wrong: (nothing)" in words
    assert "classifier, B ✗ wrong: no (54.0% sure)" in words


def test_a_card_has_its_own_scenes_picture(page: str) -> None:
    shown = [attributes["src"] for tag, attributes in Reader(page).tags if tag == "img"]
    scenes = [10, 2, 2, 15, 12, 1]
    assert shown == [picture_data_uri(PICTURES[scene], 4) for scene in scenes]


def test_the_limit_is_for_each_head_and_kind() -> None:
    short = build_page(COMPARED, 1)
    assert short.count("<article>") == 4
    assert "Lost, A was right and B is wrong: 1 shown of 3" in text_of(short)
    none = build_page(COMPARED, 0)
    assert "<article>" not in none and "0 shown of 3" in text_of(none)
    Reader(none)


def test_without_pictures_the_cards_stay_and_one_line_says_so() -> None:
    bare = build_page(replace(COMPARED, pictures={}), 60)
    assert bare.count("<article>") == 6
    assert "<img" not in bare
    assert "No pictures: no test split at hand asks these questions." in bare
    Reader(bare)


def test_two_builds_are_the_same_bytes(page: str) -> None:
    assert build_page(compared(), 60) == page


def test_a_run_against_itself_has_a_page() -> None:
    pairs = pair_questions(rows({}, {}), rows({}, {}))
    same = replace(
        COMPARED,
        figures=compare_questions(pairs, 10),
        changes={head.name: changes(pairs, head) for head in HEADS},
    )
    words = text_of(build_page(same, 60))
    assert words.count("None.") == 6
    assert "+0.00 points +0.00 to +0.00 0 0 1" in words


def test_small_differences_and_doubts_are_not_rounded_away() -> None:
    tiny = replace(COMPARED.figures[0], a=0.5, b=0.4996)
    page = text_of(build_page(replace(COMPARED, figures=[tiny]), 60))
    assert "50.00% 49.96% -0.04 points" in page
    blurred = replace(tiny, a=0.5, b=0.5 - 1e-12, interval=Interval(-1e-12, 0.0))
    page = text_of(build_page(replace(COMPARED, figures=[blurred]), 60))
    assert "+0.00 points +0.00 to +0.00" in page
    for sure, words in ((0.9996, "no (99.96% sure)"), (1.0, "no (100.0% sure)"), (math.nan, "no")):
        a, b = rows({}, {})[:1], [{**rows({0: "no"}, {})[0], "classifier_confidence": sure}]
        pairs = pair_questions(a, b)
        found = {head.name: changes(pairs, head) for head in HEADS}
        page = text_of(build_page(replace(COMPARED, pairs=pairs, changes=found), 60))
        assert f"classifier, B ✗ wrong: {words} generator, A" in page
