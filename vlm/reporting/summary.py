"""The top of the page: what was found, in a few sentences and one table."""

from vlm.reporting.inputs import Figures, Inputs
from vlm.reporting.markup import (
    MISSING,
    Html,
    counted,
    element,
    listed,
    paragraph,
    percent,
    section,
    table,
)
from vlm.reporting.results import DIRECTIONS, common, headline, largest_floor
from vlm.reporting.verdicts import HEADS, Grade, by_head, grade, share

WHAT_IS_A_FLOOR = (
    "A floor is what one scores without looking properly: always giving the commonest answer"
    " (majority), the best answer to the question's words without the picture (question only), or"
    " the best answer to the picture's shapes and colours without the question (image only), all"
    " learned on the training split. Only what lies above the largest floor is seeing and reading"
    " together; that is the lift."
)
# Which probes tell, the most telling first; what they tell; and how the change is described.
QUESTIONS = {
    "it looks at the picture": {
        "erased_object": "one object is erased",
        "shuffled_pictures": "another picture is shown",
    },
    "it reads the question": {
        "swapped_words": "words change places",
        "shuffled_questions": "another question is asked",
    },
}
MOST = {  # by the worse of the two heads
    Grade.SURE: "{does}",
    Grade.ABOVE: "{does} in part",
    Grade.LIKE: "nothing shows that {does}",
    Grade.BELOW: "nothing shows that {does}",
}


def summary(inputs: Inputs) -> Html:
    """What was found in words, then the headlines, each with its interval, floor and lift."""
    figures = inputs.metrics["evaluate"]
    classifier, generator = figures["classifier"], figures["generator"]
    caption, retrieval = figures.get("caption", {}), figures.get("retrieval", {})
    name, floor = largest_floor(figures["floors"])
    rows = [
        headline("Short answers right (classifier)", classifier, "exact_match", floor, name),
        headline("Whole phrases right (generator)", generator, "exact_match", floor, name),
        *_probe_rows(figures),
        headline("Captions with exactly the facts", caption, "exact", *common(caption, "exact")),
        *(
            headline(
                f"Retrieval R@1, {words}",
                retrieval,
                f"{direction}_R@1",
                retrieval.get("chance_R@1"),
                "chance",
            )
            for direction, words in DIRECTIONS.items()
        ),
    ]
    speedups = inputs.metrics["benchmark_kv_cache"].get("speedup", {}).values()
    faster = f"{min(speedups):.1f} to {max(speedups):.1f} times" if speedups else MISSING
    rows.append(["Decoding with the KV cache, against without", faster, "—", "1.0 times", "—"])
    verdict, words = told(figures)
    note = (
        f"Measured on {counted(figures['pictures'], 'test picture')} with"
        f" {counted(figures['questions'], 'question')} that no training saw. Question families"
        " weigh the same. Intervals are at 95%. Of the probes and of whole pictures"
        " the worse head is shown"
    )
    header = ["headline", "value", "95% interval", "floor", "lift"]
    return section(
        "summary",
        "Summary",
        element("p", element("strong", verdict), class_="told"),
        element("p", words, class_="told"),
        table(header, rows, note),
        paragraph(WHAT_IS_A_FLOOR),
    )


def told(figures: Figures) -> tuple[str, str]:
    """Whether the model looks and reads, and a few sentences of figures that say so."""
    name, floor = largest_floor(figures["floors"])
    right = by_head({head: percent(figures[head].get("exact_match")) for head in HEADS})
    best = f"guessing gets {percent(floor)} at best ({name})" if name else f"guessing: {MISSING}"
    sentences = [f"Of the answers to questions about new pictures, {right} are right; {best}."]
    verdicts = []
    for does, changes in QUESTIONS.items():
        found = _telling(figures, changes)
        if found is None:
            verdicts.append(f"whether {does} was {MISSING}")
            continue
        key, worst = found
        probe = figures["probes"][key]
        values = listed([percent(probe[head]["follows"]) for head in HEADS])
        sentences.append(
            f"Where {changes[key]} and the truth is then another, the answer follows in {values}"
            f" (guessing: {percent(probe['follows_floor'])})."
        )
        verdicts.append(MOST[worst].format(does=does))
    verdict = " and ".join(verdicts)
    return f"{verdict[:1].upper()}{verdict[1:]}.", " ".join(sentences)


def _telling(figures: Figures, changes: dict[str, str]) -> tuple[str, Grade] | None:
    """The first of these probes that was measured, and the worse head's grade."""
    for key in changes:
        probe = (figures.get("probes") or {}).get(key, {})
        shares = [share(probe.get(head, {}), "follows") for head in HEADS]
        known = [one for one in shares if one]
        if len(known) == len(HEADS) and "follows_floor" in probe:
            return key, min(grade(one, probe["follows_floor"]) for one in known)
    return None


def _probe_rows(figures: Figures) -> list[list[object]]:
    """The worse head's figures of the telling probes, and of whole pictures."""
    rows = []
    for changes in QUESTIONS.values():
        found = _telling(figures, changes)
        if found:
            probe = figures["probes"][found[0]]
            head = min(HEADS, key=lambda name: probe[name]["follows"])
            words = f"Answer follows where {changes[found[0]]} ({head})"
            rows.append(headline(words, probe[head], "follows", probe["follows_floor"], "guessing"))
    whole = figures.get("whole_pictures") or {}
    known = [head for head in HEADS if "all_right" in whole.get(head, {})]
    if known:
        head = min(known, key=lambda name: whole[name]["all_right"])
        words = f"All of a picture's questions right ({head})"
        name, floor = largest_floor(whole, "_floor")
        rows.append(headline(words, whole[head], "all_right", floor, name))
    return rows
