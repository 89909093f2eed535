"""How an answer is shown while it comes: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec
from msgspec import UNSET

from cnllm.cli.output import stdio, terminal
from cnllm.cli.output.errors import hide_secrets
from cnllm.cli.output.stdout import print_json, print_line
from cnllm.config.redact import redact
from cnllm.types import (
    Event,
    Finished,
    Note,
    NoteAdded,
    ReasoningDelta,
    Reply,
    Restarted,
    RunSummary,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    UsageSeen,
)

if TYPE_CHECKING:
    from cnllm.engine.run.effects import Step

__all__ = [
    "EventLinesView",
    "Line",
    "SilentView",
    "TextView",
    "ToolOutcome",
    "View",
    "print_json",
    "print_line",
    "usage_line",
]

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
_SHORT = 300  # characters of a tool's result


class View(Protocol):
    """What shows an answer: `event` while it comes or `whole` in one piece, then `end`."""

    def event(self, event: Event) -> None: ...
    def whole(self, reply: Reply, run: RunSummary | None = None) -> None: ...
    def step(self, step: Step) -> None: ...
    def end(self, reply: Reply | None) -> None: ...
    def interrupted(self, reply: Reply | None) -> None: ...


class SilentView:
    """Shows nothing while the answer comes (`--json`)."""

    def event(self, event: Event) -> None:
        """Nothing: `end` says it."""

    def whole(self, reply: Reply, run: RunSummary | None = None) -> None:
        """Nothing: `end` says it."""

    def step(self, step: Step) -> None:
        """Nothing: `end` says it."""

    def end(self, reply: Reply | None) -> None:
        """The whole reply, or nothing where nothing came."""
        if reply is not None:
            print_json(reply.to_dict())

    def interrupted(self, reply: Reply | None) -> None:
        """What came so far, as a cut reply."""
        self.end(reply)


class ToolOutcome(msgspec.Struct, frozen=True, tag="tool_result"):
    """What a call gave that was executed, or why it was not. It comes after the end of the reply that made the call."""

    result: ToolResult


Line = Event | ToolOutcome
"""What `--events` prints."""


class EventLinesView:
    """One event a line (`--events`)."""

    def event(self, event: Event) -> None:
        """The event."""
        self._line(event)

    def _line(self, line: Line) -> None:
        try:
            text = msgspec.json.encode(line).decode()
        except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can say
            text = json.dumps(msgspec.to_builtins(line))
        print_line(terminal.escape_json(text) if sys.stdout.isatty() else text)

    def whole(self, reply: Reply, run: RunSummary | None = None) -> None:
        """The events that a stream of this reply would have had."""
        if reply.reasoning:
            self.event(ReasoningDelta(reply.reasoning))
        if reply.text:
            self.event(TextDelta(reply.text))
        for index, call in enumerate(reply.tool_calls):
            self.event(ToolCallStart(index, call.id, call.name, call.excluded))
            self.event(ToolCallDelta(index, call.raw))
            self.event(ToolCallEnd(index, call))
        for note in reply.notes:
            self.event(NoteAdded(note))
        self.event(UsageSeen(reply.usage))
        self.event(Finished(reply.finish, reply.raw_finish, UNSET if run is None else run))

    def step(self, step: Step) -> None:
        """The results of its calls."""
        for result in step.results:
            self._line(ToolOutcome(result))

    def end(self, reply: Reply | None) -> None:
        """The events said it all."""

    def interrupted(self, reply: Reply | None) -> None:
        """The events said it all."""


class TextView:
    """Text: the answer on stdout, the rest on stderr; verbatim unless that is a terminal.

    `hold` keeps the answer from a pipe until it is final: what was given cannot be taken back when the reply
    is taken anew.
    """

    def __init__(self, *, reasoning: bool, raw: bool, hold: bool) -> None:
        self._out, self._err = _Face(sys.stdout, raw), _Face(sys.stderr, raw)
        self._reasoning = reasoning
        self._dim = terminal.supports_dim(sys.stderr)
        self._held: list[str] | None = [] if hold and not self._out.terminal else None

    def event(self, event: Event) -> None:
        """Shows what an event adds."""
        kind = type(event)
        if kind is TextDelta:
            self._text(event.text)  # type: ignore[union-attr]
        elif kind is ReasoningDelta:
            self._thought(event.text)  # type: ignore[union-attr]
        elif kind is ToolCallEnd:
            self._call(event.call)  # type: ignore[union-attr]
        elif kind is Restarted:
            self._restart()

    def whole(self, reply: Reply, run: RunSummary | None = None) -> None:
        """Shows a reply that came in one piece."""
        self.pieces(reply.reasoning, reply.text, reply.tool_calls)

    def step(self, step: Step) -> None:
        """The results of the calls of one step, each in a line."""
        if not step.results:
            return
        self._err.end_line()
        if self._held is None:
            self._out.end_line()
        for result in step.results:
            text = " ".join(result.text.split())
            text = text if len(text) <= _SHORT else f"{text[:_SHORT]}…"
            self._say(f"{'tool error' if result.error else 'tool result'}: {result.name} {text}")

    def pieces(self, reasoning: str, text: str, calls: Iterable[ToolCall]) -> None:
        """Shows what a reply is made of."""
        self._thought(reasoning)
        self._text(text)
        for call in calls:
            self._call(call)

    def end(self, reply: Reply | None) -> None:
        """Ends the lines, then says what there is to say about the reply."""
        if self._held:
            self._out.write("".join(self._held))
        self._err.end_line()
        self._out.end_line()
        if reply is None:
            return
        for call in reply.incomplete:
            self._say(f"tool call, cut off: {call.name} {call.raw}")
        self.notes(reply.notes)
        if line := usage_line(reply):
            self._err.write(f"{DIM}{line}{PLAIN}\n" if self._dim else f"{line}\n", trusted=True)

    def notes(self, notes: Iterable[Note]) -> None:
        """Says what was changed, a line each."""
        self._err.end_line()
        self._out.end_line()
        for note in notes:
            self._say(f"note: {note}")

    def interrupted(self, reply: Reply | None) -> None:
        """Ends the lines where they are."""
        self.end(None)
        self._say("cnllm: interrupted; this is what came so far")

    def _say(self, line: str) -> None:
        self._err.write(f"{terminal.escape(line)}\n", trusted=True)

    def _text(self, text: str) -> None:
        if not text:
            return
        if self._held is not None:
            self._held.append(text)
            return
        if not self._err.at_start:
            self._err.write("\n\n" if self._err.terminal and self._out.terminal else "\n")
        self._out.write(text)

    def _thought(self, text: str) -> None:
        if not text or not self._reasoning:
            return
        if self._out.terminal and self._err.terminal:
            self._out.end_line()
        self._err.write(text, (DIM, PLAIN) if self._dim else ("", ""))

    def _call(self, call: ToolCall) -> None:
        self._err.end_line()
        if self._out.terminal:
            self._out.end_line()
        problem = f"  ({call.problem})" if call.problem else ""
        self._say(f"tool call: {call.name} {call.raw}{problem}")

    def _restart(self) -> None:
        if self._held is not None:
            self._held.clear()
        self._err.end_line()
        self._out.end_line()
        self._say("note: forget what came so far, the answer begins anew")


class _Face:
    """One of the two streams: knows whether it is a terminal and whether a line is open."""

    def __init__(self, stream: TextIO, raw: bool) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self._escapes = self.terminal and not raw
        self.at_start = True

    def write(self, text: str, around: tuple[str, str] = ("", ""), *, trusted: bool = False) -> None:
        text = redact(text, hide_secrets())
        if self._escapes and not trusted:
            text = terminal.escape(text)
        self.at_start = text.endswith("\n")
        if self._stream is sys.stderr:
            stdio.write_text(f"{around[0]}{text}{around[1]}")
        else:
            self._stream.write(text)
            self._stream.flush()

    def end_line(self) -> None:
        if not self.at_start:
            self.write("\n")


def usage_line(reply: Reply) -> str:
    """ "zai/glm-4.7 · 12 in (3 cached) · 34 out (20 reasoning) · 0.0012 USD", as far as it is known."""
    used = reply.usage
    parts = [reply.message.by or reply.model or ""]
    for count, word, inside, kind in (
        (used.input, "in", used.cached, "cached"),
        (used.output, "out", used.reasoning, "reasoning"),
    ):
        if count is not None:
            parts.append(f"{count} {word}" + (f" ({inside} {kind})" if inside else ""))
    if reply.cost is not None:
        parts.append(f"{reply.cost.amount.normalize():f} {reply.cost.currency}")
    shown = terminal.escape(" · ".join(filter(None, parts)))
    return shown if len(parts) > 1 else ""
