"""Read the grammars "invoke" and "function": a tag names the tool, tags inside it hold the parameters.

    <invoke name="F"><parameter name="p">v</parameter></invoke>
    <function=F><parameter=p>v</parameter></function>

A value may contain anything, these tags too. It ends with the closing tag behind which the grammar continues: the next
parameter, or the end of the call and behind that the next call or the end of the block. Tags that open inside a value
are counted, so that an example in a value closes itself; if they are not balanced, they are not counted.

A value is used as written: entities in it are not decoded, because a model that writes `&lt;` into a file of HTML
means these characters, and servers pass them on unchanged. Only the markers of a CDATA section that is the whole value
are taken off, and the line breaks that put a value on lines of its own. With string="true" these belong to the value,
too: encoders that write this attribute add none.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from cnllm.leaks.grammars.base import (
    ENOUGH,
    InnerTags,
    MarkupBlock,
    NotACall,
    ParsedCall,
    json_object,
    may_be_parameter,
    object_of,
    read_name,
    strip_own_lines,
)
from cnllm.leaks.grammars.element import is_unclosed, wrapped_arguments
from cnllm.leaks.grammars.json_calls import ends_in_string, strip_fence
from cnllm.leaks.grammars.tags import (
    Tag,
    adjacency,
    find_tags,
    head_end,
    is_tail,
    iter_tags,
    may_be_head,
    opener_prefix,
)
from cnllm.leaks.markers import BARS
from cnllm.schemas.coerce import allowed_types, coerce, decode_json, property_schema

__all__ = ["WORDS", "ends_inside_value", "has_begun", "is_certain", "is_open", "may_begin", "missing_end", "read"]

WORDS = {"invoke": ("invoke", "parameter"), "function": ("function", "parameter")}
_GOES_ON = re.compile(rf"<\s{{0,2}}[/\w{re.escape(BARS)}]|\{{\s{{0,64}}[\"}}]|`{{3}}")
_FEW = 8  # tags at the start of a block that show whether it is a call
_MAY_GO_ON = re.compile(r"(?:<\s{0,2}|\{\s{0,64}|`{1,2})\Z")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_WRAPPERS = ("arguments", "parameters", "input")
"""Names of a single parameter that holds all arguments, if the tool has no such parameter."""


class _Unbalanced(Exception):
    """The tags inside a value are not balanced."""


def read(block: MarkupBlock, *, lenient: bool = False) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block, and the texts that are no call. `lenient`: a parameter may lack its closing tag.

    The last call may lack its own, if the block is closed behind it.
    """
    problem = NotACall("")
    for mixed, is_open in ((False, False), (True, False), (True, True)):
        for count_tags in (True, False):
            try:
                return _Reading(
                    block, lenient=lenient and not count_tags, count_tags=count_tags, mixed=mixed, is_open=is_open
                ).read_calls()
            except NotACall as error:
                problem = problem if str(problem) else error
                break
            except _Unbalanced:
                continue
    raise problem


