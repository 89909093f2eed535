"""Compare the requests of a conversation, and find the first part that broke the endpoint's prefix cache.

An endpoint reads from its cache what begins exactly as an earlier request did: tools first, then the system message,
then the other messages. After the first byte that differs, it reads nothing from the cache.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

__all__ = [
    "Fingerprint",
    "PrefixBreak",
    "PrefixLoss",
    "changed_parameters",
    "fingerprint",
    "first_break",
    "first_loss",
    "lost_tokens",
]

_TOOLS = ("tools", "functions")
_SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
_MESSAGES = ("messages", "input", "contents")
_HARMLESS = {"stream", "stream_options", "stop", "user", "store"}
"""Parameters that no prompt holds. Numbers, as those of sampling, count as such too."""

_SYSTEM_LABELS = ("(system)", "(developer)")
_CACHE_MARK = b'"cache_control"'
_MARGIN = 24
_BYTES_PER_TOKEN = 4
_encode = msgspec.json.Encoder().encode
_TIME = re.compile(
    r"\d{1,2}:\d{2}(:\d{2})?|\d{4}-\d{2}-\d{2}|\d{4}/\d{1,2}/\d{1,2}|\b1[6-9]\d{8}(\d{3})?\b|\d年|\d月|\d日"
)
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-|[0-9a-fA-F]{12,}|\b(?=\w*\d)(?=\w*[A-Za-z])\w{16,}\b")


_Mark = tuple[str, bytes, int]


class PrefixBreak(Struct, frozen=True):
    """The first part that differed: its place in the body, the cause in words, and both texts, shortened."""

    where: str
    cause: str
    before: str | None
    after: str | None


def first_break(before: Mapping[str, Any], after: Mapping[str, Any]) -> PrefixBreak | None:
    """Return where a body stops to begin as an earlier one did; None where the earlier one is its beginning.

    A body that ends before any difference breaks nothing: the cache holds all of it.
    """
    for names, last in ((_TOOLS, False), (_SYSTEM, False), (_MESSAGES, True)):
        broken = _section_break(_items(before, names), _items(after, names), last=last)
        if broken is not None:
            return broken
    return None


class Fingerprint(Struct, frozen=True):
    """The parts of a request without their words: of each its place, a digest, and its length in bytes."""

    tools: tuple[_Mark, ...]
    system: tuple[_Mark, ...]
    messages: tuple[_Mark, ...]

    @property
    def size(self) -> int:
        """Return the length of all parts in bytes."""
        return sum(size for section in (self.tools, self.system, self.messages) for _, _, size in section)

    @property
    def turns(self) -> tuple[_Mark, ...]:
        """Return the messages without those of the system."""
        return tuple([mark for mark in self.messages if not mark[0].endswith(_SYSTEM_LABELS)])

    @property
    def first_turn(self) -> bytes:
        """Return the digest of the first message that is not the system's; empty where there is none."""
        for place, digest, _ in self.messages:
            if not place.endswith(_SYSTEM_LABELS):
                return digest
        return b""


class PrefixLoss(Struct, frozen=True):
    """The first part that differed: its place, the cause in words, and the share of the earlier request behind it."""

    where: str
    cause: str
    share: float


def fingerprint(body: Mapping[str, Any]) -> Fingerprint:
    """Return the parts of a body without their words."""
    return Fingerprint(_marks(body, _TOOLS), _marks(body, _SYSTEM), _marks(body, _MESSAGES))


def first_loss(before: Fingerprint, after: Fingerprint) -> PrefixLoss | None:
    """Return where a request stops to begin as an earlier one did, as `first_break` does; without any words."""
    is_same = after.tools == before.tools and after.system == before.system
    if is_same and after.messages[: len(before.messages)] == before.messages:  # most often
        return None
    kept = 0
    for old, new, last in (
        (before.tools, after.tools, False),
        (before.system, after.system, False),
        (before.messages, after.messages, True),
    ):
        for number, ((place, digest, size), (new_place, new_digest, _)) in enumerate(zip(old, new, strict=False)):
            if digest != new_digest:
                is_later = any(digest == mark[1] for mark in new[number + 1 :])
                was_later = any(new_digest == mark[1] for mark in old[number + 1 :])
                cause = _CAUSES[is_later, was_later]
                return _loss(place if was_later and not is_later else new_place, cause, kept, before)
            kept += size
        if len(new) > len(old) and not last:
            return _loss(new[len(old)][0], "it was added", kept, before)
        if len(new) < len(old) and not last:
            return _loss(old[len(new)][0], "it was removed", kept, before)
    return None


