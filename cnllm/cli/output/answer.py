"""Show an answer while it arrives: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, TextIO

import msgspec
from msgspec import UNSET

from cnllm.cli.language.messages import translate
from cnllm.cli.output import stdio, terminal
from cnllm.cli.output.errors import hide_secrets
from cnllm.cli.output.stdout import print_json, print_line
from cnllm.cli.output.usage import ReplyPace, usage_line
from cnllm.config.redact import redact
from cnllm.types import (
    Event,
    Finished,
    Message,
    Note,
    NoteAdded,
    ReasoningDelta,
    Reply,
    Restarted,
    RunSummary,
    TextDelta,
    ToolCall,
    ToolCallEnd,
    ToolResult,
    UsageSeen,
)
from cnllm.types.json_form import encode_json

if TYPE_CHECKING:
    from cnllm.cli.output.markdown import MarkdownBlocks
    from cnllm.types import Step

__all__ = [
    "EventLinesView",
    "Line",
    "SilentView",
    "TextView",
    "ToolOutcome",
    "View",
]

DIM, RESET = "\x1b[2m", "\x1b[0m"
_MAX_RESULT = 300  # characters of a tool's result


class View:
    """The view of an answer: `event` while it arrives, or `reply` for a complete one, then `end`. It prints nothing."""

    def event(self, event: Event) -> None:
        """Show one event of a stream."""

    def reply(self, reply: Reply, run: RunSummary | None = None) -> None:
        """Show a complete reply."""

    def step(self, step: Step) -> None:
        """Show the tool results of one step."""

    def end(self, reply: Reply | None) -> None:
        """Finish after the reply; None if there is none."""

    def interrupt(self, reply: Reply | None) -> None:
        """Finish after Ctrl-C, with the part of the reply that arrived."""


class SilentView(View):
    """A view that prints nothing before the end (`--json`)."""

    def end(self, reply: Reply | None) -> None:
        """Print the reply, or the part of it that arrived, as JSON; print nothing if there is none."""
        if reply is not None:
            print_json(reply.to_dict())

    interrupt = end


class ToolOutcome(msgspec.Struct, frozen=True, tag="tool_result"):
    """The result of a tool call, or the reason why it did not run. It follows the end of the reply with the call."""

    result: ToolResult


Line = Event | ToolOutcome
"""A line that `--events` prints."""


class EventLinesView(View):
    """A view that prints each event as one line (`--events`)."""

    def event(self, event: Event) -> None:
        """Print the event."""
        self._line(event)

    def _line(self, line: Line) -> None:
        text = encode_json(line).decode()
        print_line(terminal.escape_json(text) if sys.stdout.isatty() else text)

    def reply(self, reply: Reply, run: RunSummary | None = None) -> None:
        """Print the events that a stream of this reply would have."""
        from cnllm.types.delivered import call_events, text_events

        events = text_events(reply.reasoning, reply.text)
        for index, call in enumerate(reply.tool_calls):
            events += [*call_events(index, call), ToolCallEnd(index, call)]
        finished = Finished(reply.finish, reply.raw_finish, UNSET if run is None else run)
        for event in (*events, *map(NoteAdded, reply.notes), UsageSeen(reply.usage), finished):
            self.event(event)

    def step(self, step: Step) -> None:
        """Print the results of the step's calls."""
        for result in step.results:
            self._line(ToolOutcome(result))


