"""Collect the sources that an endpoint names for its answer, each once, with their places in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from cnllm.types import Citation

__all__ = ["Citations", "without_place"]


class _Waiting(NamedTuple):
    """A citation whose place is known when its text is complete.

    It is for the text from `offset` to the end of what has come, or for the bytes of `quote` in the whole answer.
    """

    citation: Citation
    offset: int | None
    quote: str | None


class Citations:
    """The citations of one reply."""

    __slots__ = ("_known", "_pages", "_waiting", "all")

    def __init__(self) -> None:
        self.all: list[Citation] = []
        self._known: set[tuple[str | None, str | None, int | None, int | None]] = set()
        self._pages: set[str] = set()
        self._waiting: list[_Waiting] = []

    def add(self, citation: Citation) -> list[Citation]:
        """Add a citation; return it where it is new.

        Endpoints repeat their list of pages in each chunk. A page without a place is new once.
        """
        if citation.start is None and citation.url is not None and citation.url in self._pages:
            return []
        key = (citation.url, citation.title, citation.start, citation.end)
        if key in self._known:
            return []
        self._known.add(key)
        if citation.url is not None:
            self._pages.add(citation.url)
        self.all.append(citation)
        return [citation]

    def wait_for_part(self, citation: Citation, offset: int) -> None:
        """Add a citation for the text from an offset on, when `settle` is called."""
        self._waiting.append(_Waiting(citation, offset, None))

    def wait_for_text(self, citation: Citation, quote: str) -> None:
        """Add a citation whose positions count the bytes of the text, when `settle_all` is called."""
        self._waiting.append(_Waiting(citation, None, quote))

    def settle(self, length: int) -> list[Citation]:
        """Return the new citations of a part that ends where the text has this length."""
        waiting, self._waiting = self._waiting, [item for item in self._waiting if item.offset is None]
        return [
            new
            for item in waiting
            if item.offset is not None
            for new in self.add(_placed(item.citation, item.offset, length))
        ]

    def settle_all(self, text: str) -> list[Citation]:
        """Return the new ones of all citations that wait, at the end of the reply with this text."""
        out = self.settle(len(text))
        waiting, self._waiting = self._waiting, []
        places = _character_places(text, [item.citation for item in waiting])
        for item in waiting:
            start, end = places.get(item.citation.start), places.get(item.citation.end)
            if start is None or end is None or (item.quote and text[start:end] != item.quote):
                start = text.find(item.quote) if item.quote else -1
                end = start + len(item.quote or "")
            out += self.add(_placed(item.citation, start, end))
        return out

    @property
    def has_waiting(self) -> bool:
        """Whether the place of a citation is still to be found."""
        return bool(self._waiting)


def without_place(citation: Citation) -> Citation:
    """Return a citation for the answer as a whole."""
    return replace(citation, start=None, end=None)


def _placed(citation: Citation, start: int, end: int) -> Citation:
    """Return a citation with a place; without one where nothing is at that place."""
    known = 0 <= start < end
    return replace(citation, start=start if known else None, end=end if known else None)


def _character_places(text: str, citations: Sequence[Citation]) -> dict[int | None, int]:
    """Return the index of the character for each index of a byte that a citation has."""
    wanted = sorted({place for c in citations for place in (c.start, c.end) if place is not None})
    data = text.encode("utf-8", "surrogatepass")
    places: dict[int | None, int] = {}
    characters = byte = 0
    for place in wanted:
        if 0 <= place <= len(data):
            characters += len(data[byte:place].decode("utf-8", "ignore"))
            byte = place
            places[place] = characters
    return places
