"""Compare the requests of a conversation, and find the first part that broke the endpoint's prefix cache.

An endpoint reads from its cache what begins exactly as an earlier request did: tools first, then the system message,
then the other messages. After the first byte that differs, it reads nothing from the cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from cnllm.store.records import PrefixBreak
from cnllm.types.lenient_json import replace_surrogates

if TYPE_CHECKING:
    from cnllm.types.message_memory import MessageMemory

__all__ = [
    "Fingerprint",
    "PrefixLoss",
    "changed_parameters",
    "content_fingerprint",
    "fingerprint",
    "first_break",
    "first_loss",
    "lost_tokens",
]

_TOOLS = ("tools", "functions")
_SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
_MESSAGES = ("messages", "input", "contents")
_SECTIONS = (_TOOLS, _SYSTEM, _MESSAGES)
_HARMLESS = {"stream", "stream_options", "stop", "user", "store"}
"""Parameters that no prompt holds. Numbers, as those of sampling, count as such too."""

_SYSTEM_LABELS = ("(system)", "(developer)")
_CACHE_MARK = b'"cache_control"'
_MARGIN = 24
_BYTES_PER_TOKEN = 4
_encode = msgspec.json.Encoder().encode
_sections = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_TIME = re.compile(
    r"\d{1,2}:\d{2}(:\d{2})?|\d{4}-\d{2}-\d{2}|\d{4}/\d{1,2}/\d{1,2}|\b1[6-9]\d{8}(\d{3})?\b|\d年|\d月|\d日"
)
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-|[0-9a-fA-F]{12,}|\b(?=\w*\d)(?=\w*[A-Za-z])\w{16,}\b")


_LABEL = re.compile(rb'\{(?:"role":"|"type":"function","function":\{"name":")([\w-]+)"')
"""How a message or a function begins, where cnllm wrote it."""

_Mark = tuple[str, int, int]


def first_break(before: Mapping[str, Any], after: Mapping[str, Any]) -> PrefixBreak | None:
    """Return where a body stops to begin as an earlier one did; None where the earlier one is its beginning.

    A body that ends before any difference breaks nothing: the cache holds all of it.
    """
    found = _first_difference(fingerprint(before), fingerprint(after))
    if found is None:
        return None
    names = _SECTIONS[found.section]
    old, new = ([_plain(item) for item in _raw_items(body, names)][found.number :] for body in (before, after))
    if found.cause == _CHANGED:
        path, cause, texts = _difference(old[0], new[0])
        return PrefixBreak(found.where + (f": {path}" if path else ""), cause, *texts)
    is_shown = found.cause not in (_ADDED, _PUT_IN), found.cause not in (_REMOVED, _LEFT_OUT)
    excerpts = [_short(_bytes(items[0])) if is_in else None for items, is_in in zip((old, new), is_shown, strict=True)]
    return PrefixBreak(found.where, found.cause, *excerpts)


class Fingerprint(Struct, frozen=True):
    """The parts of a request without their words: of each its role or name, a hash, and its length in bytes.

    The hashes are Python's, whose key is random: they mean something in one process only. `names` are those of the
    sections in the body, with brackets where a section is a list.
    """

    tools: tuple[_Mark, ...]
    system: tuple[_Mark, ...]
    messages: tuple[_Mark, ...]
    names: tuple[str, str, str]

    @property
    def sections(self) -> tuple[tuple[_Mark, ...], ...]:
        """Return the three parts in the order of the prompt."""
        return self.tools, self.system, self.messages

    def place(self, section: int, number: int) -> str:
        """Return the place of a part in the body, with its role or name."""
        name, label = self.names[section], self.sections[section][number][0]
        return f"{name[:-2]}[{number}]{label}" if name.endswith("[]") else f"{name}{label}"

    @property
    def size(self) -> int:
        """Return the length of all parts in bytes."""
        return sum(size for section in self.sections for _, _, size in section)

    @property
    def turns(self) -> tuple[_Mark, ...]:
        """Return the messages without those of the system."""
        return tuple([mark for mark in self.messages if not mark[0].endswith(_SYSTEM_LABELS)])

    @property
    def first_turn(self) -> int:
        """Return the hash of the first message that is not the system's; 0 where there is none."""
        for label, digest, _ in self.messages:
            if not label.endswith(_SYSTEM_LABELS):
                return digest
        return 0


class PrefixLoss(Struct, frozen=True):
    """The first part that differed: its place, the cause in words, and the share of the earlier request behind it."""

    where: str
    cause: str
    share: float


def fingerprint(body: Mapping[str, Any]) -> Fingerprint:
    """Return the parts of a body without their words."""
    return content_fingerprint(_encode(_sendable(body)))


