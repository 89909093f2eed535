"""Takes the secrets of a request out of what its endpoint echoes: events as they come, the reply, and errors.

In text and reasoning a secret is looked for as it is, also where it comes in several deltas; everywhere else in every
spelling too (see `cnllm.config.spellings`). The deltas put together are what the reply says: where the first one or two
characters of a secret went out before the rest came, they stay in both. A secret of fewer than eight characters is left
alone, for it would tear up ordinary text.
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

__all__ = ["SHORTEST", "Echo", "clean_data"]

SHORTEST = 8
"""Shorter secrets are left alone in what an endpoint says."""
_BEGINS = 3  # so many characters of a secret are held back until it is known what follows; fewer go out at once
_DELTAS = (TextDelta, ReasoningDelta)
_CUT = 8  # so many at the end of a text are the beginning of a secret that was cut off
_BEFORE = 64  # so many characters before a piece of arguments are looked at with it


class Echo:
    """Cleans what comes of one request."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._finder, self._plain, self._begins = _shape(tuple(secrets))
        self._begin()

    def _begin(self) -> None:
        self._runs: dict[Any, _Run] = {}  # of the kinds of delta that have come
        self._arguments: dict[int, _Arguments] = {}
        self._sent: dict[str, int] = {}  # arguments → so many characters of them went out before a secret was seen
        self._blocks = {Text: (0, ""), Reasoning: (0, "")}  # where the last block ended, and its last characters

    def _run(self, kind: Any) -> _Run:
        run = self._runs.get(kind)
        if run is None:
            run = self._runs[kind] = _Run(self._plain, self._begins)
        return run

    # ── as it comes ──────────────────────────────────────────────────────────

    def events(self, events: list[Event]) -> list[Event]:
        """The events without secrets. What may be the beginning of one waits for what follows."""
        if self._finder is None or not events:
            return events
        if len(events) == 1:  # most often
            event: Any = events[0]
            run = self._runs.get(type(event))
            if run is not None and run.passes(event.text):
                return events
        out: list[Event] = []
        for kind, group in groupby(events, type):
            alike: list[Any] = list(group)
            if kind in _DELTAS and self._run(kind).passes("".join([event.text for event in alike])):
                out += alike
                continue
            for event in alike:
                self._event(event, out)
        return out

    def flush(self) -> list[Event]:
        """What was held back, once nothing more comes."""
        if self._finder is None:
            return []
        out: list[Event] = []
        for kind, run in self._runs.items():
            if text := run.rest():
                out.append(kind(text))
        for index, arguments in self._arguments.items():
            if text := arguments.rest():
                out.append(ToolCallDelta(index, text))
        return out

    def _event(self, event: Event, out: list[Event]) -> None:
        assert self._finder is not None
        match event:
            case TextDelta(text) | ReasoningDelta(text):
                run = self._run(type(event))
                if run.passes(text):
                    out.append(event)
                elif text := run.more(text):
                    out.append(type(event)(text))
            case ToolCallDelta(index, text):
                arguments = self._arguments.get(index)
                if arguments is None:
                    arguments = self._arguments[index] = _Arguments(self._finder)
                if arguments.passes(text):
                    out.append(event)
            case ToolCallEnd(index, call):
                if (arguments := self._arguments.pop(index, None)) is not None and arguments.held:
                    self._sent[call.raw] = arguments.sent
                    if text := arguments.rest():
                        out.append(ToolCallDelta(index, text))
                out.append(ToolCallEnd(index, self._call(call)) if self._may_hold(event) else event)
            case BlockEnd(index, part):
                out.append(BlockEnd(index, self._block(part)))
            case Restarted():
                self._begin()
                out.append(event)
            case Finished():
                out += self.flush()
                out.append(self._struct(event))
            case _:
                out.append(self._struct(event))

    def _struct(self, event: Any) -> Any:
        """An event with texts in it that are neither text nor reasoning."""
        if not self._may_hold(event):
            return event
        return msgspec.convert(clean_data(msgspec.to_builtins(event), self._finder), type(event))

    def _block(self, part: Part) -> Part:
        if not isinstance(part, Text | Reasoning):
            return self._part(part) if self._may_hold(part) else part
        end, before = self._blocks[type(part)]
        whole = before + part.text
        self._blocks[type(part)] = end + len(part.text), whole[1 - max(map(len, self._plain)) :]
        run = self._run(TextDelta if type(part) is Text else ReasoningDelta)
        text = run.pieces([before, part.text], whole, end - len(before))[1]
        if text != part.text:
            part = replace(part, text=text)
        return self._part(part) if self._may_hold(replace(part, text="")) else part

    # ── the reply ────────────────────────────────────────────────────────────

    def reply(self, reply: Reply) -> Reply:
        """The reply without secrets."""
        if self._finder is None:
            return reply
        # Whatever a part says stands in the body, which is here where the reply came whole. Texts are looked at apart.
        said = (
            reply.raw
            if type(reply.raw) is dict
            else ([*map(_wordless, reply.message.parts)], reply.message.extra, reply.raw)
        )
        some = (said, reply.notes, reply.incomplete, reply.id, reply.model, reply.raw_finish)
        if not self._may_hold(some) and not self._in_words(reply):
            return reply if reply.parsed is None else self._built(reply)
        hidden = self._finder
        fields = {name: clean_data(getattr(reply, name), hidden) for name in ("raw_finish", "model", "id")}
        return self._built(
            replace(
                reply,
                text=self._run(TextDelta).whole(reply.text),
                reasoning=self._run(ReasoningDelta).whole(reply.reasoning),
                tool_calls=[self._call(call) for call in reply.tool_calls],
                incomplete=[self._call(call) for call in reply.incomplete],
                notes=[self._note(note) for note in reply.notes],
                message=self._message(reply.message),
                raw=clean_data(reply.raw, hidden),
                **fields,
            )
        )

    def _in_words(self, reply: Reply) -> bool:
        """Whether a secret stands in the text or the reasoning, be it over several parts, or begins at the end."""
        heads = [secret[:_CUT] for secret in self._plain]
        return any(head in reply.text or head in reply.reasoning for head in heads)

    def _message(self, message: Message) -> Message:
        parts: list[Part] = list(message.parts)
        for kind, delta in ((Text, TextDelta), (Reasoning, ReasoningDelta)):
            places = [at for at, part in enumerate(parts) if type(part) is kind]
            texts = [parts[at].text for at in places]  # type: ignore[union-attr]
            for at, text in zip(places, self._run(delta).pieces(texts, "".join(texts)), strict=True):
                if text != parts[at].text:  # type: ignore[union-attr]
                    parts[at] = replace(parts[at], text=text)
        extra = clean_data(message.extra, self._finder) if message.extra else message.extra
        return replace(message, parts=tuple(map(self._part, parts)), extra=extra)

    def _part(self, part: Part) -> Part:
        """A part; the words of a text are clean already."""
        match part:
            case ToolCall():
                return self._call(part)
            case Text() | Reasoning():
                plain = clean_data(msgspec.to_builtins(replace(part, text="")), self._finder)
                return replace(msgspec.convert(plain, type(part)), text=part.text)
        return msgspec.convert(clean_data(msgspec.to_builtins(part), self._finder), type(part))

    def _call(self, call: ToolCall) -> ToolCall:
        assert self._finder is not None
        sent = self._sent.get(call.raw, 0)
        cleaned: ToolCall = msgspec.convert(
            clean_data(msgspec.to_builtins(replace(call, raw="")), self._finder), ToolCall
        )
        return replace(cleaned, raw=call.raw[:sent] + clean_text(call.raw, self._finder, begin=sent))

    def _note(self, note: Note) -> Note:
        cleaned: Note = msgspec.convert(clean_data(msgspec.to_builtins(note), self._finder), Note)
        return cleaned

    def _built(self, reply: Reply) -> Reply:
        """The parsed answer, built anew where it held a secret."""
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
                said = f"a secret of the request stood in the answer, and {type(error).__name__} without it"
                note = Note("answer-invalid", "schema", said, "parsed is None")
                return replace(reply, parsed=None, notes=[*reply.notes, note])
        return replace(reply, parsed=plain)

    def _may_hold(self, value: Any) -> bool:
        assert self._finder is not None
        try:
            return self._finder.may_hold(msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError):  # half a character; what JSON cannot hold
            return True