class _Reading:
    """One reading of a block: its tags in order, and the positions where a call may end."""

    def __init__(
        self, block: MarkupBlock, *, lenient: bool, count_tags: bool, mixed: bool, is_open: bool = False
    ) -> None:
        self.block = block
        self.text = block.text
        self.prefix = opener_prefix(block.opener)
        self.lenient = lenient
        self.count_tags = count_tags
        self.tags = find_tags(self.text, block.parts, self.prefix, mixed=mixed)
        body_end = len(block.opener) + len(block.body)
        last = self.tags[-1] if self.tags else None
        # If the block's own closer ends a call, it is one of the tags; else it stands behind them.
        self.stop = len(self.text) if last is not None and last.end > body_end else body_end
        self.is_open = is_open and block.closer != "" and self.stop == body_end  # the last call may lack its end
        self.is_adjacent = adjacency(self.text, self.tags, self.stop)

    def read_calls(self) -> tuple[list[ParsedCall], list[str]]:
        """Return the calls, and the texts that are no call. Raises `NotACall` or `_Unbalanced`."""
        index = next((index for index, tag in enumerate(self.tags) if tag.word_index == 0 and not tag.closes), None)
        if index is None:
            raise NotACall("it calls nothing")
        before = self.text[: self.tags[index].start]
        others = [junk] if (junk := before[len(self.block.opener) :].strip()) else []
        calls: list[ParsedCall] = []
        problem = ""
        while index < len(self.tags):
            first = index
            if self.tags[index].word_index or self.tags[index].closes:
                raise NotACall("its tags are out of order")
            call, index = self._call(index)
            try:
                calls.append(self._build_call(*call))
            except NotACall as error:
                problem = str(error)
                others.append(self.text[self.tags[first].start : self.tags[index - 1].end])
        if not calls:
            raise NotACall(problem)
        return calls, others

    def _call(self, index: int) -> tuple[tuple[Tag, list[tuple[Tag, str]], str], int]:
        """Return the call that begins at a tag, and the index of the next tag.

        The call is (its tag, its parameters, the text that is no parameter).
        """
        opening = self.tags[index]
        if opening.empty:
            if not self.is_adjacent[index]:
                raise NotACall("there is text between the calls")
            return (opening, [], ""), index + 1
        index += 1
        if index < len(self.tags) and self.is_adjacent[index - 1] and self._begins_parameter(index):
            parameters: list[tuple[Tag, str]] = []
            schema = self._schema(opening)
            while self._begins_parameter(index):
                value, end = self._value(index, schema)
                parameters.append((self.tags[index], value))
                index = end
            if self._begins_call(index) or self._ends_block(index):  # its end was lost
                return (opening, parameters, ""), index
            if not self._ends_call(index):
                raise NotACall("a call is not closed")
            return (opening, parameters, ""), index + 1
        close = next(
            (close_index for close_index in range(index, len(self.tags)) if self._ends_call(close_index)), None
        )
        if close is None:
            raise NotACall("a call is not closed")
        return (opening, [], self.text[opening.end : self.tags[close].start]), close + 1

    def _value(self, index: int, schema: Any) -> tuple[str, int]:
        """Return (value, index of the next tag) of the parameter that begins at a tag.

        `schema` is that of the parameters of the tool.
        """
        start = self.tags[index].end
        if self.tags[index].empty:
            if self.is_adjacent[index]:
                return "", index + 1
            raise NotACall("there is text between the parameters")
        inner = InnerTags()
        lenient = self.lenient
        for close_index in range(index + 1, len(self.tags)):
            tag = self.tags[close_index]
            following = -1
            if tag.word_index == 1 and tag.closes:
                if not (self.count_tags and inner.opened):
                    if self._is_end_of_value(close_index):
                        following = close_index + 1
                    lenient = False  # if one closing tag is text, a missing one cannot be guessed
            elif lenient and (
                (tag.word_index == 1 and self._begins_unclosed(tag, schema)) or self._ends_call(close_index)
            ):
                following = close_index
            if following >= 0:
                if inner.lacks_end:
                    break
                return self.text[start : tag.start], following
            if tag.word_index == 1 and tag.closes:
                inner.close()
            elif tag.word_index == 1 and not tag.empty:
                begins_call = self._begins_call(close_index - 1)
                inner.open(is_parameter=begins_call or may_be_parameter(schema, tag.name))
        else:
            if self.count_tags:
                raise _Unbalanced
        raise NotACall("a parameter is not closed")

    def _schema(self, call: Tag) -> Any:
        """Return the schema of the parameters of the tool that a tag calls; None if it is unknown."""
        try:
            return self.block.tools.get(read_name(call.name, self.block.tools))
        except NotACall:
            return None

    def _has_tag(self, index: int, word_index: int, *, closes: bool = False) -> bool:
        """Whether a tag has this index, and it is one of a call (0) or of a parameter (1)."""
        if index >= len(self.tags):
            return False
        tag = self.tags[index]
        return tag.word_index == word_index and tag.closes is closes

    def _begins_parameter(self, index: int) -> bool:
        """Whether a parameter begins at a tag."""
        return self._has_tag(index, 1)

    def _begins_call(self, index: int) -> bool:
        """Whether a call with a parameter begins at a tag."""
        return self._has_tag(index, 0) and self.is_adjacent[index] and self._has_tag(index + 1, 1)

    def _ends_call(self, index: int) -> bool:
        """Whether a call ends at a tag, so that the next call or nothing follows."""
        if not self._has_tag(index, 0, closes=True) or not self.is_adjacent[index]:
            return False
        return index + 1 == len(self.tags) or self._has_tag(index + 1, 0)

    def _ends_block(self, index: int) -> bool:
        """Whether the block ends behind the last tag, although a call is open."""
        return self.is_open and index == len(self.tags) and self.is_adjacent[-1]

    def _is_end_of_value(self, index: int) -> bool:
        """Whether the grammar continues behind the tag that would end a value."""
        goes_on = (self._begins_parameter, self._ends_call, self._begins_call, self._ends_block)
        return self.is_adjacent[index] and any(test(index + 1) for test in goes_on)

    def _begins_unclosed(self, tag: Tag, schema: Any) -> bool:
        """Whether a parameter begins although one is open: on its own line, with a name that the tool may know."""
        _, line_break, indent = self.text[max(0, tag.start - 64) : tag.start].rpartition("\n")
        return line_break != "" and not indent.strip() and may_be_parameter(schema, tag.name)

    def _build_call(self, opening: Tag, parameters: list[tuple[Tag, str]], rest: str) -> ParsedCall:
        """Return a call with its arguments. Raises `NotACall`."""
        name = read_name(opening.name, self.block.tools)
        schema = self.block.tools.get(name)
        if not parameters:
            return ParsedCall(name, self._unnamed_arguments(strip_fence(rest), schema))
        if len(parameters) == 1 and (wrapped := _wrapped_arguments(*parameters[0], schema)) is not None:
            return ParsedCall(name, wrapped)
        return ParsedCall(name, object_of([(tag.name, _typed_value(tag, value, schema)) for tag, value in parameters]))

    def _unnamed_arguments(self, text: str, schema: Any) -> dict[str, Any]:
        """Return the arguments of a call that names no parameter in a tag. Raises `NotACall`."""
        arguments = wrapped_arguments(text, schema, self.prefix)
        word = self.block.parts[1] if len(self.block.parts) > 1 else ""
        if word in arguments and property_schema(schema, word, schema) is None and json_object(text) is None:
            raise NotACall("a parameter has no name")
        return arguments


