"""The grammar "sections": each call stands between markers, the tool before a separator and the arguments behind it.

BEGIN functions.NAME:0 SEP {…} END
BEGIN functions.NAME <|word|>json SEP {…} END
BEGIN function SEP NAME ⏎ ```json ⏎ {…} ⏎ ``` END
BEGIN function SEP <invoke name="NAME">…</invoke> END
"""

from __future__ import annotations

import re

from cnllm.leaks.grammars import tagged
from cnllm.leaks.grammars.base import (
    ENOUGH,
    NAME,
    MarkupBlock,
    NotACall,
    NotOffered,
    ParsedCall,
    is_plausible_name,
    read_name,
)
from cnllm.leaks.grammars.objects import ends_in_string, strip_fence
from cnllm.leaks.grammars.tags import head_end
from cnllm.leaks.markers import BARS, Markers
from cnllm.schemas.coerce import decode_json

__all__ = ["inside", "read", "viable"]

_ANY = "function"  # what stands in the place of the tool where the tool comes later
_BROKEN = 64  # sections in a row that are not JSON: each costs a look at all that is before it
_FULL = re.compile(rf"functions\.({NAME}?):\d{{1,9}}")
_SHORT = re.compile(rf"(?!functions\.)({NAME}?)(?::\d{{1,9}})?")
_LATER = re.compile(rf"\s*({NAME})\s*(?=\n|\{{|`|\Z)")
_LINE = re.compile(rf"\s*{NAME}[ \t]{{0,8}}\n\s*(?=<)")
# A tool may be followed by what its arguments are written in: `NAME <|word|>json`.
_WRITTEN_IN = rf"<[{re.escape(BARS)}]\w{{1,32}}[{re.escape(BARS)}]>\w{{0,16}}\s{{0,8}}"
_BESIDE = re.compile(rf"\s{{0,8}}{_WRITTEN_IN}\Z")
_WRITTEN_SO_FAR = rf"<(?:[{re.escape(BARS)}]\w{{0,32}}(?:[{re.escape(BARS)}]>?\w{{0,16}}\s{{0,8}})?)?"
_HEAD = re.compile(rf"\s{{0,8}}(?:{NAME})?\s{{0,8}}(?:{_WRITTEN_SO_FAR})?\Z")
_UNFENCE = re.compile(r"\s*(?:`{3}\s*)?")


def _markers(parts: tuple[str, ...]) -> tuple[Markers, Markers, Markers]:
    begin, separator, end = ((part,) for part in parts)
    return Markers.copy(begin), Markers.copy(separator), Markers.copy(end)


def _at(markers: Markers, text: str, at: int) -> int | None:
    """Where a marker that stands at a place ends."""
    found = markers.find(text[at : at + markers.longest + 8])
    return at + found[1] if found is not None and not text[at : at + found[0]].strip() else None


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """The calls of a block, and the text of what is none. A call whose arguments are not JSON keeps them as written."""
    begin, separator, end = _markers(block.parts)
    text = block.text
    body = len(block.opener) + len(block.body)
    stop = len(text) if _at(end, block.closer, 0) is not None else body
    calls: list[ParsedCall] = []
    unknown: list[ParsedCall] = []
    others: list[str] = []
    problem = "there is no call in it"
    first = begin.find(text)
    at = min(len(block.opener), first[0]) if first else 0
    while (opening := begin.find(text, at)) is not None and opening[0] < stop:
        between = text[at : opening[0]]
        if _at(separator, between, 0) is None:
            _left(between, others)
        if _invoked(text, opening[1]) is not None:
            name, start = _ANY, opening[1]
        elif (parted := separator.find(text, opening[1])) is not None and parted[0] < stop:
            name, start = _BESIDE.sub("", text[opening[1] : parted[0]]).strip(), parted[1]
        else:
            at = opening[0]
            break
        if sum(call.arguments is None for call in calls[-_BROKEN:]) == _BROKEN:
            raise NotACall("too much of it is not JSON")
        content, at = _content(text, start, stop, begin, separator, end)
        try:
            calls += _calls(name, content, block, others)
        except NotACall as error:
            problem = str(error)
            unknown += error.calls if isinstance(error, NotOffered) else []
            others.append(text[opening[0] : at].strip())
    _left(text[at:stop], others)
    if not calls:
        raise NotOffered(problem, unknown) if unknown else NotACall(problem)
    return calls, others


