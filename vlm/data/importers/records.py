"""What a record says and asks of its picture, by the names that people give to fields.

A record is a line of a `metadata.jsonl` or a row of a Parquet table. A field that is absent and one
that is null are the same.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from vlm.data.importers.rows import Asked, BadRowError, shown, text, told_by_annotator

# Of several names the first that holds something counts.
CAPTIONS = ("captions", "caption", "text")
QUESTION = ("question", "query")
ANSWER = ("answer", "label", "labels")
FIELDS = (*CAPTIONS, *QUESTION, *ANSWER, "answers", "phrase", "family", "questions")


def read_record(record: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[Asked, ...]]:
    """Captions and questions of a record; either may be empty.

    Raises:
        BadRowError: a field of another type, or an answer without a question.
    """
    what, captions = _first(record, CAPTIONS)
    asked = _read_questions(record)
    return _texts(captions, what), asked


def _read_questions(record: Mapping[str, Any]) -> tuple[Asked, ...]:
    several = record.get("questions")
    if several is None:
        return _read_asked(record)
    if not isinstance(several, list) or not all(isinstance(item, Mapping) for item in several):
        raise BadRowError(f"questions: got {shown(several)}, expected a list of objects")
    return (*_read_asked(record), *(one for item in several for one in _read_asked(item, True)))


def _read_asked(record: Mapping[str, Any], needed: bool = False) -> tuple[Asked, ...]:
    what, question = _first(record, QUESTION)
    what_answer, answer = _first(record, ANSWER)
    told = record.get("answers")
    if question is None:
        if needed or answer is not None or told:
            raise BadRowError("question: got none, expected text")
        return ()
    answers = _answers(told)
    if isinstance(answer, list):
        answers = answers or _answers(answer)
        answer = None
    if answer is None and answers:
        counts = Counter(each for each in answers if each)  # ties: the one that comes first
        answer = next((each for each, _ in counts.most_common(1)), "")
    phrase, family = record.get("phrase"), record.get("family")
    asked = Asked(
        text(question, what),
        None if answer is None else text(answer, what_answer),
        None if phrase is None else text(phrase, "phrase"),
        "question" if family is None else text(family, "family"),
        answers if len(answers) > 1 or told else (),
    )
    return (asked,)


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    """The first of the fields that holds something, and its name; else the first name and None."""
    for name in names:
        value = record.get(name)
        if value is not None and value != []:
            return name, value
    return names[0], None


def _texts(value: object, what: str) -> tuple[str, ...]:
    """A text, or a list of them."""
    return tuple(text(item, what) for item in _items(value))


def _answers(value: object) -> tuple[str, ...]:
    """As `_texts`; an annotator's answer may be an object that holds it, and may be empty."""
    told = (item.get("answer") if isinstance(item, Mapping) else item for item in _items(value))
    return tuple(told_by_annotator(item) for item in told)


def _items(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
