"""Define the block that a grammar reads and the calls that it returns, and read names and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from cnllm.schemas.coerce import decode_json, property_schema

__all__ = [
    "ENOUGH",
    "InnerTags",
    "MarkupBlock",
    "NotACall",
    "NotOffered",
    "ParsedCall",
    "ValuePatterns",
    "is_plausible_name",
    "json_object",
    "may_be_parameter",
    "object_of",
    "read_items",
    "read_name",
    "skip_space",
    "stops_in_value",
    "strip_own_lines",
    "value_end",
]

ENOUGH = 200  # characters that decide whether a block begins
NAME = r"[\w.:/@-]{1,128}"
_NAME = re.compile(NAME)
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r":\d{1,9}\Z")  # the index of the call, which some models write behind the name


class ParsedCall(Struct, frozen=True):
    """A call as written. If its arguments are no JSON object, `arguments` is None and `raw` is their text."""

    name: str
    arguments: dict[str, Any] | None
    raw: str = ""


class NotACall(Exception):
    """A block is not certainly a call; the message gives the reason. `calls` are readable ones of unknown tools."""

    def __init__(self, message: str, calls: Sequence[ParsedCall] = ()) -> None:
        super().__init__(message)
        self.calls = [*calls]


class NotOffered(NotACall):
    """A block calls a tool that was not offered."""


class MarkupBlock(Struct, frozen=True):
    """A complete block: `opener` and `closer` as written, `body` between them."""

    opener: str
    body: str
    closer: str
    parts: tuple[str, ...]
    tools: Mapping[str, Mapping[str, Any] | None]
    strict: bool = False

    @property
    def text(self) -> str:
        """Return the whole block as written."""
        return self.opener + self.body + self.closer

    def part(self, body: str) -> MarkupBlock:
        """Return a piece of this block as a block of another grammar, without markers of its own."""
        return MarkupBlock("", body, "", (), self.tools)


def is_plausible_name(name: str) -> bool:
    """Whether a text could be the name of a tool, and is no markup, sentence or line."""
    return _NAME.fullmatch(name) is not None


def read_name(name: str, tools: Mapping[str, Any]) -> str:
    """Return the name of a tool in the spelling of the request. Raises `NotACall` if the text cannot be a name."""
    name = name.strip()
    if name in tools:
        return name
    if not is_plausible_name(name):
        raise NotACall("the text in the place of the name is not a name")
    bare = name.removeprefix("functions.")
    unnumbered = _NUMBER.sub("", bare)
    return next((known for known in (bare, unnumbered) if known in tools), name)


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None for anything else."""
    try:
        value, end = decode_json(text)
    except ValueError:
        return None
    return value if type(value) is dict and not text[end:].strip() else None


def skip_space(text: str, position: int, space: re.Pattern[str] = _SPACE) -> int:
    """Return the position behind white space, or behind whatever else counts as `space`."""
    match = space.match(text, position)
    return match.end() if match else position


def read_items(text: str, position: int, closer: str, read: Callable[[int], tuple[Any, int]]) -> tuple[list[Any], int]:
    """Return (the items with commas between them up to a closer, the position behind it)."""
    items: list[Any] = []
    position = skip_space(text, position)
    while not text.startswith(closer, position):
        item, position = read(position)
        items.append(item)
        position = skip_space(text, position)
        if text.startswith(",", position):
            position = skip_space(text, position + 1)
        elif not text.startswith(closer, position):
            raise NotACall("its arguments are not closed")
    return items, position + 1


def object_of(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return named values as an object. Raises `NotACall` if a name stands twice: no reader can tell which counts."""
    out = dict(items)
    if len(out) < len(items):
        raise NotACall("an argument stands twice")
    return out


def strip_own_lines(value: str) -> str:
    """Return a value without the line breaks that put it on lines of its own. All other space belongs to it."""
    return value[1:-1] if value[:1] == "\n" == value[-1:] else value


def may_be_parameter(schema: Any, name: str) -> bool:
    """Whether a tool may have a parameter: one that its schema declares, or any where it declares none."""
    declares = isinstance(schema, Mapping) and schema.get("properties")
    return not declares or property_schema(schema, name, schema) is not None


class ValuePatterns:
    """The patterns of a grammar with tags around values: `values` matches these tags.

    Its first group is set in an opening one. `value_end` matches what may follow a value, `block_tail` what may follow
    the last value of a block.
    """

    values: re.Pattern[str]
    value_end: re.Pattern[str]
    block_tail: re.Pattern[str]


def stops_in_value(opener: str, body: str, closers: Sequence[str], tags: ValuePatterns) -> bool:
    """Whether the body of a block ends inside a value.

    Where more values are open than closed, the last one may contain a block of its own, which the closer ends.
    """
    found = [(tag[1] is not None, tag.end()) for tag in tags.values.finditer(body)]
    if not any(opens for opens, _ in found):
        return False
    opens_last, end = found[-1]
    if opens_last or tags.block_tail.fullmatch(body, end) is None:
        return True
    return 2 * sum(opens for opens, _ in found) > len(found) and body.count(opener) > sum(map(body.count, closers))


class InnerTags:
    """The tags inside a value, counted as they come.

    A value may hold examples, whose tags open and close again, and it may speak of single tags. Where a tag closes
    before another one opens, or a parameter begins and does not end, an end was lost: no reader can tell then which
    text is the value.
    """

    def __init__(self) -> None:
        self.opened: list[bool] = []  # for each tag that is open whether a parameter begins with it
        self._closes = False  # a tag closed that did not open
        self._has_lost = False

    def open(self, *, is_parameter: bool) -> None:
        """Count an opening tag."""
        self._has_lost = self._has_lost or self._closes
        self.opened.append(is_parameter)

    def close(self) -> None:
        """Count a closing tag."""
        if self.opened:
            self.opened.pop()
        else:
            self._closes = True

    @property
    def lacks_end(self) -> bool:
        """Whether an end was lost, if the value ends here."""
        return self._has_lost or any(self.opened)


def value_end(
    text: str, start: int, tags: ValuePatterns, is_parameter: Callable[[re.Match[str]], bool], *, is_balanced: bool
) -> tuple[int, int, bool]:
    """Return (the end of a value, the start of the text behind it, whether the tags are balanced).

    `is_parameter` tells whether a parameter begins with an opening tag. A value may contain the grammar's own tags:
    those that open in it are counted, and the value ends where the grammar continues. Once the tags are not balanced
    they are no longer counted, so that each is read twice at most. Raises `NotACall` if the end of the value was lost.
    """
    first_end: tuple[int, int] | None = None
    lacks_end = False
    inner = InnerTags()
    for tag in tags.values.finditer(text, start):
        if tag[1]:
            inner.open(is_parameter=is_parameter(tag))
            continue
        if tags.value_end.match(text, tag.end()) is not None:
            is_inner = is_balanced and bool(inner.opened)
            if first_end is None or not is_inner:
                first_end, lacks_end = tag.span(), inner.lacks_end
            if not is_inner:
                break
        inner.close()
    else:
        is_balanced = False
    if first_end is None or lacks_end:
        raise NotACall("a value is not closed")
    return *first_end, is_balanced
