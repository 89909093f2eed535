"""Show an answer in a chat: as in a call, but with the reasoning folded into one line unless the user wants it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from cnllm.cli import turn
from cnllm.cli.language.messages import translate
from cnllm.cli.output import answer, stdio, terminal
from cnllm.types import Event, Finished, Note, ReasoningDelta, Reply, Restarted, TextDelta, ToolCallEnd

if TYPE_CHECKING:
    from cnllm.types import RunSummary, Step

__all__ = ["ChatView", "print_dim", "print_notes"]

_ERASE_LINE = "\r\x1b[K"
_MESSAGE_INDEX = re.compile(r"messages\[\d+\]")


def print_dim(line: str) -> None:
    """Print a less important line to stderr, in a dim colour if the terminal has one."""
    if terminal.supports_dim(sys.stderr):
        stdio.write_text(f"{answer.DIM}{terminal.escape(translate(line))}{answer.RESET}\n")
    else:
        stdio.print_line(line)


def print_notes(notes: Iterable[Note], seen: set[str]) -> None:
    """Print the notes that the user has not seen. A note on many messages is printed once.

    The first line of a chat says that it is simulated.
    """
    for note in notes:
        if note.code == "simulated":
            continue
        line = _MESSAGE_INDEX.sub("messages[…]", str(note))
        if line not in seen:
            seen.add(line)
            print_dim(terminal.escape(f"note: {line}"))


class ChatView(answer.View):
    """The view of one turn. `seen` holds the notes that the user has seen; the view adds to it."""

    def __init__(self, *, thinking: bool, seen: set[str], markdown: bool = False) -> None:
        self._screen = answer.TextView(reasoning=thinking, raw=False, hold=False, markdown=markdown)
        self._thinking = thinking
        self._seen = seen
        self._count = 0
        self._live = sys.stderr.isatty() and not terminal.is_dumb()

    def event(self, event: Event) -> None:
        """Show the content of an event. Of reasoning, show only that it has begun."""
        kind = type(event)
        if kind is ReasoningDelta and not self._thinking:
            self._screen.pace.event(event)
            if self._live and not self._count:
                mark = translate("thinking…")
                stdio.write_text(f"{answer.DIM}{mark}{answer.RESET}" if terminal.supports_dim(sys.stderr) else mark)
            self._count += len(event.text)  # type: ignore[union-attr]
            return
        if kind is Restarted:
            self._drop()
        elif kind in (TextDelta, ToolCallEnd, Finished):
            self._fold()
        self._screen.event(event)

    def reply(self, reply: Reply, run: RunSummary | None = None) -> None:
        """Show a reply that arrived in one piece."""
        if reply.reasoning:
            self.event(ReasoningDelta(reply.reasoning))
        self._fold()
        self._screen.pieces("", reply.text, reply.tool_calls)

    def step(self, step: Step) -> None:
        """Show the tool results of one step."""
        self._fold()
        self._screen.step(step)

    def end(self, reply: Reply | None) -> None:
        """End the lines, then print the notes and usage of the reply."""
        self._fold()
        if reply is None:
            self._screen.end(None)
            return
        if turn.is_only_reasoning(reply):
            self._screen.pieces("", translate(f"({turn.ONLY_THINKING}; /thinking shows it, /retry asks again)"), ())
        self._screen.notes(())  # end the lines
        print_notes(reply.notes, self._seen)
        self._screen.end(msgspec.structs.replace(reply, notes=[]))

    def interrupted(self, reply: Reply | None) -> None:
        """End the lines after an interruption, and say whether part of the answer is shown."""
        self._fold()
        self._screen.end(None)
        has_content = reply is not None and (reply.text or reply.tool_calls)
        stdio.print_line(
            "interrupted; the answer so far is shown above"
            if has_content
            else "interrupted; no answer arrived, /retry asks again"
        )

    def _fold(self) -> None:
        count, self._count = self._count, 0
        if not count:
            return
        if self._live:
            stdio.write_text(_ERASE_LINE)
        print_dim(f"reasoning of {count} characters is folded")

    def _drop(self) -> None:
        if self._count and self._live:
            stdio.write_text(_ERASE_LINE)
        self._count = 0
