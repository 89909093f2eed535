"""What all grammars share: the block they read, the calls they give, names and values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

__all__ = [
    "ENOUGH",
    "MarkupBlock",
    "NotACall",
    "NotOffered",
    "ParsedCall",
    "is_plausible_name",
    "read_name",
    "strip_own_lines",
]

ENOUGH = 200  # characters after which it is clear whether a block begins here
NAME = r"[\w.:/@-]{1,128}"
_NAME = re.compile(NAME)


class ParsedCall(Struct, frozen=True):
    """A call as it was written. Where its arguments are no JSON object, `arguments` is None and `raw` is their text."""

    name: str
    arguments: dict[str, Any] | None
    raw: str = ""


class NotACall(Exception):
    """A block is not certainly a call; the message says why."""


class NotOffered(NotACall):
    """A block calls a tool that was not offered; `calls` are those that can be told."""

    def __init__(self, message: str, calls: list[ParsedCall]) -> None:
        super().__init__(message)
        self.calls = calls


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
        return self.opener + self.body + self.closer

    def part(self, body: str) -> MarkupBlock:
        """A piece of this block that is a block of another grammar, without markers of its own."""
        return MarkupBlock("", body, "", (), self.tools)


def is_plausible_name(name: str) -> bool:
    """Could this be the name of a tool? No word of a name is markup, a sentence or a line."""
    return _NAME.fullmatch(name) is not None


def read_name(name: str, tools: Mapping[str, Any]) -> str:
    """The name of a tool, as the request called it. Raises Unreadable where it cannot be one."""
    name = name.strip()
    if name in tools:
        return name
    if not is_plausible_name(name):
        raise NotACall("what stands for the name is no name")
    bare = name.removeprefix("functions.")
    return bare if bare in tools else name


def strip_own_lines(value: str) -> str:
    """A value without the line breaks that put it on lines of its own; all other space belongs to it."""
    return value[1:-1] if value[:1] == "\n" == value[-1:] else value