def _wrapped_arguments(tag: Tag, text: str, schema: Any) -> dict[str, Any] | None:
    """Return all arguments, if a single parameter holds them that the tool does not have; else None."""
    if tag.name not in _WRAPPERS or property_schema(schema, tag.name, schema) is not None:
        return None
    return json_object(text.strip())


def _typed_value(tag: Tag, text: str, schema: Any) -> Any:
    """Return the value of a parameter. Its tag may say that it is text or JSON; the schema takes precedence."""
    value = _without_cdata(text if tag.attributes.get("string") == "true" else strip_own_lines(text))
    parameter_schema = property_schema(schema, tag.name, schema)
    allowed = allowed_types(parameter_schema, schema)
    if tag.attributes.get("string") == "false" and (not allowed or value.strip()[:1] == '"'):
        try:
            decoded, end = decode_json(value.strip())
        except ValueError:
            return coerce(value, parameter_schema, schema)
        if not value.strip()[end:]:
            return decoded
    return coerce(value, parameter_schema, schema)


def _without_cdata(value: str) -> str:
    """Return the text of a value that is one CDATA section and nothing else; any other value as it is."""
    if value.startswith(_CDATA) and value.find(_CDATA_END) == len(value) - len(_CDATA_END):
        return value[len(_CDATA) : -len(_CDATA_END)]
    return value


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether a block ends where a closer is text: in a value, or in a call that is not complete.

    Behind the end of a call a closer is real, unless more calls were opened than closed and more parameters, too:
    then the call that ended stands in a value.
    """
    prefix, block = opener_prefix(opener), opener + body
    try:
        return all(_is_open(block, find_tags(block, words, prefix, mixed=mixed), opener) for mixed in (False, True))
    except NotACall:
        return False  # unreadable: the block may end at this closer


def _is_open(block: str, tags: list[Tag], opener: str) -> bool:
    """Whether a block with these tags ends inside a value or a call."""
    calls = [tag for tag in tags if tag.word_index == 0 and not tag.empty]
    values = [tag for tag in tags if tag.word_index == 1 and not tag.empty]
    open_calls = len(calls) - 2 * sum(tag.closes for tag in calls)
    open_values = len(values) - 2 * sum(tag.closes for tag in values)
    last = tags[-1] if tags and not block[tags[-1].end :].strip() else None
    if last is not None and (last.closes or last.empty):
        return open_calls > 0 and open_values > 0 if last.word_index == 0 else open_values > 0
    if values:
        return True
    start = next((tag.end for tag in reversed(calls) if not tag.closes), len(block))
    rest = block[start:].lstrip()
    return ends_in_string(rest) if rest.startswith("{") else is_unclosed(rest, opener_prefix(opener))


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether a call begins in the body; None if more text is needed. An opener may be the beginning of its tag."""
    prefix = opener_prefix(opener)
    text = body[:ENOUGH]
    if head_end(opener, words[0], prefix) is not None:
        text, has_head = opener + text, True
    else:
        has_head = head_end(text, words[0], prefix) is not None
    verdict = is_tail(text, words[0], prefix) if has_head else None if may_be_head(text, prefix) else False
    if verdict and (tag := next(iter_tags(text, words[:1], prefix), None)) is not None and not tag.empty:
        verdict = _continues(text[tag.end :].lstrip(), prefix)
    return False if verdict is None and len(body) >= ENOUGH else verdict


