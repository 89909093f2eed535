"""The grammars "invoke" and "function": a tag names the tool, tags inside it name the parameters and hold the values.

    <invoke name="F"><parameter name="p">v</parameter></invoke>
    <function=F><parameter=p>v</parameter></function>

A value may hold anything, these tags too. It ends with the closing tag behind which the grammar goes on: the next
parameter, or the end of the call and behind that the next call or the end of the block. Tags that open inside a value
are counted, so that an example in a value closes itself; where that does not come out even, they are not.

A value is taken as it stands: entities in it are not decoded, because a model that writes `&lt;` into a file of HTML
means these characters, and servers hand them on so.
"""

from __future__ import annotations

from typing import Any

from cnllm.leaks.grammars.base import ENOUGH, MarkupBlock, NotACall, ParsedCall, read_name, strip_own_lines
from cnllm.leaks.grammars.elements import is_unclosed, read_arguments
from cnllm.leaks.grammars.objects import ends_in_string, strip_fence
from cnllm.leaks.grammars.tags import Tag, adjacency, find_tags, head_end, is_tail, may_be_head, opener_prefix
from cnllm.schemas.coerce import allowed_types, coerce, decode_json, property_schema

__all__ = ["WORDS", "inside", "read", "viable"]

WORDS = {"invoke": ("invoke", "parameter"), "function": ("function", "parameter")}
_WRAPPERS = ("arguments", "parameters", "input")
"""Names of a single parameter that holds all arguments, where the tool has no such parameter."""


class _Uneven(Exception):
    """The tags inside a value do not come out even."""


def read(block: MarkupBlock, *, lenient: bool) -> tuple[list[ParsedCall], list[str]]:
    """The calls of a block, and the text of what is none. `lenient`: a parameter may lack its closing tag."""
    problem = NotACall()
    for mixed in (False, True):
        for counting in (True, False):
            try:
                return _Reading(block, lenient=lenient and not counting, counting=counting, mixed=mixed).all()
            except NotACall as error:
                problem = problem if problem.args else error
                break
            except _Uneven:
                continue
    raise problem


class _Reading:
    """One reading of a block: its tags in order, and where in it a call may end."""

    def __init__(self, block: MarkupBlock, *, lenient: bool, counting: bool, mixed: bool) -> None:
        self.block = block
        self.text = block.text
        self.prefix = opener_prefix(block.opener)
        self.lenient = lenient
        self.counting = counting
        self.tags = find_tags(self.text, block.parts, self.prefix, mixed=mixed)
        behind = len(block.opener) + len(block.body)
        last = self.tags[-1] if self.tags else None
        # Where the block's own closer ends a call, it is one of the tags; else it stands behind them.
        self.stop = len(self.text) if last is not None and last.end > behind else behind
        self.clear = adjacency(self.text, self.tags, self.stop)

    def all(self) -> tuple[list[ParsedCall], list[str]]:
        at = next((at for at, tag in enumerate(self.tags) if tag.which == 0 and not tag.closes), None)
        if at is None:
            raise NotACall("it calls nothing")
        before = self.text[: self.tags[at].start]
        others = [junk] if (junk := before[len(self.block.opener) :].strip()) else []
        calls: list[ParsedCall] = []
        problem = ""
        while at < len(self.tags):
            start = at
            if self.tags[at].which or self.tags[at].closes:
                raise NotACall("its tags are out of order")
            call, at = self._call(at)
            try:
                calls.append(self._written(*call))
            except NotACall as error:
                problem = str(error)
                others.append(self.text[self.tags[start].start : self.tags[at - 1].end])
        if not calls:
            raise NotACall(problem)
        return calls, others

    def _call(self, at: int) -> tuple[tuple[Tag, list[tuple[Tag, str]], str], int]:
        """((tag, parameters, text that is no parameter), the next tag) of the call that begins at a tag."""
        opening = self.tags[at]
        if opening.empty:
            if not self.clear[at]:
                raise NotACall("there is text between the calls")
            return (opening, [], ""), at + 1
        at += 1
        if at < len(self.tags) and self.clear[at - 1] and self._opens(at):
            parameters: list[tuple[Tag, str]] = []
            while self._opens(at):
                value, end = self._value(at, opening)
                parameters.append((self.tags[at], value))
                at = end
            if not self._ends(at):
                raise NotACall("a call is not closed")
            return (opening, parameters, ""), at + 1
        close = next((place for place in range(at, len(self.tags)) if self._ends(place)), None)
        if close is None:
            raise NotACall("a call is not closed")
        return (opening, [], self.text[opening.end : self.tags[close].start]), close + 1

    def _value(self, at: int, call: Tag) -> tuple[str, int]:
        """(value, the tag behind it) of the parameter that opens at a tag."""
        start = self.tags[at].end
        if self.tags[at].empty:
            if self.clear[at]:
                return "", at + 1
            raise NotACall("there is text between the parameters")
        depth = 1
        lenient = self.lenient
        for place in range(at + 1, len(self.tags)):
            tag = self.tags[place]
            if tag.which == 1 and tag.closes:
                if depth > 1:
                    depth -= 1
                elif self._goes_on(place):
                    return self.text[start : tag.start], place + 1
                else:
                    lenient = False  # with a closing tag that is text, a missing one would be a guess
            elif self.counting and tag.which == 1 and not tag.empty:
                depth += 1
            elif lenient and ((tag.which == 1 and self._begins(tag, call)) or self._ends(place)):
                return self.text[start : tag.start], place
        if self.counting:
            raise _Uneven
        raise NotACall("a parameter is not closed")

    def _opens(self, at: int) -> bool:
        return at < len(self.tags) and self.tags[at].which == 1 and not self.tags[at].closes

    def _ends(self, at: int) -> bool:
        """Does a call end at a tag, so that behind it stands the next one or nothing?"""
        if at >= len(self.tags) or self.tags[at].which or not self.tags[at].closes or not self.clear[at]:
            return False
        return at + 1 == len(self.tags) or (self.tags[at + 1].which == 0 and not self.tags[at + 1].closes)

    def _goes_on(self, at: int) -> bool:
        """Does the grammar go on behind the tag that would end a value?"""
        return self.clear[at] and (self._opens(at + 1) or self._ends(at + 1))

    def _begins(self, tag: Tag, call: Tag) -> bool:
        """Does a parameter begin here whatever was not closed: on a line of its own, and known to the tool?"""
        schema: Any = self.block.tools.get(call.name) or {}
        if schema.get("properties") and property_schema(schema, tag.name, schema) is None:
            return False
        return (
            not self.text[self.text.rfind("\n", 0, tag.start) + 1 : tag.start].strip()
            and "\n" in (self.text[max(0, tag.start - 64) : tag.start])
        )

    def _written(self, opening: Tag, parameters: list[tuple[Tag, str]], rest: str) -> ParsedCall:
        name = read_name(opening.name, self.block.tools)
        schema = self.block.tools.get(name)
        if not parameters:
            return ParsedCall(name, self._bare(rest, schema))
        if len(parameters) == 1 and (every := _wrapped(*parameters[0], schema)) is not None:
            return ParsedCall(name, every)
        return ParsedCall(name, {tag.name: _typed(tag, value, schema) for tag, value in parameters})

    def _bare(self, text: str, schema: Any) -> dict[str, Any]:
        """Arguments that are no parameters: an object of JSON, or one element for each."""
        text = strip_fence(text)
        if not text:
            return {}
        if text.startswith("{"):
            return _object(text)
        return read_arguments(text, schema, self.prefix)


