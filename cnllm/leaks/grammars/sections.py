"""Read the grammar "sections": each call stands between markers, the tool and the arguments around a separator.

BEGIN functions.NAME:0 SEP {…} END
BEGIN 0 SEP {…} END

A token may stand before the name, or behind it with the format:

BEGIN ID<|word:word|>NAME SEP {…} END
BEGIN functions.NAME <|word|>json SEP {…} END
BEGIN functions.NAME<|word|>word json SEP {…} END

The section may also hold a fence, or the element of an invocation:

BEGIN function SEP NAME ⏎ ```json ⏎ {…} ⏎ ``` END
BEGIN function SEP <invoke name="NAME">…</invoke> END
"""

from __future__ import annotations

import re
from typing import Any

from cnllm.leaks.grammars import invoke
from cnllm.leaks.grammars.base import (
    ENOUGH,
    NAME,
    MarkupBlock,
    NotACall,
    NotOffered,
    ParsedCall,
    is_plausible_name,
    json_object,
    may_be_parameter,
    read_name,
)
from cnllm.leaks.grammars.json_calls import ends_in_string, strip_fence
from cnllm.leaks.grammars.tags import head_end
from cnllm.leaks.markers import BARS, Markers
from cnllm.schemas.coerce import decode_json

__all__ = ["ends_inside_value", "has_begun", "may_begin", "read"]

_NO_NAME = "function"  # the text in the place of the tool if the tool comes later
_MAX_BROKEN = 64  # sections in a row that are not JSON: each costs a search of all text before it
_FULL = re.compile(rf"functions\.({NAME}?):\d{{1,9}}")
_SHORT = re.compile(rf"(?!functions\.)({NAME}?)(?::\d{{1,9}})?")
_NAME_LINE = re.compile(rf"\s*({NAME})\s*(?=\n|\{{|`|\Z)")
_LINE = re.compile(rf"\s*{NAME}[ \t]{{0,8}}\n\s*(?=<)")
# The channel and the format of the arguments may follow the tool: `NAME<|word|>word json`, `NAME <|word|>json`.
_MARK = rf"\s{{0,8}}<[{re.escape(BARS)}]\w{{1,32}}[{re.escape(BARS)}]>\w{{0,16}}"
_FORMAT = rf"(?:{_MARK}){{0,2}}(?:\s{{1,8}}[a-z]{{1,16}})?\s{{0,8}}"
_FORMAT_TAIL = re.compile(rf"{_FORMAT}\Z")
_MARK_SO_FAR = rf"<(?:[{re.escape(BARS)}](?:[\w:]{{1,32}}[{re.escape(BARS)}]?)?)?"
_ID = re.compile(rf"\A\s{{0,8}}[\w-]{{0,64}}<[{re.escape(BARS)}]\w{{1,32}}:\w{{1,32}}[{re.escape(BARS)}]>")
_HEAD = re.compile(rf"(?:{_ID.pattern})?\s{{0,8}}(?:{NAME}{_FORMAT})?(?:{_MARK_SO_FAR})?\Z")
_UNFENCE = re.compile(r"\s*(?:`{3}\s*)?")


def _markers(parts: tuple[str, ...]) -> tuple[Markers, Markers, Markers]:
    """Return the markers of beginning, separator and end."""
    begin, separator, end = ((part,) for part in parts)
    return Markers.copy(begin), Markers.copy(separator), Markers.copy(end)


def _marker_end(markers: Markers, text: str, start: int) -> int | None:
    """Return the end of a marker that stands at a position; None if there is none."""
    match = markers.find(text[start : start + markers.longest + 8])
    return start + match[1] if match is not None and not text[start : start + match[0]].strip() else None