def _continues(text: str, prefix: str) -> bool | None:
    """Whether a call goes on in the text behind its tag: with a tag or JSON; None if more text is needed."""
    if not text:
        return None
    if prefix and (text.startswith(prefix) or prefix.startswith(text)):
        return True if len(text) > len(prefix) else None
    return True if _GOES_ON.match(text) else None if _MAY_GO_ON.match(text) else False


def is_certain(opener: str, body: str, words: tuple[str, ...]) -> bool:
    """Whether a parameter or JSON follows the first tag of a call, or an element behind the prefix of the block."""
    text, prefix = opener + body, opener_prefix(opener)
    tags = list(islice(iter_tags(text, words, prefix, mixed=True), _FEW))
    call = next((index for index, tag in enumerate(tags) if tag.word_index == 0 and not tag.closes), None)
    if call is None:
        return False
    following = tags[call + 1] if call + 1 < len(tags) else None
    rest = text[tags[call].end : following.start if following else len(text)].strip()
    is_element = prefix != "" and rest.startswith(prefix) and rest[len(prefix) :].lstrip()[:2] not in ("", "</")
    is_parameter = not rest and following is not None and following.word_index == 1 and not following.closes
    return rest[:1] in ("{", "`") or is_element or is_parameter


def has_begun(block: str, opener: str, words: tuple[str, ...]) -> bool:
    """Whether a block ends right behind the opening tag of a call or of a parameter."""
    tags = find_tags(block, words, opener_prefix(opener), mixed=True)
    return bool(tags) and not (tags[-1].closes or tags[-1].empty or block[tags[-1].end :].strip())


def is_open(block: str, opener: str, words: tuple[str, ...]) -> bool:
    """Whether a block ends in a call, behind a tag that another parameter may follow."""
    tags = find_tags(block, words, opener_prefix(opener), mixed=True)
    if not tags or block[tags[-1].end :].strip():
        return False
    return tags[-1].word_index == 1 or not (tags[-1].closes or tags[-1].empty)


def missing_end(block: str, opener: str, words: tuple[str, ...]) -> str:
    """Return the closing tag of the last call in a block."""
    prefix = opener_prefix(opener)
    tags = [tag for tag in find_tags(block, words[:1], prefix, mixed=True) if not tag.closes]
    if not tags:
        return ""
    tag = block[tags[-1].start : tags[-1].end]
    end = head_end(tag, words[0], prefix)
    return f"{prefix}</{tag[len(prefix) + 1 : end].lstrip()}>"
