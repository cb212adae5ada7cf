"""The top of the page: what was found, in a few sentences and one table."""

from collections.abc import Iterable
from typing import NamedTuple

from vlm.reporting.changes import HARDLY, OTHER_QUESTION, Following, following, grade_change, rival
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
from vlm.reporting.results import DIRECTIONS, common, exact_captions, headline, largest_floor
from vlm.reporting.verdicts import HEADS, Grade, by_head

WHAT_IS_A_FLOOR = (
    "A floor is what one scores without looking properly: always giving the commonest answer"
    " (majority), the best answer to the question's words without the picture (question only), or"
    " the best answer to the picture's shapes and colours without the question (image only), all"
    " learned on the training split. Only what lies above the largest floor is seeing and reading"
    " together; that is the lift."
)
# Which probes tell, the most telling first, and how the change is described.
LOOKS = {"erased_object": "one object is erased", "shuffled_pictures": "another picture is shown"}
READS = {OTHER_QUESTION: "another question is asked"}
READS_ORDER = {"swapped_words": "words change places"}
CHANGES = LOOKS | READS | READS_ORDER
MOST = {  # by the worse of the two heads
    Grade.SURE: "{who} {does}",
    Grade.ABOVE: "{who} {does} in part",
    Grade.LIKE: "{who} {does} in part, if at all (the answer follows no more often than {rival})",
    Grade.BELOW: "nothing shows that {who} {does}",
}


class Telling(NamedTuple):
    """A probe that tells, with what both heads do."""

    name: str
    heads: dict[str, Following]

    @property
    def worst(self) -> str:
        """The head of the worse grade; of the same, that which is less often right both times."""
        grades = self.grades
        return min(self.heads, key=lambda head: (grades[head], self.heads[head].both))

    @property
    def grades(self) -> dict[str, Grade]:
        """How each head does."""
        return {head: grade_change(found) for head, found in self.heads.items()}


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
        headline(exact_captions(inputs), caption, "exact", *common(caption, "exact")),
        *(
            headline(
                f"Retrieval R@1, {words}",
                retrieval,
                f"{direction}_R@1",
                retrieval.get("floor_R@1"),
                "one ranking for all",
            )
            for direction, words in DIRECTIONS.items()
        ),
    ]
    speedups = inputs.metrics["benchmark_kv_cache"].get("speedup", {}).values()
    faster = f"{min(speedups):.1f} to {max(speedups):.1f} times" if speedups else MISSING
    rows.append(["Decoding with the KV cache, against without", faster, "—", "1.0 times", "—"])
    verdict, words = told(figures) if inputs.is_drawn else told_of_own(figures)
    note = (
        f"Measured on {counted(figures['pictures'], 'test picture')} with"
        f" {counted(figures['questions'], 'question')} that no training saw. Question families"
        " weigh the same. Intervals are at 95%. Of whatever both heads have one line for, the worse"
        " head is shown"
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
    found = [telling(figures, changes) for changes in (LOOKS, READS, READS_ORDER)]
    sentences += [_figures(figures, one) for one in found if one]
    looks, reads, order = found
    verdict = listed([_verdict("looks at the picture", looks), *_reading(reads, order)])
    return f"{verdict[:1].upper()}{verdict[1:]}.", " ".join(sentences)


def told_of_own(figures: Figures) -> tuple[str, str]:
    """The same of pictures about which only their own questions' answers are known."""
    _, sentence = told({**figures, "probes": {}})
    swapped = figures.get("another_picture")
    if not swapped:
        return f"Whether it looks at the picture was {MISSING}.", sentence
    blind = [
        head
        for head in HEADS
        if figures[head]["exact_match_low"] <= swapped[head]["exact_match_high"]
    ]
    verdict = "It looks at the picture: with another one before it, it is right less often."
    if blind:
        verdict = f"With another picture the {listed(blind)} is right as often as with its own."
    right, same = (
        by_head({head: percent(swapped[head].get(key)) for head in HEADS})
        for key in ("exact_match", "same_reply")
    )
    return verdict, (
        f"{sentence} With another picture before it, {right} are right by the question's own, and"
        f" {same} of the replies stay."
    )


def telling(figures: Figures, names: Iterable[str]) -> Telling | None:
    """The first of these probes that was measured for both heads."""
    for name in names:
        probe = (figures.get("probes") or {}).get(name, {})
        heads = {head: found for head in HEADS if (found := following(name, probe, head))}
        if len(heads) == len(HEADS):
            return Telling(name, heads)
    return None


def _verdict(does: str, found: Telling | None) -> str:
    """By the worse head, which is named where the heads differ."""
    if found is None:
        return f"whether it {does} was {MISSING}"
    grades, worst = found.grades, found.worst
    who = "it" if len(set(grades.values())) == 1 else f"the worse head, the {worst},"
    return MOST[grades[worst]].format(who=who, does=does, rival=rival(found.name))


def _reading(reads: Telling | None, order: Telling | None) -> list[str]:
    """What it reads: a bag of words follows another question, and never another order."""
    deaf = order is not None and all(one.both.high <= HARDLY for one in order.heads.values())
    if deaf and reads and min(reads.grades.values()) > Grade.LIKE:
        return [_verdict("reads the question's words", reads) + ", not their order"]
    return [_verdict("reads the question", reads), _verdict("reads word order", order)]


def _figures(figures: Figures, found: Telling) -> str:
    """A sentence with the figures of a probe."""
    both = listed([percent(one.both.value) for one in found.heads.values()])
    after = listed([percent(one.after.value) for one in found.heads.values()])
    told = (
        f"Where {CHANGES[found.name]} and the truth is then another, the answer is right both"
        f" before and after in {both} (ignoring that: 0.0%)"
    )
    if found.name in LOOKS:
        floor = percent(figures["probes"][found.name]["follows_floor"])
        told += f", and right after it in {after} (guessing: {floor})"
    return told + "."


def _probe_rows(figures: Figures) -> list[list[object]]:
    """The worse head's figures of the telling probes, and of whole pictures."""
    rows: list[list[object]] = []
    for changes in (LOOKS, READS, READS_ORDER):
        if found := telling(figures, changes):
            probe, head = figures["probes"][found.name], found.worst
            words = f"Right before and after where {CHANGES[found.name]} ({head})"
            rows.append(headline(words, probe[head], "both_right", 0.0, "ignoring that"))
    whole = figures.get("whole_pictures") or {}
    known = [head for head in HEADS if "all_right" in whole.get(head, {})]
    if known:
        head = min(known, key=lambda name: whole[name]["all_right"])
        words = f"All of a picture's questions right ({head})"
        name, floor = largest_floor(whole, "_floor")
        rows.append(headline(words, whole[head], "all_right", floor, name))
    return rows