def has_begun(block: str, parts: tuple[str, ...]) -> bool:
    """Whether a block ends right behind the separator of a call, where its arguments begin."""
    return block.rstrip().endswith(parts[1])


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block, and the texts that are no call. Arguments that are not JSON are kept as written."""
    begin, separator, end = _markers(block.parts)
    text = block.text
    body = len(block.opener) + len(block.body)
    stop = len(text) if _marker_end(end, block.closer, 0) is not None else body
    calls: list[ParsedCall] = []
    unknown_calls: list[ParsedCall] = []
    others: list[str] = []
    problem = "there is no call in it"
    first = begin.find(text)
    position = min(len(block.opener), first[0]) if first else 0
    while (opening := begin.find(text, position)) is not None and opening[0] < stop:
        between = text[position : opening[0]]
        if _marker_end(separator, between, 0) is None:
            _add_other(between, others)
        if _invoke_start(text, opening[1]) is not None:
            name, start = _NO_NAME, opening[1]
        elif (separator_match := separator.find(text, opening[1])) is not None and separator_match[0] < stop:
            head = _ID.sub("", text[opening[1] : separator_match[0]])
            name, start = _FORMAT_TAIL.sub("", head).strip(), separator_match[1]
        else:
            position = opening[0]
            break
        if sum(call.arguments is None for call in calls[-_MAX_BROKEN:]) == _MAX_BROKEN:
            raise NotACall("too much of it is not JSON")
        content, position = _content(text, start, stop, begin, separator, end)
        try:
            calls += _calls(name, content, block, others)
        except NotACall as error:
            problem = str(error)
            unknown_calls += error.calls
            others.append(text[opening[0] : position].strip())
    _add_other(text[position:stop], others)
    if not calls:
        raise NotOffered(problem, unknown_calls) if unknown_calls else NotACall(problem)
    return calls, others


def _invoke_start(text: str, position: int) -> int | None:
    """Return the start of an invoke tag at a position, or behind a name there; None if there is none."""
    line = _LINE.match(text, position)
    position = line.end() if line else position
    return position if head_end(text[position : position + ENOUGH], invoke.WORDS["invoke"][0], "") is not None else None


def _add_other(text: str, others: list[str]) -> None:
    """Add a text to the others, unless it is empty."""
    if text := text.strip():
        others.append(text)


def _content(text: str, start: int, stop: int, begin: Markers, separator: Markers, end: Markers) -> tuple[str, int]:
    """Return (the text behind a separator, the start of the next section).

    A marker in a JSON string ends nothing. Raises `NotACall` if the section is not closed.
    """
    opening = text.find("{", start, start + ENOUGH)
    if opening >= 0 and end.find(text[start:opening]) is None:
        try:
            _, end_position = decode_json(text, opening)
        except ValueError:
            end_position = -1
        if 0 <= end_position <= stop:
            closing = _UNFENCE.match(text, end_position)
            end_position = closing.end() if closing else end_position
            section_end = _marker_end(end, text, end_position)
            if section_end is not None:
                return text[start:end_position], section_end
            if end_position >= stop or _marker_end(begin, text, end_position) is not None:
                return text[start:end_position], end_position
    position, last = start, len(text[:stop].rstrip())
    while (match := end.find(text, position)) is not None and match[0] < stop:
        if match[1] >= last or _marker_end(begin, text, match[1]) is not None:
            return text[start : match[0]], match[1]
        if (separator_end := _marker_end(separator, text, match[1])) is not None and _marker_end(
            begin, text, separator_end
        ) is not None:
            return text[start : match[0]], match[1]
        position = match[1]
    raise NotACall("a call is not closed")


def _calls(name: str, content: str, block: MarkupBlock, others: list[str]) -> list[ParsedCall]:
    """Return the calls of a section. Raises `NotOffered` or `NotACall`."""
    if name == _NO_NAME:
        if (start := _invoke_start(content, 0)) is not None:
            part = MarkupBlock("", content[start:], "", invoke.WORDS["invoke"], block.tools)
            calls, rest = invoke.read(part)
            others += rest
            return calls
        name_match = _NAME_LINE.match(content)
        if name_match is None:
            raise NotACall("it names no tool")
        return [_call(read_name(name_match[1], block.tools), content[name_match.end() :])]
    plain_name = name.removeprefix("functions.")
    if plain_name.isdecimal() and plain_name not in block.tools:
        return [_only_call(content, block)]
    name = plain_name if plain_name in block.tools else name
    match = _FULL.fullmatch(name) or _SHORT.fullmatch(name)
    if name not in block.tools and match is None:
        if name.startswith("functions.") and is_plausible_name(plain_name):
            raise NotOffered(f"no tool has the name {plain_name}", [_call(plain_name, content)])
        raise NotACall("the text in the place of the name is not a name")
    return [_call(name if name in block.tools else read_name(match[1] if match else name, block.tools), content)]


def _only_call(content: str, block: MarkupBlock) -> ParsedCall:
    """Return the call of a section that counts the calls and names no tool: of the only one that was offered.

    Raises `NotACall` if several were offered, or if the arguments do not fit it.
    """
    if len(block.tools) != 1:
        raise NotACall("a number stands in the place of the tool")
    [(name, schema)] = block.tools.items()
    call = _call(name, content)
    if call.arguments is None or not _fits(call.arguments, schema):
        raise NotACall("a number stands in the place of the tool, and the arguments do not fit the one offered")
    return call


def _fits(arguments: dict[str, Any], schema: Any) -> bool:
    """Whether a tool declares some arguments, and they are valid for it."""
    if not all(may_be_parameter(schema, name) for name in arguments):
        return False
    from cnllm.schemas.validate import validation_errors  # few blocks need it

    try:
        return not validation_errors(arguments, dict(schema or {}))
    except ValueError:  # the schema cannot be judged
        return False


def _call(name: str, content: str) -> ParsedCall:
    """Return a call with its arguments, decoded if they are JSON."""
    raw = strip_fence(content)
    if raw in ("", "null"):
        return ParsedCall(name, {})
    value = json_object(raw)
    if value is None:
        return ParsedCall(name, None, raw)
    if list(value) == ["name", "args"] and value["name"] == name and type(value["args"]) is dict:
        return ParsedCall(name, value["args"])  # the whole call stands where the arguments do
    return ParsedCall(name, value)


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether a block ends inside a value, so that the closer behind it is text."""
    block = opener + body
    begin, separator, end = _markers(words)
    opening = begin.find(block)
    separator_match = separator.find(block)
    if opening is None and separator_match is None:
        return False
    if not any(_invoke_start(block, marker[1]) is not None for marker in (opening, separator_match) if marker):
        return ends_in_string(block)
    last, position = None, 0
    while (match := end.find(block, position)) is not None:
        last, position = match, match[1]
    if last is not None and not block[last[1] :].strip():
        block = block[: last[0]]
    return invoke.ends_inside_value("", block, invoke.WORDS["invoke"], closers)


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether the first section begins in the body, or in the opener; None if more text is needed."""
    begin, separator, _ = _markers(words)
    text = body[:ENOUGH].lstrip()
    opening = begin.find(opener)
    head = "" if opening is None else opener[opening[1] :].strip()  # the opener may hold the beginning of the name
    if opening is None or (head and not is_plausible_name(head)):
        if _marker_end(begin, text, 0) is not None:
            return True
        return None if len(body) < ENOUGH and begin.pending_length(text) == len(text) else False
    text = head + text
    separator_match = separator.find(text)
    if separator_match is not None:
        return _HEAD.match(text[: separator_match[0]]) is not None
    certain = text[: len(text) - separator.pending_length(text)]
    return None if len(body) < ENOUGH and _HEAD.match(certain) else False