def _wordless(part: Part) -> Part:
    """The part without its words, which are looked at in another way. What is long need not be copied."""
    return replace(part, text="") if isinstance(part, Text | Reasoning) else part


@lru_cache(maxsize=16)
def _shape(secrets: tuple[str, ...]) -> tuple[SecretFinder | None, tuple[str, ...], tuple[str, ...]]:
    """What finds secrets; those to look for in plain text; and how these begin."""
    long = tuple(dict.fromkeys(secret for secret in secrets if len(secret) >= SHORTEST))
    if not long:
        return None, (), ()
    # one that holds another is found by that other one, as soon in a stream as in the whole text
    plain = tuple(one for one in long if not any(other in one for other in long if other != one))
    return secret_finder(long), plain, tuple(dict.fromkeys(secret[:_BEGINS] for secret in plain))


class _Run:
    """A text that comes in pieces, of which what went out cannot be taken back."""

    __slots__ = ("_at", "_begins", "_gone", "_held", "_kept", "_secrets")

    def __init__(self, secrets: tuple[str, ...], begins: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._begins = begins
        self._gone = ""  # the last two characters that went out
        self._held = ""
        self._at = 0  # where the text ends that went out or is held
        self._kept: dict[int, int] = {}  # where a secret began → so many characters of it went out

    def passes(self, text: str) -> bool:
        """Whether a piece can go out as it is, which it has done then."""
        if self._held:
            return False
        window = self._gone + text
        for begin in self._begins:
            if begin in window:
                return False
        self._gone = window[1 - _BEGINS :]
        self._at += len(text)
        return True

    def more(self, text: str) -> str:
        """What can go out with a piece."""
        gone = len(self._gone)
        window = self._gone + self._held + text
        start = self._at - len(self._held) - gone  # of the window in the text
        self._at += len(text)
        out, at = [], 0
        for begin, end in _plain_spans(window, self._secrets):
            if begin < gone:
                self._kept[start + begin] = gone - begin
            out += [window[max(at, gone) : max(begin, gone)], MARK]
            at = end
        held = self._beginning(window, at)
        out.append(window[max(at, gone) : max(held, gone)])
        sent = max(held, gone)
        self._held = window[sent:]
        self._gone = window[max(at, sent + 1 - _BEGINS) : sent]
        return "".join(out)

    def _beginning(self, window: str, at: int) -> int:
        """Where the longest beginning of a secret stands that the window ends with."""
        best = len(window)
        for secret in self._secrets:
            first = max(at, len(window) - len(secret) + 1)
            while 0 <= (first := window.find(secret[:_BEGINS], first)) < best:
                if secret.startswith(window[first:]):
                    best = first
                    break
                first += 1
        return best

    def rest(self) -> str:
        """What is held, once nothing more comes."""
        held, self._held = self._held, ""
        if not held:
            return ""
        window = self._gone + held
        begin = self._beginning(window, 0)
        if len(window) - begin < _CUT:
            return held
        gone = len(self._gone)
        if begin < gone:
            self._kept[self._at - len(window) + begin] = gone - begin
        self._gone = ""
        return window[gone:begin] + MARK

    def whole(self, text: str) -> str:
        """The same text in one piece."""
        return self.pieces([text], text)[0]

    def pieces(self, texts: list[str], whole: str, base: int = 0) -> list[str]:
        """Texts that follow one another, `whole` together, from `base` on; a mark stands where a secret began."""
        found = _plain_spans(whole, self._secrets)
        end = found[-1][1] if found else 0
        cut = self._beginning(whole, end)
        if len(whole) - cut >= _CUT:
            found.append((cut, len(whole)))
        if not found:
            return texts
        out: list[str] = []
        begin = 0
        for text in texts:
            stop, at, piece = begin + len(text), begin, ""
            for first, last in found:
                first += self._kept.get(base + first, 0)
                if last <= begin or first >= stop:
                    continue
                piece += whole[at : max(first, at)] + (MARK if first >= begin else "")
                at = min(last, stop)
            out.append(piece + whole[at:stop])
            begin = stop
        return out


class _Arguments:
    """A call's arguments as they come. Once a spelling of a secret may begin in them, the rest waits for their end."""

    def __init__(self, hidden: SecretFinder) -> None:
        self._finder = hidden
        self._said: list[str] = []
        self._last = ""
        self.sent = 0
        self.held = False

    def passes(self, text: str) -> bool:
        """Whether a piece can go out now."""
        self._said.append(text)
        if not self.held:
            window = self._last + text
            if not self._finder.may_begin(window):
                self._last = window[-_BEFORE:]
                self.sent += len(text)
                return True
            self.held = True
        return False

    def rest(self) -> str:
        """What waited."""
        text = clean_text("".join(self._said), self._finder, begin=self.sent) if self.held else ""
        self.held = False
        return text


def clean_text(text: str, hidden: SecretFinder, *, begin: int = 0) -> str:
    """A text, from a place on, without secrets in any spelling; what stands before it went out already."""
    found = hidden.spans(text, cut=True)
    out, at = [], begin
    for start, end in found:
        if end <= at:
            continue
        out += [text[at : max(start, at)], MARK]
        at = end
    return "".join([*out, text[at:]])


def clean_data(data: Any, hidden: SecretFinder | None) -> Any:
    """Data that JSON can hold without secrets in any of its strings, keys too."""
    if hidden is None:
        return data
    if isinstance(data, str):
        return clean_text(data, hidden)
    if isinstance(data, dict):
        return {clean_data(key, hidden): clean_data(value, hidden) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [clean_data(item, hidden) for item in data]
    return data


def _plain_spans(text: str, secrets: tuple[str, ...]) -> list[tuple[int, int]]:
    if not any(secret in text for secret in secrets):
        return []
    return [match.span() for match in re.finditer("|".join(map(re.escape, secrets)), text)]