def _object(text: str) -> dict[str, Any]:
    try:
        value, end = decode_json(text)
    except ValueError as error:
        raise NotACall(f"its arguments are not JSON: {error}") from None
    if type(value) is not dict or text[end:].strip():
        raise NotACall("its arguments are not an object")
    return value


def _wrapped(tag: Tag, text: str, schema: Any) -> dict[str, Any] | None:
    """All arguments, where a single parameter holds them and is none of the tool's own."""
    if tag.name not in _WRAPPERS or property_schema(schema, tag.name, schema) is not None:
        return None
    try:
        return _object(text.strip())
    except NotACall:
        return None


def _typed(tag: Tag, text: str, schema: Any) -> Any:
    """The value of a parameter. Its tag may say whether it is text or JSON; what the schema says counts for more."""
    value = strip_own_lines(text)
    schema_of = property_schema(schema, tag.name, schema)
    allowed = allowed_types(schema_of, schema)
    if tag.says.get("string") == "false" and (not allowed or value.strip()[:1] == '"'):
        try:
            given, end = decode_json(value.strip())
        except ValueError:
            return coerce(value, schema_of, schema)
        if not value.strip()[end:]:
            return given
    return coerce(value, schema_of, schema)


def inside(opener: str, block: str, words: tuple[str, ...]) -> bool:
    """Does a block end where a closer is not one: in a value, or in a call that is not over?

    Behind the end of a call a closer is one, unless more calls were opened than ended and more parameters too: then
    the call that ended stands in a value.
    """
    prefix = opener_prefix(opener)
    try:
        return all(_within(block, find_tags(block, words, prefix, mixed=mixed), opener) for mixed in (False, True))
    except NotACall:
        return False  # nobody reads it: it may as well end here


def _within(block: str, tags: list[Tag], opener: str) -> bool:
    calls = [tag for tag in tags if tag.which == 0 and not tag.empty]
    values = [tag for tag in tags if tag.which == 1 and not tag.empty]
    open_calls = len(calls) - 2 * sum(tag.closes for tag in calls)
    open_values = len(values) - 2 * sum(tag.closes for tag in values)
    last = tags[-1] if tags and not block[tags[-1].end :].strip() else None
    if last is not None and (last.closes or last.empty):
        return open_calls > 0 and open_values > 0 if last.which == 0 else open_values > 0
    if values:
        return True
    start = next((tag.end for tag in reversed(calls) if not tag.closes), len(block))
    rest = block[start:].lstrip()
    return ends_in_string(rest) if rest.startswith("{") else is_unclosed(rest, opener_prefix(opener))


def viable(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Does a call begin here? An opener may be the beginning of its tag."""
    prefix = opener_prefix(opener)
    text = body[:ENOUGH]
    if head_end(opener, words[0], prefix) is not None:
        text, begun = opener + text, True
    else:
        begun = head_end(text, words[0], prefix) is not None
    told = is_tail(text, words[0], prefix) if begun else None if may_be_head(text, prefix) else False
    return False if told is None and len(body) >= ENOUGH else told
