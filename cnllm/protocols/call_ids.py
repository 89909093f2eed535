"""Make ids of calls that are unique in a conversation and match the endpoint's pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cnllm.types import Message, ToolCall, ToolResult

__all__ = ["ReplyIds", "UniqueIds", "matches_pattern"]

_MAX_ATTEMPTS = 100  # attempts to make an id that matches a pattern and is unused


class UniqueIds:
    """Ids of a pattern, each used once. Without a pattern, or with an unusable one, any id matches."""

    __slots__ = ("_attempts", "_pattern", "_used")

    def __init__(self, pattern: str | None) -> None:
        self._pattern = pattern or None
        self._used: set[str] = set()
        self._attempts: dict[str, int] = {}

    def derive(self, name: str, *, differs: bool) -> str | None:
        """Return an unused id made from this one; None if the pattern leaves none.

        With `differs` the new id must not be this one.
        """
        for attempt in range(self._attempts.get(name, 0), self._attempts.get(name, 0) + _MAX_ATTEMPTS):
            id = self._candidate(name, attempt, differs=differs)
            if id is not None and id not in self._used:
                self._attempts[name] = attempt + 1
                self._used.add(id)
                return id
        return None

    def reserve(self, ids: Iterable[str]) -> None:
        """Mark ids as used."""
        self._used.update(ids)

    def claim(self, id: str) -> bool:
        """Whether an id was unused; it is used from now on."""
        if id in self._used:
            return False
        self._used.add(id)
        return True

    def _candidate(self, name: str, attempt: int, *, differs: bool) -> str | None:
        """Return the candidate of an attempt: close to the old id, if the pattern allows that."""
        candidate = f"{name}_{attempt + 2}" if differs or attempt else name
        if self.matches(candidate):
            return candidate
        return _id_for(name if not (attempt or differs) else candidate, self.matches)

    def matches(self, id: str) -> bool:
        """Whether an id matches the pattern."""
        return matches_pattern(self._pattern, id)


class ReplyIds:
    """The ids of one reply's calls: the endpoint's ids if they are new in the conversation, else new ones.

    `pattern` is the endpoint's pattern for ids, `history` the messages before, `seed` the bytes of the request. An
    id is made from the request, the reply's own id and the call, so that equal bytes give equal ids, and no other
    reply does.
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
        """Return the id of a call: `wanted` if it is unused. `text` is the known text of the call."""
        ids = self._ids or self._begin()
        if wanted and ids.claim(wanted):
            return wanted
        if wanted:
            self.renamed.append(wanted)
        name = wanted or f"call_{self._digest(index, text)}"
        return ids.derive(name, differs=bool(wanted)) or self._any_unused(ids, name)

    def _any_unused(self, ids: UniqueIds, name: str) -> str:
        """Return an id that does not match the pattern, because no more do. The next request repairs or reports it."""
        while not ids.claim(id := f"{name}_{len(self.renamed)}_{self._digest(len(self.renamed), name)}"):
            self.renamed.append(name)
        return id

    def _begin(self) -> UniqueIds:
        """Collect the ids of the history."""
        self._ids = ids = UniqueIds(self._pattern)
        parts = [part for turn in self._history for part in turn.parts]
        ids.reserve([part.id for part in parts if type(part) is ToolCall or type(part) is ToolResult])
        return ids

    def _digest(self, index: int, text: str) -> str:
        """Return digits made from the request, the reply and a call."""
        import hashlib  # imports OpenSSL, so only when needed

        if len(self._seed) > 32:
            self._seed = hashlib.sha256(self._seed).digest()
        facts = f"{self.reply}\0{index}\0{text}".encode("utf-8", "replace")
        number = int.from_bytes(hashlib.sha256(self._seed + facts).digest()[:8], "big")
        return f"{number:020}"  # digits alone: a wire without ids recognises by them an id that it did not give


def _id_for(old: str, matches: Callable[[str], bool]) -> str | None:
    """Return an id made from the old one, with the length and the characters that the pattern requires; or None."""
    import hashlib  # imports OpenSSL, so only when needed

    digest = int.from_bytes(hashlib.sha256(old.encode("utf-8", "replace")).digest(), "big")
    lower, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"
    for alphabet in (digits + lower.upper() + lower, lower + digits, lower, digits, lower.upper(), digits + "abcdef"):
        number, text = digest, ""
        while number:
            number, digit_index = divmod(number, len(alphabet))
            text += alphabet[digit_index]
        for length in (9, 12, 16, 24, 32, 40):
            for candidate in (text[:length], f"call_{text[:length]}"):
                if matches(candidate):
                    return candidate
    return None


def matches_pattern(pattern: str | None, text: str) -> bool:
    """Whether the id or the name of a call matches the endpoint's pattern, as far as there is one that can be read."""
    if pattern is None:
        return True
    from cnllm.schemas.patterns import matches_whole  # most programs make no call with a pattern

    return matches_whole(pattern, text)
