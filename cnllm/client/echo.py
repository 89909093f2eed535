"""Remove the secrets of a request from what its endpoint echoes: events, the reply, and errors.

In text and reasoning a secret is searched for as it is written, also where it is spread over several deltas. In all
other values it is searched for in every spelling (see `cnllm.config.spellings`). The deltas put together equal the
reply's text: where the first one or two characters of a secret went out before the rest arrived, they stay in both. A
secret of fewer than eight characters is not removed, because that would damage ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.config.redact import MARK
from cnllm.config.spellings import SecretFinder, secret_finder
from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Message,
    Note,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Restarted,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
)

__all__ = ["MIN_SECRET", "Echo", "clean_data"]

MIN_SECRET = 8
"""Secrets with fewer characters are not removed from an endpoint's output."""
_PREFIX_SIZE = 3  # this many characters of a secret are withheld until the next ones arrive; fewer go out at once
_DELTAS = (TextDelta, ReasoningDelta)
_CUT_SIZE = 8  # this many characters at the end of a text count as the beginning of a secret that was cut off
_CONTEXT_SIZE = 64  # this many characters before a piece of arguments are searched together with it


class Echo:
    """Removes secrets from the events and the reply of one request."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._finder, self._plain, self._prefixes = _secret_search(tuple(secrets))
        self._reset()

    def _reset(self) -> None:
        self._filters: dict[Any, TextFilter] = {}  # one for each kind of delta that has arrived
        self._arguments: dict[int, ArgumentFilter] = {}
        self._argument_sizes: dict[
            str, int
        ] = {}  # arguments → characters that went out before a secret began
        self._blocks = {Text: (0, ""), Reasoning: (0, "")}  # end of the last block, and its last characters

    def _filter(self, kind: Any) -> TextFilter:
        text_filter = self._filters.get(kind)
        if text_filter is None:
            text_filter = self._filters[kind] = TextFilter(self._plain, self._prefixes)
        return text_filter

    # ── events ───────────────────────────────────────────────────────────────

    def events(self, events: list[Event]) -> list[Event]:
        """Return the events without secrets. Text that may begin a secret waits for the next piece."""
        if self._finder is None or not events:
            return events
        if len(events) == 1:  # most often
            event: Any = events[0]
            text_filter = self._filters.get(type(event))
            if text_filter is not None and text_filter.passes(event.text):
                return events
        out: list[Event] = []
        for kind, group in groupby(events, type):
            same_kind: list[Any] = list(group)
            if kind in _DELTAS and self._filter(kind).passes("".join([event.text for event in same_kind])):
                out += same_kind
                continue
            for event in same_kind:
                self._event(event, out)
        return out

    def flush(self) -> list[Event]:
        """Return the withheld text, once nothing more arrives."""
        if self._finder is None:
            return []
        out: list[Event] = []
        for kind, text_filter in self._filters.items():
            if text := text_filter.rest():
                out.append(kind(text))
        for index, arguments in self._arguments.items():
            if text := arguments.rest():
                out.append(ToolCallDelta(index, text))
        return out

    def _event(self, event: Event, out: list[Event]) -> None:
        assert self._finder is not None
        match event:
            case TextDelta(text) | ReasoningDelta(text):
                text_filter = self._filter(type(event))
                if text_filter.passes(text):
                    out.append(event)
                elif text := text_filter.more(text):
                    out.append(type(event)(text))
            case ToolCallDelta(index, text):
                arguments = self._arguments.get(index)
                if arguments is None:
                    arguments = self._arguments[index] = ArgumentFilter(self._finder)
                if arguments.passes(text):
                    out.append(event)
            case ToolCallEnd(index, call):
                if (arguments := self._arguments.pop(index, None)) is not None and arguments.withheld:
                    self._argument_sizes[call.raw] = arguments.size
                    if text := arguments.rest():
                        out.append(ToolCallDelta(index, text))
                out.append(ToolCallEnd(index, self._call(call)) if self._may_hold(event) else event)
            case BlockEnd(index, part):
                out.append(BlockEnd(index, self._block(part)))
            case Restarted():
                self._reset()
                out.append(event)
            case Finished():
                out += self.flush()
                out.append(self._struct(event))
            case _:
                out.append(self._struct(event))

    def _struct(self, event: Any) -> Any:
        """Clean an event whose strings are neither text nor reasoning."""
        if not self._may_hold(event):
            return event
        return msgspec.convert(clean_data(msgspec.to_builtins(event), self._finder), type(event))

    def _block(self, part: Part) -> Part:
        if not isinstance(part, Text | Reasoning):
            return self._part(part) if self._may_hold(part) else part
        offset, context = self._blocks[type(part)]
        whole = context + part.text
        self._blocks[type(part)] = offset + len(part.text), whole[1 - max(map(len, self._plain)) :]
        text_filter = self._filter(TextDelta if type(part) is Text else ReasoningDelta)
        text = text_filter.pieces([context, part.text], whole, offset - len(context))[1]
        if text != part.text:
            part = replace(part, text=text)
        return self._part(part) if self._may_hold(replace(part, text="")) else part

    # ── the reply ────────────────────────────────────────────────────────────

    def reply(self, reply: Reply) -> Reply:
        """Return the reply without secrets."""
        if self._finder is None:
            return reply
        # A whole reply has its decoded body in `raw`, which holds the content of every part. Texts are checked below.
        content = (
            reply.raw
            if type(reply.raw) is dict
            else ([*map(_without_text, reply.message.parts)], reply.message.extra, reply.raw)
        )
        values = (content, reply.notes, reply.incomplete, reply.id, reply.model, reply.raw_finish)
        if not self._may_hold(values) and not self._text_may_hold(reply):
            return reply if reply.parsed is None else self._clean_parsed(reply)
        finder = self._finder
        fields = {name: clean_data(getattr(reply, name), finder) for name in ("raw_finish", "model", "id")}
        return self._clean_parsed(
            replace(
                reply,
                text=self._filter(TextDelta).whole(reply.text),
                reasoning=self._filter(ReasoningDelta).whole(reply.reasoning),
                tool_calls=[self._call(call) for call in reply.tool_calls],
                incomplete=[self._call(call) for call in reply.incomplete],
                notes=[self._note(note) for note in reply.notes],
                message=self._message(reply.message),
                raw=clean_data(reply.raw, finder),
                **fields,
            )
        )

    def _text_may_hold(self, reply: Reply) -> bool:
        """Whether text or reasoning holds a secret, also one spread over several parts or begun at the end."""
        heads = [secret[:_CUT_SIZE] for secret in self._plain]
        return any(head in reply.text or head in reply.reasoning for head in heads)

    def _message(self, message: Message) -> Message:
        parts: list[Part] = list(message.parts)
        for kind, delta in ((Text, TextDelta), (Reasoning, ReasoningDelta)):
            indexes = [index for index, part in enumerate(parts) if type(part) is kind]
            texts = [parts[index].text for index in indexes]  # type: ignore[union-attr]
            for index, text in zip(indexes, self._filter(delta).pieces(texts, "".join(texts)), strict=True):
                if text != parts[index].text:  # type: ignore[union-attr]
                    parts[index] = replace(parts[index], text=text)
        extra = clean_data(message.extra, self._finder) if message.extra else message.extra
        return replace(message, parts=tuple(map(self._part, parts)), extra=extra)

    def _part(self, part: Part) -> Part:
        """Clean a part. The text of a text or reasoning part is clean already."""
        match part:
            case ToolCall():
                return self._call(part)
            case Text() | Reasoning():
                plain = clean_data(msgspec.to_builtins(replace(part, text="")), self._finder)
                return replace(msgspec.convert(plain, type(part)), text=part.text)
        return msgspec.convert(clean_data(msgspec.to_builtins(part), self._finder), type(part))

    def _call(self, call: ToolCall) -> ToolCall:
        assert self._finder is not None
        sent = self._argument_sizes.get(call.raw, 0)
        cleaned: ToolCall = msgspec.convert(
            clean_data(msgspec.to_builtins(replace(call, raw="")), self._finder), ToolCall
        )
        return replace(cleaned, raw=call.raw[:sent] + clean_text(call.raw, self._finder, begin=sent))

    def _note(self, note: Note) -> Note:
        cleaned: Note = msgspec.convert(clean_data(msgspec.to_builtins(note), self._finder), Note)
        return cleaned

    def _clean_parsed(self, reply: Reply) -> Reply:
        """Rebuild the parsed answer where it holds a secret."""
        parsed = reply.parsed
        if parsed is None or self._finder is None:
            return reply
        dump = getattr(parsed, "model_dump", None)
        plain = dump(mode="json", by_alias=True) if callable(dump) else parsed
        if not self._may_hold(plain):
            return reply
        plain = clean_data(plain, self._finder)
        if callable(dump):
            try:
                plain = type(parsed).model_validate(plain)
            except Exception as error:  # noqa: BLE001 a model class runs its author's code
                sentence = f"a secret of the request stood in the answer, and {type(error).__name__} without it"
                note = Note("answer-invalid", "schema", sentence, "parsed is None")
                return replace(reply, parsed=None, notes=[*reply.notes, note])
        return replace(reply, parsed=plain)

    def _may_hold(self, value: Any) -> bool:
        assert self._finder is not None
        try:
            return self._finder.may_hold(msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError):  # half a surrogate pair, or a value that JSON cannot hold
            return True


def _without_text(part: Part) -> Part:
    """Return the part without its text, which is checked in another way. A long text need not be copied."""
    return replace(part, text="") if isinstance(part, Text | Reasoning) else part


@lru_cache(maxsize=16)
def _secret_search(secrets: tuple[str, ...]) -> tuple[SecretFinder | None, tuple[str, ...], tuple[str, ...]]:
    """Return the finder, the secrets to search for in plain text, and the first characters of these."""
    searchable = tuple(dict.fromkeys(secret for secret in secrets if len(secret) >= MIN_SECRET))
    if not searchable:
        return None, (), ()
    # A secret that contains another one is found by that other one, in a stream as early as in the whole text.
    plain = tuple(
        secret for secret in searchable if not any(other in secret for other in searchable if other != secret)
    )
    return secret_finder(searchable), plain, tuple(dict.fromkeys(secret[:_PREFIX_SIZE] for secret in plain))


class TextFilter:
    """Filters a text that arrives in pieces. A piece that went out cannot be taken back."""

    __slots__ = ("_context", "_length", "_pending", "_prefix_sizes", "_prefixes", "_secrets")

    def __init__(self, secrets: tuple[str, ...], prefixes: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._prefixes = prefixes
        self._context = ""  # the last two characters that went out
        self._pending = ""  # text that is withheld
        self._length = 0  # length of the text that went out or is withheld
        self._prefix_sizes: dict[int, int] = {}  # begin of a secret → how many of its characters went out

    def passes(self, text: str) -> bool:
        """Whether a piece can go out unchanged. If so, it counts as gone out."""
        if self._pending:
            return False
        window = self._context + text
        for prefix in self._prefixes:
            if prefix in window:
                return False
        self._context = window[1 - _PREFIX_SIZE :]
        self._length += len(text)
        return True

    def more(self, text: str) -> str:
        """Return the text that can go out after a piece."""
        context = len(self._context)
        window = self._context + self._pending + text
        start = self._length - len(self._pending) - context  # of the window in the text
        self._length += len(text)
        out, position = [], 0
        for begin, end in _plain_spans(window, self._secrets):
            if begin < context:
                self._prefix_sizes[start + begin] = context - begin
            out += [window[max(position, context) : max(begin, context)], MARK]
            position = end
        tail = self._prefix_index(window, position)
        out.append(window[max(position, context) : max(tail, context)])
        sent = max(tail, context)
        self._pending = window[sent:]
        self._context = window[max(position, sent + 1 - _PREFIX_SIZE) : sent]
        return "".join(out)

    def _prefix_index(self, window: str, start: int) -> int:
        """Return the index of the longest beginning of a secret at the end of the window."""
        best = len(window)
        for secret in self._secrets:
            first = max(start, len(window) - len(secret) + 1)
            while 0 <= (first := window.find(secret[:_PREFIX_SIZE], first)) < best:
                if secret.startswith(window[first:]):
                    best = first
                    break
                first += 1
        return best

    def rest(self) -> str:
        """Return the withheld text, once nothing more arrives."""
        tail, self._pending = self._pending, ""
        if not tail:
            return ""
        window = self._context + tail
        begin = self._prefix_index(window, 0)
        if len(window) - begin < _CUT_SIZE:
            return tail
        context = len(self._context)
        if begin < context:
            self._prefix_sizes[self._length - len(window) + begin] = context - begin
        self._context = ""
        return window[context:begin] + MARK

    def whole(self, text: str) -> str:
        """Clean the same text in one piece."""
        return self.pieces([text], text)[0]

    def pieces(self, texts: list[str], whole: str, base: int = 0) -> list[str]:
        """Clean consecutive texts, `whole` together, that begin at `base`. A mark stands where a secret began."""
        spans = _plain_spans(whole, self._secrets)
        end = spans[-1][1] if spans else 0
        tail = self._prefix_index(whole, end)
        if len(whole) - tail >= _CUT_SIZE:
            spans.append((tail, len(whole)))
        if not spans:
            return texts
        out: list[str] = []
        begin = 0
        for text in texts:
            stop, position, piece = begin + len(text), begin, ""
            for first, last in spans:
                first += self._prefix_sizes.get(base + first, 0)
                if last <= begin or first >= stop:
                    continue
                piece += whole[position : max(first, position)] + (MARK if first >= begin else "")
                position = min(last, stop)
            out.append(piece + whole[position:stop])
            begin = stop
        return out


class ArgumentFilter:
    """Filters the arguments of a call that arrive in pieces.

    Once a spelling of a secret may begin in them, the rest waits for the end of the arguments.
    """

    def __init__(self, finder: SecretFinder) -> None:
        self._finder = finder
        self._pieces: list[str] = []
        self._context = ""
        self.size = 0
        self.withheld = False

    def passes(self, text: str) -> bool:
        """Whether a piece can go out at once."""
        self._pieces.append(text)
        if not self.withheld:
            window = self._context + text
            if not self._finder.may_begin(window):
                self._context = window[-_CONTEXT_SIZE:]
                self.size += len(text)
                return True
            self.withheld = True
        return False

    def rest(self) -> str:
        """Return the withheld arguments, cleaned."""
        text = clean_text("".join(self._pieces), self._finder, begin=self.size) if self.withheld else ""
        self.withheld = False
        return text


def clean_text(text: str, finder: SecretFinder, *, begin: int = 0) -> str:
    """Return a text from index `begin` on without secrets in any spelling. What stands before it went out already."""
    spans = finder.spans(text, cut=True)
    out, position = [], begin
    for start, end in spans:
        if end <= position:
            continue
        out += [text[position : max(start, position)], MARK]
        position = end
    return "".join([*out, text[position:]])


def clean_data(data: Any, finder: SecretFinder | None) -> Any:
    """Return data that JSON can hold without secrets in any of its strings and keys."""
    if finder is None:
        return data
    if isinstance(data, str):
        return clean_text(data, finder)
    if isinstance(data, dict):
        return {clean_data(key, finder): clean_data(value, finder) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [clean_data(item, finder) for item in data]
    return data


def _plain_spans(text: str, secrets: tuple[str, ...]) -> list[tuple[int, int]]:
    if not any(secret in text for secret in secrets):
        return []
    return [match.span() for match in re.finditer("|".join(map(re.escape, secrets)), text)]
