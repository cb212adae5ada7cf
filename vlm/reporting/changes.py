"""The changes that are made to picture or question, and what follows from each, in words.

Who ignores a change keeps the reply, and where the truth changes is never right both before and
after. So the share that is right both times comes first; how often an answer is right afterwards
comes second, against what comes without the picture or, for another question, without reading it.
"""

from dataclasses import dataclass
from typing import NamedTuple

from vlm.reporting.inputs import Figures
from vlm.reporting.markup import MISSING, counted, listed, percent
from vlm.reporting.verdicts import HEADS, NEARLY_ALWAYS, Grade, Share, by_head, for_heads, share

HARDLY = 0.05  # of answers right both times: what the interval must exceed to be a sign of anything
OTHER_QUESTION = "shuffled_questions"
GUESS = "the better of two guessers who see no picture"


@dataclass(frozen=True)
class Probe:
    """One change, in the page's words.

    Attributes:
        title: Its heading.
        done: A sentence on what was done.
        changed: What was changed.
        shows: What it means for an answer if it follows.
        after: What a picture shows afterwards.
    """

    title: str
    done: str
    changed: str
    shows: str
    after: str


PROBES = {
    "shuffled_pictures": Probe(
        "Shuffled pictures",
        "Each picture's questions are asked about another picture of the test split.",
        "the picture",
        "it comes from the picture that is shown",
        "another test picture, shown in its place",
    ),
    "erased_object": Probe(
        "One object erased",
        "One object of each picture is gone, and the noise is drawn as before.",
        "the object",
        "it comes from the objects that are there",
        "the same picture with one object gone",
    ),
    "moved_object": Probe(
        "One object moved",
        "One object of each picture is moved, and only where things are is asked about.",
        "its place",
        "it comes from where the objects are",
        "the same picture with one object moved",
    ),
    "erased_background": Probe(
        "Background erased",
        "Every pixel that belongs to no object is made black, so no truth changes.",
        "the background",
        "it comes from the background",
        "the same picture with black around the objects",
    ),
    "shuffled_questions": Probe(
        "Shuffled questions",
        "Each picture is asked questions that were meant for other pictures.",
        "the question",
        "it belongs to the question that is asked",
        "another test picture",
    ),
    "swapped_words": Probe(
        "Swapped words",
        "The same words in another order that is a question too: is there a plus left of a circle,"
        " in place of a circle left of a plus.",
        "the order of the words",
        "it hangs on the order of the words",
        "another test picture",
    ),
}
LOOKS = ("shuffled_pictures", "erased_object", "moved_object", "erased_background")
BOTH = "the answer is right both before and after the change"
FOLLOWS = {
    Grade.SURE: BOTH + " nearly always, so {shows}",
    Grade.ABOVE: BOTH + " in part of the cases, so in part {shows}",
    Grade.LIKE: BOTH + " more than now and then, but it follows no more often than {rival}:"
    " no sure sign that {shows}",
    Grade.BELOW: BOTH + " no more than now and then, as far as this can tell: no sign that {shows}",
}
HARDLY_EVER = BOTH + " hardly ever: no sign that {shows}"


class Following(NamedTuple):
    """How one head meets a change, where the truth changes."""

    both: Share  # right before and after
    after: Share  # right after
    bar: float  # what `after` must exceed


def following(name: str, figures: Figures, head: str) -> Following | None:
    """A head's figures of a probe; None where any is missing."""
    own = figures.get(head, {})
    both, after = share(own, "both_right"), share(own, "follows")
    # Who reads the question sees no picture by that: it is set against keeping the answer.
    kept = name == OTHER_QUESTION
    bar = own.get("same_reply") if kept else figures.get("follows_floor")
    if both is None or after is None or bar is None:
        return None
    return Following(both, after, bar)


def grade_change(found: Following) -> Grade:
    """Right both times first, and second right afterwards against the bar."""
    if found.both.low <= HARDLY:
        return Grade.BELOW
    if found.after.low <= found.bar:
        return Grade.LIKE
    return Grade.SURE if found.both.low > NEARLY_ALWAYS else Grade.ABOVE


def rival(name: str) -> str:
    """Whom an answer must follow more often than."""
    return "it stays what it was" if name == OTHER_QUESTION else "guesses do"


def conclusion(name: str, figures: Figures) -> str:
    """What the figures of a change show."""
    if "follows_floor" not in figures:
        return _steady(figures, PROBES[name].changed)
    own = {head: found for head in HEADS if (found := following(name, figures, head))}
    if not own:
        return f"What follows it: {MISSING}."
    clauses = {head: _follows(name, found) for head, found in own.items()}
    both = by_head({head: percent(found.both.value) for head, found in own.items()})
    after = by_head({head: percent(found.after.value) for head, found in own.items()})
    of = counted(figures.get("changed_truths", 0), "question")
    blind, floor = figures.get("follows_blind"), figures["follows_floor"]
    told = (
        f"{for_heads(clauses)}. It is right both times in {both} of the {of} whose truth changed"
        f" (who ignores the change: in none), and afterwards in {after}; {GUESS} is so in"
        f" {percent(floor)}"
    )
    told += (
        "." if blind is None else f" (the one that knows nothing of the change: {percent(blind)})."
    )
    return told + _kept(name, figures) + _easy(figures)


def _follows(name: str, found: Following) -> str:
    words = HARDLY_EVER if found.both.high <= HARDLY else FOLLOWS[grade_change(found)]
    return words.format(shows=PROBES[name].shows, rival=rival(name))


def _kept(name: str, figures: Figures) -> str:
    """For another question: how often the answer stays, which without reading is always."""
    if name != OTHER_QUESTION:
        return ""
    kept = by_head({head: percent(figures.get(head, {}).get("same_reply")) for head in HEADS})
    of = counted(figures.get("questions", 0), "question")
    return (
        f" The answer is the same in {kept} of all {of}; who ignores the question keeps it always."
    )


def _easy(figures: Figures) -> str:
    """The families in which right answers afterwards show little."""
    floors: Figures = figures.get("follows_floor_by_family", {})
    easy = [family for family, guessed in floors.items() if guessed > NEARLY_ALWAYS]
    return (
        f" In {listed(easy)} guesses do so well that following there shows little." if easy else ""
    )


def _steady(figures: Figures, changed: str) -> str:
    """Where no truth changed: whether answers stayed what they were."""
    own = {head: found for head in HEADS if (found := share(figures.get(head, {}), "same_reply"))}
    if not own:
        return f"No truth changed; whether the answers did: {MISSING}."
    clauses = {head: _stays(found, changed) for head, found in own.items()}
    of = counted(figures.get("questions", 0), "question")
    values = by_head({head: percent(found.value) for head, found in own.items()})
    right = by_head({head: percent(figures[head].get("holds")) for head in own})
    return f"{for_heads(clauses)}. It is the same in {values} of {of}, and right in {right}."


def _stays(same: Share, changed: str) -> str:
    if same.low > NEARLY_ALWAYS:
        return f"the answer stays what it was nearly always, so {changed} hardly matters"
    if same.high < NEARLY_ALWAYS:
        return f"the answer changes more than one time in ten, so {changed} matters"
    return f"the answer stays about nine times in ten: whether {changed} matters stays open"