def content_fingerprint(content: bytes, memory: MessageMemory | None = None) -> Fingerprint:
    """Return the parts of a body without their words. `memory` remembers those of earlier requests of this client."""
    body = _sections(content)
    sections: list[tuple[_Mark, ...]] = []
    names: list[str] = []
    for keys in _SECTIONS:
        name = ""
        marks: tuple[_Mark, ...] = ()
        for key in keys:
            if key in body and (data := bytes(body[key])) != b"null":
                is_list = data.startswith(b"[")
                name, marks = (f"{key}[]", _marks(data, memory)) if is_list else (key, (_mark(data),))
                break
        sections.append(marks)
        names.append(name)
    return Fingerprint(sections[0], sections[1], sections[2], (names[0], names[1], names[2]))


def _marks(data: bytes, memory: MessageMemory | None) -> tuple[_Mark, ...]:
    """Return the items of a list without their words. Those that the memory has are not read again."""
    known = None if memory is None else memory.decode_list("marks", data, _read_marks, len(data))
    return tuple(_read_marks(data) if known is None else known.items)


def _read_marks(data: bytes) -> list[_Mark]:
    """Return the items of a list without their words."""
    return [_mark(bytes(item)) for item in _elements(data)]


def first_loss(before: Fingerprint, after: Fingerprint) -> PrefixLoss | None:
    """Return where a request stops to begin as an earlier one did, as `first_break` does; without any words."""
    is_same = after.tools == before.tools and after.system == before.system
    if is_same and after.messages[: len(before.messages)] == before.messages:  # most often
        return None
    found = _first_difference(before, after)
    if found is None:
        return None
    marks = [mark for section in before.sections[: found.section] for mark in section]
    marks += before.sections[found.section][: found.number]
    share = (before.size - sum(size for _, _, size in marks)) / (before.size or 1)
    return PrefixLoss(found.where, found.cause, share)


class _Difference(NamedTuple):
    """The first part that differs: its section, its number there, its place in the body, and the cause in words."""

    section: int
    number: int
    where: str
    cause: str


def _first_difference(before: Fingerprint, after: Fingerprint) -> _Difference | None:
    """Return the first part of the later request that differs from the earlier one; None where all begin alike."""
    last = len(_SECTIONS) - 1
    for section, (old, new) in enumerate(zip(before.sections, after.sections, strict=True)):
        for number, ((_, digest, _), (_, new_digest, _)) in enumerate(zip(old, new, strict=False)):
            if digest != new_digest:
                is_later = any(digest == mark[1] for mark in new[number + 1 :])
                was_later = any(new_digest == mark[1] for mark in old[number + 1 :])
                where = (before if was_later and not is_later else after).place(section, number)
                return _Difference(section, number, where, _CAUSES[is_later, was_later])
        if section != last and len(old) != len(new):
            number = min(len(old), len(new))
            longer, cause = (after, _ADDED) if len(new) > len(old) else (before, _REMOVED)
            return _Difference(section, number, longer.place(section, number), cause)
    return None


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


_ADDED, _REMOVED, _CHANGED = "it was added", "it was removed", "it changed"
_PUT_IN, _LEFT_OUT = "it was put in here", "it is left out now"
_CAUSES = {
    (True, True): "the order changed",
    (True, False): _PUT_IN,
    (False, True): _LEFT_OUT,
    (False, False): _CHANGED,
}
"""The cause of a difference, by whether the old part stands later now, and whether the new one stood later before."""


def _mark(data: bytes) -> _Mark:
    """Return a part without its words."""
    begin = _LABEL.match(data)
    label = _label(msgspec.json.decode(data)) if begin is None else f" ({begin[1].decode()})"
    if data.find(_CACHE_MARK) >= 0:  # `in` costs more: it first tries whether its left is a number
        data = _encode(_plain(msgspec.json.decode(data)))
    return label, hash(data), len(data)


def _sendable(body: Mapping[str, Any]) -> Any:
    """Return a body that UTF-8 can hold."""
    try:
        _encode(body)
    except UnicodeEncodeError:  # half a surrogate pair
        return replace_surrogates(body)
    return body


def _raw_items(body: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """Return the parts of a section as they are, cache marks included."""
    items: Any = next((value for name in names if (value := body.get(name)) is not None), [])
    return items if isinstance(items, list) else [items]


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


def _bytes(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _short(text: str) -> str:
    return text if len(text) <= 2 * _MARGIN else f"{text[: 2 * _MARGIN]}…"


# ── causes ───────────────────────────────────────────────────────────────────
_Texts = tuple[str | None, str | None]


def _difference(old: Any, new: Any) -> tuple[str, str, _Texts]:
    """Return the path of the first difference, its cause, and both texts."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.get("role") != new.get("role"):
        return "", "another message stands there", (_short(_bytes(old)), _short(_bytes(new)))
    if old == new and json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
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
