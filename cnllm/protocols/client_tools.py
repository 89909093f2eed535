"""Read a client's tools and the calls of them: names of functions, arguments, and the tools that a choice allows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cnllm.types import Note, ToolCall
from cnllm.types.tools import custom_input, json_arguments

__all__ = [
    "ArgumentReader",
    "InputReader",
    "allow_tools",
    "is_bare_input",
    "narrowed_note",
    "unique_name",
]


_MAX_NAME = 64
_MOST_NAMES = 20  # in the text of an error
_NOTHING = ("", "null")
_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_HEX = "[0-9a-fA-F]"
_HALF = rf"\\u[dD][89abAB]{_HEX}{{2}}"  # the first half of a character: the second one is decoded with it
_UNIT = rf"\\u{_HEX}{{4}}"
_ESCAPE = re.compile(rf"{_HALF}(?:{_UNIT})?|{_UNIT}|\\.", re.DOTALL)
_COMPLETE = re.compile(  # the text up to an escape that is not complete
    rf'(?:[^"\\]|{_HALF}(?:{_UNIT}|(?=[^\\]|\\[^u]))|(?!{_HALF}){_UNIT}|\\u(?={_HEX}{{0,3}}[^0-9a-fA-F])|\\[^u])*+',
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def is_bare_input(raw: str) -> bool:
    """Whether arguments that cannot be read are themselves the input of a custom tool: no object with it was begun."""
    return _HEAD.match(raw) is None


def unique_name(name: str, names: Mapping[str, Any], key: str) -> str:
    """Return a name for a function: letters, digits, - and _, at most 64 characters, and unused.

    `key` identifies the tool, so that it gets the same name in each request.
    """
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if cleaned == name and len(name) <= _MAX_NAME and name not in names:
        return name
    import hashlib  # loads OpenSSL, so only where it is needed

    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
    candidates = (f"{cleaned[: _MAX_NAME - length - 1]}_{digest[:length]}" for length in range(8, len(digest)))
    return next(candidate for candidate in candidates if candidate not in names)


class InputReader:
    """A reader of the input inside a call's arguments, which come in pieces of JSON."""

    def __init__(self) -> None:
        self._pending = ""
        self._state = "head"
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """Return the input that was read so far."""
        return "".join(self._parts)

    def feed(self, piece: str) -> str:
        """Return the new part of the input."""
        if self._state == "other":
            return ""
        self._pending += piece
        if self._state == "head":
            match = _HEAD.match(self._pending)
            if match is None:
                return ""
            self._pending = self._pending[match.end() :]
            self._state = "text"
        complete = _COMPLETE.match(self._pending)
        assert complete is not None
        out = _ESCAPE.sub(_character, complete[0])
        self._pending = self._pending[complete.end() :]
        if self._pending[:1] == '"':
            self._state, self._pending = "other", ""  # nothing after the input counts
        self._parts.append(out)
        return out

    def end(self, call: ToolCall) -> str:
        """Return the text that is left to write when the call has ended; nothing where what was written differs."""
        whole, text = custom_input(call), self.text
        return whole[len(text) :] if whole.startswith(text) else ""


class ArgumentReader:
    """A reader of a function's arguments, which come in pieces. A null waits: more may follow.

    Clients take the arguments for an object, and an endpoint may write nothing, or null, where there are none.
    """

    def __init__(self) -> None:
        self._null = ""
        self.is_open = False
        """Whether all that follows is written as it comes."""

    def feed(self, piece: str) -> str | None:
        """Return the text to write now; None where it waits."""
        if self.is_open:
            return piece
        if piece.strip() not in _NOTHING:
            self.is_open = True
            return self._null + piece
        self._null = self._null or piece.strip()
        return None if self._null else piece

    def end(self, call: ToolCall) -> str:
        """Return the text that is left to write when the call has ended."""
        return "" if self.is_open else json_arguments(call)


def _character(escape: re.Match[str]) -> str:
    """Return the character of an escape, or of two that are one character."""
    kind = escape[0][1]
    if kind != "u":
        return _ESCAPES.get(kind, kind)
    units = bytes.fromhex(escape[0].replace("\\u", ""))
    return units.decode("utf-16-be", "replace") if units else escape[0]  # without digits it is text


# ── what a choice allows ─────────────────────────────────────────────────────


def allow_tools(
    options: dict[str, Any], choice: Mapping[str, Any], place: str, names: Collection[str], kinds: Collection[Any] = ()
) -> list[Note]:
    """Keep the functions with these names, and other tools of these kinds; the choice becomes its mode.

    Return a note on the tools that are left out. Raises `ValueError`, with the place of the choice, where it names
    tools and none of them is offered.
    """
    tools = options.get("tools", ())
    options["tools"] = [tool for tool in tools if _is_allowed(tool, names, kinds)]
    options["tool_choice"] = "required" if choice.get("mode") == "required" else "auto"
    if not options["tools"] and (choice["tools"] or options["tool_choice"] == "required"):
        labels = _list_labels(tools) or "there are none"
        raise ValueError(f"{place}.tools: none of them is among the tools: {labels}")
    if not options["tools"]:
        for key in ("tools", "tool_choice", "parallel_tool_calls"):
            options.pop(key, None)
    return narrowed_note(place, tools, options.get("tools", ()))


def narrowed_note(place: str, tools: Sequence[Any], rest: Sequence[Any]) -> list[Note]:
    """Return a note on the tools that a choice among some does not allow; nothing where it allows all."""
    allowed = set(map(id, rest))
    others = [tool for tool in tools if id(tool) not in allowed]
    did = f"only what it allows is offered, without {_list_labels(others)}"
    return [Note("tool-choice", "tool_choice", place, did)] if others else []


def _list_labels(tools: Sequence[Any]) -> str:
    """Return the labels of the first tools."""
    return ", ".join(map(_label, tools[:_MOST_NAMES])) + ", …" * (len(tools) > _MOST_NAMES)


def _is_allowed(tool: dict[str, Any], names: Collection[str], kinds: Collection[Any]) -> bool:
    """Whether a tool is among the allowed ones."""
    function = tool.get("function")
    return function.get("name") in names if isinstance(function, dict) else tool.get("type") in kinds


def _label(tool: dict[str, Any]) -> str:
    """Return the name of a tool; the type of one that is no function."""
    function = tool.get("function")
    return str(function.get("name") if isinstance(function, dict) else tool.get("type"))