def _loss(where: str, cause: str, kept: int, before: Fingerprint) -> PrefixLoss:
    return PrefixLoss(where, cause, (before.size - kept) / (before.size or 1))


def lost_tokens(size: int, tokens: int | None, share: float) -> int:
    """Return about how many tokens of an earlier request are lost.

    It had `size` bytes, and `tokens` of input where that is known; `share` of it stands behind the difference.
    """
    return round((size // _BYTES_PER_TOKEN if tokens is None else tokens) * share)


def changed_parameters(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the other parameters that differ, by which some endpoints separate their caches."""
    parts = {*_TOOLS, *_SYSTEM, *_MESSAGES, *_HARMLESS}
    names = [name for name in dict.fromkeys([*before, *after]) if name not in parts]
    pairs = [(name, before.get(name), after.get(name)) for name in names]
    return [name for name, old, new in pairs if old != new and not (_is_number(old) and _is_number(new))]


def _is_number(value: Any) -> bool:
    """Whether a value is a number, or absent."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_Item = tuple[str, Any]


_CAUSES = {
    (True, True): "the order changed",
    (True, False): "it was put in here",
    (False, True): "it is left out now",
    (False, False): "it changed",
}
"""The cause of a difference, by whether the old part stands later now, and whether the new one stood later before."""


def _marks(body: Mapping[str, Any], names: Sequence[str]) -> tuple[_Mark, ...]:
    """Return the parts of a section without their words."""
    return tuple([_mark(place, value) for place, value in _raw_items(body, names)])


def _mark(place: str, value: Any) -> _Mark:
    """Return a part without its words."""
    try:
        data = _encode(value)
        if _CACHE_MARK in data:
            data = _encode(_plain(value))
    except UnicodeEncodeError:  # half a surrogate pair
        data = _bytes(_plain(value)).encode("utf-8", "surrogatepass")
    return place, hashlib.blake2b(data, digest_size=12).digest(), len(data)


def _items(body: Mapping[str, Any], names: Sequence[str]) -> list[_Item]:
    """Return the parts of a section, each with its place."""
    return [(place, _plain(item)) for place, item in _raw_items(body, names)]


def _raw_items(body: Mapping[str, Any], names: Sequence[str]) -> list[_Item]:
    """Return the parts of a section as they are, cache marks included."""
    for name in names:
        if (value := body.get(name)) is not None:
            break
    else:
        return []
    if not isinstance(value, list):
        return [(f"{name}{_label(value)}", value)]
    return [(f"{name}[{number}]{_label(item)}", item) for number, item in enumerate(value)]


def _label(item: Any) -> str:
    """Return the role or the name of a part, in brackets."""
    if type(item) is not dict:
        return ""
    if not (name := item.get("role") or item.get("name")) and type(function := item.get("function")) is dict:
        name = function.get("name")
    return f" ({name})" if isinstance(name, str) else ""


def _plain(value: Any) -> Any:
    """Return a value without cache marks: they name what to keep, and are no part of the prompt."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if key != "cache_control"}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _section_break(before: list[_Item], after: list[_Item], *, last: bool) -> PrefixBreak | None:
    for number, ((place, old), (new_place, new)) in enumerate(zip(before, after, strict=False)):
        if _bytes(old) != _bytes(new):
            if (moved := _move(before[number:], after[number:])) is not None:
                return moved
            path, cause, texts = _difference(old, new)
            where = place if place == new_place else new_place
            return PrefixBreak(where + (f": {path}" if path else ""), cause, *texts)
    if last or len(before) == len(after):
        return None
    if len(after) > len(before):
        place, item = after[len(before)]
        return PrefixBreak(place, "it was added", None, _short(_bytes(item)))
    place, item = before[len(after)]
    return PrefixBreak(place, "it was removed", _short(_bytes(item)), None)


def _move(before: list[_Item], after: list[_Item]) -> PrefixBreak | None:
    """Return the break where the first part was taken out or put in before others; None where it was changed."""
    (place, old), (new_place, new) = before[0], after[0]
    old_bytes, new_bytes = _bytes(old), _bytes(new)
    is_later = any(_bytes(item) == old_bytes for _, item in after[1:])
    was_later = any(_bytes(item) == new_bytes for _, item in before[1:])
    if is_later and was_later:
        return PrefixBreak(new_place, "the order changed", _short(old_bytes), _short(new_bytes))
    if is_later:
        return PrefixBreak(new_place, "it was put in here", None, _short(new_bytes))
    return PrefixBreak(place, "it is left out now", _short(old_bytes), None) if was_later else None


def _bytes(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sorted_bytes(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _short(text: str) -> str:
    return text if len(text) <= 2 * _MARGIN else f"{text[: 2 * _MARGIN]}…"


# ── causes ───────────────────────────────────────────────────────────────────
_Texts = tuple[str | None, str | None]


def _difference(old: Any, new: Any) -> tuple[str, str, _Texts]:
    """Return the path of the first difference, its cause, and both texts."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.get("role") != new.get("role"):
        return "", "another message stands there", (_short(_bytes(old)), _short(_bytes(new)))
    if old == new and _sorted_bytes(old) == _sorted_bytes(new):
        return "", "the keys are in another order", (_short(_bytes(old)), _short(_bytes(new)))
    for path, old_leaf, new_leaf in _leaves(old, new, ""):
        if old_leaf is _ABSENT:
            return path, "it was not there before", (None, _short(_bytes(new_leaf)))
        if new_leaf is _ABSENT:
            return path, "it is left out now", (_short(_bytes(old_leaf)), None)
        if isinstance(old_leaf, str) and isinstance(new_leaf, str):
            return path, *_text_difference(old_leaf, new_leaf)
        return path, "it changed", (_short(_bytes(old_leaf)), _short(_bytes(new_leaf)))
    return "", "it changed", (_short(_bytes(old)), _short(_bytes(new)))


_ABSENT: Any = object()


def _leaves(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the values that differ, in the order of the old ones."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from _leaves(old.get(key, _ABSENT), new.get(key, _ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list):
        for number in range(max(len(old), len(new))):
            pair = [items[number] if number < len(items) else _ABSENT for items in (old, new)]
            yield from _leaves(pair[0], pair[1], f"{path}[{number}]")
    elif old is _ABSENT or new is _ABSENT or old != new or type(old) is not type(new):
        yield path, old, new


def _text_difference(old: str, new: str) -> tuple[str, _Texts]:
    """Return why two texts differ, and both around the first difference."""
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    texts = _around(old, start), _around(new, start)
    try:
        if json.loads(old) == json.loads(new):
            return "the same JSON is written in another way", texts
    except (ValueError, RecursionError):
        pass
    if start == len(old):
        return "text was added at its end", texts
    if start == len(new):
        return "its end was cut off", texts
    for pattern, cause in ((_TIME, "it holds a time, which changes"), (_ID, "it holds an id, which changes")):
        if _covers(pattern, old, start) and _covers(pattern, new, start):
            return cause, texts
    return "its text changed", texts


def _covers(pattern: re.Pattern[str], text: str, position: int) -> bool:
    """Whether a match of the pattern holds a position."""
    begin = max(0, position - 64)
    return any(begin + m.start() <= position < begin + m.end() for m in pattern.finditer(text[begin : position + 64]))


def _around(text: str, position: int) -> str:
    begin, end = max(0, position - _MARGIN), position + _MARGIN
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"
