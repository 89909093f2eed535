"""Make ids of calls and names of tools that the endpoint accepts.

An id is unique in its conversation. A name gets the same form each time, so that prompt caches hit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from cnllm.registry.flags import Tools
from cnllm.types import Message, ToolCall, ToolResult

__all__ = ["ReplyIds", "UniqueIds", "accepted_name", "distinct_name", "matches_pattern"]

_MAX_ATTEMPTS = 100  # attempts to make an id that matches a pattern and is unused
_USUAL_LENGTH = 64  # where a name has to be changed and no limit is known
_REFUSED = re.compile(r"[^A-Za-z0-9_-]+")


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

    def id(self, own_id: str, index: int, text: str) -> str:
        """Return the id of a call: `own_id` if it is unused. `text` is the known text of the call."""
        ids = self._ids or self._begin()
        if own_id and ids.claim(own_id):
            return own_id
        if own_id:
            self.renamed.append(own_id)
        name = own_id or f"call_{self._digest(index, text)}"
        return ids.derive(name, differs=bool(own_id)) or self._any_unused(ids, name)

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


# ── names of tools ───────────────────────────────────────────────────────────


def accepted_name(name: str, rules: Tools) -> tuple[str, str] | None:
    """Return a form of a name that the endpoint accepts, and the flag that requires it; None for an accepted name.

    Characters that may not stand in a name become an underscore. Where letters are lost in that way, or the name is
    too long, it ends with digits of its own.
    """
    longest, pattern = rules.name_max_length, rules.name_pattern
    is_long = longest is not None and len(name) > longest
    if matches_pattern(pattern, name):
        return (distinct_name(name, rules), "tools.name_max_length") if is_long else None
    has_lost = is_long or any(char.isalnum() for text in _REFUSED.findall(name) for char in text)
    short = _plain_form(name, pattern)
    if has_lost or (longest is not None and len(short) > longest):
        short = distinct_name(name, rules)
    return (short, "tools.name_pattern") if matches_pattern(pattern, short) else None  # nothing is known to match


def distinct_name(name: str, rules: Tools) -> str:
    """Return a form of a name that no other name has."""
    import hashlib  # loads OpenSSL, so only where it is needed

    longest = rules.name_max_length if rules.name_max_length is not None else _USUAL_LENGTH
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    if longest <= 9:
        return digest[:longest]
    plain = name if matches_pattern(rules.name_pattern, name) else _plain_form(name, rules.name_pattern)
    return f"{plain[: longest - 9]}_{digest}"


def _plain_form(name: str, pattern: str | None) -> str:
    """Return a name without the characters that endpoints refuse; it begins with a letter where it has to."""
    plain = _REFUSED.sub("_", name)
    return plain if matches_pattern(pattern, plain) else f"tool_{plain}"