def _invoked(text: str, at: int) -> int | None:
    """Where an invoke begins that stands at a place, or behind a name there."""
    line = _LINE.match(text, at)
    at = line.end() if line else at
    return at if head_end(text[at : at + ENOUGH], tagged.WORDS["invoke"][0], "") is not None else None


def _left(text: str, others: list[str]) -> None:
    if text := text.strip():
        others.append(text)


def _content(text: str, start: int, stop: int, begin: Markers, separator: Markers, end: Markers) -> tuple[str, int]:
    """(what is behind a separator, where the next section may begin). A marker in a string of JSON ends nothing."""
    opening = text.find("{", start, start + ENOUGH)
    if opening >= 0 and end.find(text[start:opening]) is None:
        try:
            _, over = decode_json(text, opening)
        except ValueError:
            over = -1
        if 0 <= over <= stop:
            closing = _UNFENCE.match(text, over)
            over = closing.end() if closing else over
            behind = _at(end, text, over)
            if behind is not None:
                return text[start:over], behind
            if over >= stop or _at(begin, text, over) is not None:
                return text[start:over], over
    at, last = start, len(text[:stop].rstrip())
    while (found := end.find(text, at)) is not None and found[0] < stop:
        if found[1] >= last or _at(begin, text, found[1]) is not None:
            return text[start : found[0]], found[1]
        if (parted := _at(separator, text, found[1])) is not None and _at(begin, text, parted) is not None:
            return text[start : found[0]], found[1]
        at = found[1]
    raise NotACall("a call is not closed")


def _calls(name: str, content: str, block: MarkupBlock, others: list[str]) -> list[ParsedCall]:
    if name == _ANY:
        if (start := _invoked(content, 0)) is not None:
            part = MarkupBlock("", content[start:], "", tagged.WORDS["invoke"], block.tools)
            calls, rest = tagged.read(part, lenient=False)
            others += rest
            return calls
        later = _LATER.match(content)
        if later is None:
            raise NotACall("it names no tool")
        return [_call(read_name(later[1], block.tools), content[later.end() :])]
    bare = name.removeprefix("functions.")
    name = bare if bare in block.tools else name
    told = _FULL.fullmatch(name) or _SHORT.fullmatch(name)
    if name not in block.tools and told is None:
        if name.startswith("functions.") and is_plausible_name(bare):
            raise NotOffered(f"no tool is called {bare}", [_call(bare, content)])
        raise NotACall("what stands for the name is no name")
    return [_call(name if name in block.tools else read_name(told[1] if told else name, block.tools), content)]


def _call(name: str, content: str) -> ParsedCall:
    raw = strip_fence(content)
    if raw in ("", "null"):
        return ParsedCall(name, {})
    try:
        value, end = decode_json(raw)
    except ValueError:
        return ParsedCall(name, None, raw)
    if type(value) is not dict or raw[end:].strip():
        return ParsedCall(name, None, raw)
    return ParsedCall(name, value)


def inside(block: str, parts: tuple[str, ...]) -> bool:
    """Does a block end where a closer is not one?"""
    begin, separator, end = _markers(parts)
    opening = begin.find(block)
    parted = separator.find(block)
    if opening is None and parted is None:
        return False
    if not any(_invoked(block, place[1]) is not None for place in (opening, parted) if place):
        return ends_in_string(block)
    last, at = None, 0
    while (found := end.find(block, at)) is not None:
        last, at = found, found[1]
    if last is not None and not block[last[1] :].strip():
        block = block[: last[0]]
    return tagged.inside("", block, tagged.WORDS["invoke"])


def viable(opener: str, body: str, parts: tuple[str, ...]) -> bool | None:
    """Does the first section begin here? An opener may be its beginning."""
    begin, separator, _ = _markers(parts)
    text = body[:ENOUGH].lstrip()
    opening = begin.find(opener)
    if opening is None or opener[opening[1] :].strip():
        if _at(begin, text, 0) is not None:
            return True
        return None if len(body) < ENOUGH and begin.pending_length(text) == len(text) else False
    parted = separator.find(text)
    if parted is not None:
        return _HEAD.match(text[: parted[0]]) is not None
    so_far = text[: len(text) - separator.pending_length(text)]
    return None if len(body) < ENOUGH and _HEAD.match(so_far) else False