class TextView(View):
    """A view as text: the answer on stdout, the rest on stderr. Control characters are escaped only on a terminal.

    `hold` withholds the answer from a pipe until it is final: a pipe cannot take text back when the reply restarts.
    `markdown` formats the answer on a terminal, where rich is installed. `hidden` are codes of notes that the user has
    read already.
    """

    def __init__(
        self, *, reasoning: bool, raw: bool, hold: bool, markdown: bool = False, hidden: Collection[str] = ()
    ) -> None:
        self._hidden = hidden
        self.pace = ReplyPace()
        self._out, self._err = _OutputStream(sys.stdout, raw=raw, markdown=markdown), _OutputStream(sys.stderr, raw=raw)
        self._reasoning = reasoning
        self._dim = terminal.supports_dim(sys.stderr)
        self._pending: list[str] | None = [] if hold and not self._out.terminal else None
        self._has_answer = False
        self._shown = 0  # characters of the present reply's text that were shown
        self._last_step: Message | None = None

    def event(self, event: Event) -> None:
        """Show the content of an event."""
        kind = type(event)
        self.pace.event(event)
        if kind is TextDelta:
            self._text(event.text)  # type: ignore[union-attr]
        elif kind is ReasoningDelta:
            self._show_reasoning(event.text)  # type: ignore[union-attr]
        elif kind is ToolCallEnd:
            self._call(event.call)  # type: ignore[union-attr]
        elif kind is Restarted:
            self._restart()

    def reply(self, reply: Reply, run: RunSummary | None = None) -> None:
        """Show a complete reply."""
        self.pieces(reply.reasoning, reply.text, reply.tool_calls)

    def step(self, step: Step) -> None:
        """Show the tool results of one step, one line each."""
        self._shown, self._last_step = 0, step.reply.message
        if not step.results:
            return
        self.pace.pause()
        self._err.end_line()
        if self._pending is None:
            self._out.end_line()
        for result in step.results:
            label = translate(f"tool error: {result.name}" if result.error else f"tool result: {result.name}")
            self._print(f"{label} {terminal.one_line(result.text, _MAX_RESULT)}")

    def pieces(self, reasoning: str, text: str, calls: Iterable[ToolCall]) -> None:
        """Show the parts of a reply."""
        self._show_reasoning(reasoning)
        self._text(text)
        for call in calls:
            self._call(call)

    def end(self, reply: Reply | None) -> None:
        """End the lines, then print incomplete calls, notes and usage of the reply."""
        if self._pending:
            self._err.end_line()
            self._out.write("".join(self._pending))
        self.end_lines()
        if reply is None:
            return
        for call in reply.incomplete:
            self._print(translate(f"tool call, cut off: {call.name} {call.raw}"))
        for page in dict.fromkeys((citation.title, citation.url) for citation in reply.citations):
            self._print(translate(f"source: {' · '.join(text for text in page if text)}"))
        self.notes(reply.notes)
        if line := usage_line(reply):
            line = translate(line + (self.pace.text(reply) if self._err.terminal else ""))
            self._err.write(f"{DIM}{line}{RESET}\n" if self._dim else f"{line}\n", trusted=True)

    def notes(self, notes: Iterable[Note]) -> None:
        """Print the notes, one line each."""
        self.end_lines()
        for note in notes:
            if note.code not in self._hidden:
                self._print(translate(f"note: {note}"))

    def end_lines(self) -> None:
        """End the lines that are open."""
        self._err.end_line()
        self._out.end_line()

    def interrupt(self, reply: Reply | None) -> None:
        """Show the sentence that has not ended, end the lines, and say whether part of the answer is shown."""
        if reply is not None and reply.message is not self._last_step:
            self._text(reply.text[self._shown :])
        self.end(None)
        self._print(
            translate(
                "cnllm: interrupted; the answer so far is shown above"
                if self._has_answer
                else "cnllm: interrupted; no answer arrived"
            )
        )

    def _print(self, line: str) -> None:
        self._err.write(f"{terminal.escape(line)}\n", trusted=True)

    def _text(self, text: str) -> None:
        if not text:
            return
        self._has_answer, self._shown = True, self._shown + len(text)
        if self._pending is not None:
            self._pending.append(text)
            return
        if not self._err.at_start:
            self._err.write("\n\n" if self._err.terminal and self._out.terminal else "\n")
        self._out.write(text)

    def _show_reasoning(self, text: str) -> None:
        if not text or not self._reasoning:
            return
        if self._out.terminal and self._err.terminal:
            self._out.end_line()
        self._err.write(text, (DIM, RESET) if self._dim else ("", ""))

    def _call(self, call: ToolCall) -> None:
        self._has_answer = True
        self._err.end_line()
        if self._out.terminal:
            self._out.end_line()
        problem = f"  ({call.problem})" if call.problem else ""
        self._print(translate(f"tool call: {call.name} {call.raw}{problem}"))

    def _restart(self) -> None:
        self._has_answer, self._shown = False, 0
        if self._pending is not None:
            self._pending.clear()
        self.end_lines()
        self._print(translate("note: ignore the text so far, the answer starts again"))


class _OutputStream:
    """One output stream. It knows whether it is a terminal and whether a line is open."""

    def __init__(self, stream: TextIO, *, raw: bool, markdown: bool = False) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self._escapes = self.terminal and not raw
        self.at_start = True
        self._blocks: MarkdownBlocks | None = None
        if markdown and self._escapes and not terminal.is_dumb():
            from cnllm.cli.output.markdown import MarkdownBlocks, is_available

            self._blocks = MarkdownBlocks(self._put) if is_available() else None

    def write(self, text: str, style: tuple[str, str] = ("", ""), *, trusted: bool = False) -> None:
        text = redact(text, hide_secrets())
        if self._escapes and not trusted:
            text = terminal.escape(text)
        self.at_start = text.endswith("\n")
        if self._stream is sys.stderr:
            stdio.write_text(f"{style[0]}{text}{style[1]}")
        elif self._blocks is not None:
            self._blocks.write(text)
        else:
            self._put(text)

    def _put(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def end_line(self) -> None:
        """End the line that is open, and with it the block of Markdown."""
        if self._blocks is not None:
            self._blocks.end()
        elif not self.at_start:
            self.write("\n")
        self.at_start = True
