"""Check the links of the built manual, without a network.

python -m docs.links build/docs               name each internal link that leads nowhere; exit status 1 if there are any
python -m docs.links build/docs --external    list the addresses outside that pages lead to
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["Page", "broken_links", "external_links", "read_pages"]

_LINKS = {"href", "src", "srcset"}


class Page(HTMLParser):
    """The links of a page, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links and anchors of one element."""
        for name, value in attrs:
            if value and (name == "id" or (name == "name" and tag == "a")):
                self.anchors.add(value)
            elif value and name in _LINKS:
                self.links.append(value)


def read_pages(folder: Path) -> dict[Path, Page]:
    """Return the pages of a built manual."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.resolve().rglob("*.html"))}


def broken_links(pages: dict[Path, Page]) -> Iterator[tuple[Path, str]]:
    """Yield each internal link whose file or anchor is not there, with its page."""
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            is_view = "=" in anchor  # of the model matrix, whose script reads it
            if not target.is_file() or (
                anchor and not is_view and target in pages and anchor not in pages[target].anchors
            ):
                yield path, link


def external_links(pages: dict[Path, Page]) -> dict[str, list[Path]]:
    """Return the addresses outside of the manual, each with the pages that lead there."""
    found: dict[str, list[Path]] = {}
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            if urlsplit(link).scheme in ("http", "https"):
                found.setdefault(link, []).append(path)
    return found


def main() -> int:
    """Check or list the links of a folder. Return the exit status."""
    match sys.argv[1:]:
        case [folder]:
            lines = [f"{path}: {link}" for path, link in broken_links(read_pages(Path(folder)))]
        case [folder, "--external"]:
            lines = sorted(external_links(read_pages(Path(folder))))
        case _:
            sys.stderr.write("usage: python -m docs.links FOLDER [--external]\n")
            return 2
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines and len(sys.argv) == 2 else 0


if __name__ == "__main__":
    sys.exit(main())
