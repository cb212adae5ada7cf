"""HTML from Python values, escaped unless said otherwise, and numbers with their units."""

import html
from collections.abc import Iterable, Sequence

MISSING = "not measured"


class Html(str):
    """Text that is markup already; any other text is escaped when it enters a page."""


def markup(value: object) -> Html:
    """`value` as markup."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def joined(parts: Iterable[object]) -> Html:
    """The parts one after the other."""
    return Html("".join(markup(part) for part in parts))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """An element with an end tag; a trailing underscore keeps `class_` off Python's keyword."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
    )
    return Html(f"<{tag}{named}>{joined(children)}</{tag}>")


def section(anchor: str, title: str, *children: object) -> Html:
    """A part of the page that a link can lead to."""
    return element("section", element("h2", title), *children, id=anchor)


def paragraph(*children: object) -> Html:
    """A paragraph."""
    return element("p", *children)


def table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str) -> Html:
    """A table whose first column names its rows; it scrolls sideways where it is too wide."""
    head = element("tr", *(element("th", name, scope="col") for name in header))
    body = [
        element("tr", element("th", name, scope="row"), *map(_cell, header[1:], cells))
        for name, *cells in rows
    ]
    whole = element("table", element("thead", head), element("tbody", *body))
    scroll = element("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)
    return element("figure", scroll, element("figcaption", caption))


def _cell(column: str, value: object) -> Html:
    """A cell that knows its column's name, to show it where a phone stacks the cells."""
    return element("td", value, data_column=column)


def figure(svg: str, caption: str) -> Html:
    """A chart with what it shows and how to read it."""
    chart = element("div", Html(svg), class_="chart")
    return element("figure", chart, element("figcaption", caption))


def details(words: str, *children: object) -> Html:
    """What only some will want to read, folded under its name."""
    return element("details", element("summary", words), *children)


def cards(articles: Iterable[Html]) -> Html:
    """Cards side by side where there is room."""
    shown = list(articles)
    return element("div", *shown, class_="cards") if shown else paragraph("None.")


def described(pairs: Iterable[tuple[str, object]]) -> Html:
    """Terms, each with what it is."""
    parts = (joined((element("dt", term), element("dd", what))) for term, what in pairs)
    return element("dl", joined(parts))


def verdict(text: object, right: bool) -> Html:
    """An answer marked right or wrong by a sign, a word for screen readers, and a colour."""
    sign = element("span", "✓" if right else "✗", aria_hidden="true")
    word = element("span", "right: " if right else "wrong: ", class_="unseen")
    return element(
        "span", sign, "\N{NO-BREAK SPACE}", word, text, class_="right" if right else "wrong"
    )


def percent(share: float | None) -> str:
    """A share of 1, in percent; what isn't quite all or nothing never reads as if it were."""
    if share is None:
        return MISSING
    for digits in (1, 2):
        text = f"{share:.{digits}%}"
        if float(text[:-1]) not in (0.0, 100.0) or share in (0.0, 1.0):
            return text
    return "<0.01%" if share < 0.5 else ">99.99%"


def percent_interval(low: float | None, high: float | None) -> str:
    """Two shares of 1 as a range in percent."""
    if low is None or high is None:
        return MISSING
    return f"{percent(low).removesuffix('%')} to {percent(high)}"


def points(value: float | None, floor: float | None) -> str:
    """How far a share lies above a floor, in percentage points."""
    return MISSING if value is None or floor is None else f"{100 * (value - floor):+.1f} points"


def number(value: float | None, digits: int = 3) -> str:
    """A number without a unit; whole ones with thousands apart."""
    if value is None:
        return MISSING
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}f}"


def counted(amount: int, noun: str) -> str:
    """So many of something: one without the s of the plural."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a, b and c`."""
    return f" {last} ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def duration(seconds: float | None) -> str:
    """A time that a person can compare: milliseconds to hours."""
    if seconds is None:
        return MISSING
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
