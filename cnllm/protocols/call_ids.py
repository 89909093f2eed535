"""Ids of calls: each once in a conversation, and of the endpoint's pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cnllm.types import Message, ToolCall, ToolResult

__all__ = ["ReplyIds", "UniqueIds"]

_TRIES = 100  # a pattern that leaves room for no more ids than this cannot be met


class UniqueIds:
    """Ids of a pattern, each given once. Without a pattern, or with one that cannot be matched, any id fits."""

    __slots__ = ("_given", "_pattern", "_tries")

    def __init__(self, pattern: str | None) -> None:
        self._pattern = pattern or None
        self._given: set[str] = set()
        self._tries: dict[str, int] = {}

    def near(self, name: str, differs: bool) -> str | None:
        """Return a new id made from this one, which it is not where it `differs`; None where the pattern has none."""
        for attempt in range(self._tries.get(name, 0), self._tries.get(name, 0) + _TRIES):
            made = self._made(name, attempt, differs)
            if made is not None and made not in self._given:
                self._tries[name] = attempt + 1
                self._given.add(made)
                return made
        return None

    def take(self, ids: Iterable[str]) -> None:
        """Mark ids as given."""
        self._given.update(ids)

    def free(self, id: str) -> bool:
        """Whether no call has this id; from now on one has."""
        if id in self._given:
            return False
        self._given.add(id)
        return True

    def _made(self, name: str, attempt: int, fits: bool) -> str | None:
        """The candidate of an attempt: near to the old id where the pattern lets it be."""
        near = f"{name}_{attempt + 2}" if fits or attempt else name
        if self.fits(near):
            return near
        return _id_for(name if not (attempt or fits) else near, self.fits)

    def fits(self, id: str) -> bool:
        """Whether an id is of the pattern."""
        return self._pattern is None or _fits(self._pattern, id)


class ReplyIds:
    """The ids of one reply's calls: those of the wire where they are new in the conversation, new ones otherwise.

    `pattern` is the endpoint's for ids, `history` what was said before, `seed` the request's bytes. An id is made from
    the request, the reply's own id and the call, so that the same bytes give the same ids, and no other reply does.
    """

    __slots__ = ("_history", "_ids", "_pattern", "_seed", "renamed", "reply")

    def __init__(self, pattern: str | None = None, history: Sequence[Message] = (), seed: bytes = b"") -> None:
        self._pattern = pattern
        self._history = history
        self._seed = seed
        self._ids: UniqueIds | None = None
        self.reply: str | None = None
        self.renamed: list[str] = []

    def id(self, wanted: str, index: int, text: str) -> str:
        """Return the id of a call: the one `wanted` if it is free. `text` is what is known of the call."""
        ids = self._ids or self._begin()
        if wanted and ids.free(wanted):
            return wanted
        if wanted:
            self.renamed.append(wanted)
        name = wanted or f"call_{self._digest(index, text)}"
        return ids.near(name, bool(wanted)) or self._outside(ids, name)

    def _outside(self, ids: UniqueIds, name: str) -> str:
        """Return an id that does not fit the pattern, as no more do; the next request makes it fit or says why not."""
        while not ids.free(made := f"{name}_{len(self.renamed)}_{self._digest(len(self.renamed), name)}"):
            self.renamed.append(name)
        return made

    def _begin(self) -> UniqueIds:
        self._ids = ids = UniqueIds(self._pattern)
        parts = [part for turn in self._history for part in turn.parts]
        ids.take([part.id for part in parts if type(part) is ToolCall or type(part) is ToolResult])
        return ids

    def _digest(self, index: int, text: str) -> str:
        import hashlib  # it brings OpenSSL along

        if len(self._seed) > 32:
            self._seed = hashlib.sha256(self._seed).digest()
        told = f"{self.reply}\0{index}\0{text}".encode("utf-8", "replace")
        number = int.from_bytes(hashlib.sha256(self._seed + told).digest()[:8], "big")
        return f"{number:020}"  # digits alone: a wire without ids knows by them that it gave none


def _id_for(old: str, matches: Callable[[str], bool]) -> str | None:
    """Characters made from the old id, as many and of such a kind as the pattern asks for."""
    import hashlib  # it brings OpenSSL along

    digest = int.from_bytes(hashlib.sha256(old.encode("utf-8", "replace")).digest(), "big")
    lower, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"
    for alphabet in (digits + lower.upper() + lower, lower + digits, lower, digits, lower.upper(), digits + "abcdef"):
        number, text = digest, ""
        while number:
            number, place = divmod(number, len(alphabet))
            text += alphabet[place]
        for length in (9, 12, 16, 24, 32, 40):
            for candidate in (text[:length], f"call_{text[:length]}"):
                if matches(candidate):
                    return candidate
    return None


def _fits(pattern: str, id: str) -> bool:
    from cnllm.schemas import whole_matcher  # a request without calls needs none

    matches = whole_matcher(pattern)
    return matches is None or matches(id)
