"""Reading a page as a browser would: what every page of ours must satisfy."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br"}


class Reader(HTMLParser):
    """Collects tags and attributes, and insists that every element is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def check_offline(page: str) -> None:
    """Well formed, and asks for nothing outside itself."""
    tags = Reader(page).tags
    for _, attributes in tags:
        for name in ("src", "href", "srcset", "data", "poster", "action"):
            reference = attributes.get(name) or "#"
            assert reference.startswith(("#", "data:")), reference
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    assert "@import" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert not {"script", "iframe", "object"} & {tag for tag, _ in tags}
    assert "default-src 'none'" in page
