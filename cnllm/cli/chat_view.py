"""How an answer is shown in a chat: as in a call, with the thinking folded into one line unless it is wanted."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from cnllm.cli import turn
from cnllm.cli.output import answer, stdio, terminal
from cnllm.types import Event, Finished, Note, ReasoningDelta, Reply, Restarted, TextDelta, ToolCallEnd

if TYPE_CHECKING:
    from cnllm.engine.run.effects import Step
    from cnllm.types import RunSummary

__all__ = ["ChatView", "print_dim", "print_notes"]

_BACK = "\r\x1b[K"
_MESSAGE = re.compile(r"messages\[\d+\]")


def print_dim(line: str) -> None:
    """A line on stderr that is less important than the answer."""
    if terminal.supports_dim(sys.stderr):
        stdio.write_text(f"{answer.DIM}{terminal.escape(line)}{answer.PLAIN}\n")
    else:
        stdio.print_line(line)


def print_notes(notes: Iterable[Note], told: set[str]) -> None:
    """Says what is not told yet; what holds for many messages alike is told once."""
    for note in notes:
        line = _MESSAGE.sub("messages[…]", str(note))
        if line not in told:
            told.add(line)
            print_dim(terminal.escape(f"note: {line}"))


class ChatView:
    """Shows one turn. `told`: notes that the user has seen already; what is shown is added to it."""

    def __init__(self, *, thinking: bool, told: set[str]) -> None:
        self._screen = answer.TextView(reasoning=thinking, raw=False, hold=False)
        self._thinking = thinking
        self._told = told
        self._count = 0
        self._live = sys.stderr.isatty() and not terminal.is_dumb()

    def event(self, event: Event) -> None:
        """Shows what an event adds; of thinking, that there is some."""
        kind = type(event)
        if kind is ReasoningDelta and not self._thinking:
            if self._live and not self._count:
                stdio.write_text(
                    f"{answer.DIM}thinking…{answer.PLAIN}" if terminal.supports_dim(sys.stderr) else "thinking…"
                )
            self._count += len(event.text)  # type: ignore[union-attr]
            return
        if kind is Restarted:
            self._drop()
        elif kind in (TextDelta, ToolCallEnd, Finished):
            self._fold()
        self._screen.event(event)

    def whole(self, reply: Reply, run: RunSummary | None = None) -> None:
        """A reply that came in one piece."""
        if reply.reasoning:
            self.event(ReasoningDelta(reply.reasoning))
        self._fold()
        self._screen.pieces("", reply.text, reply.tool_calls)

    def step(self, step: Step) -> None:
        """The results of the calls of one step."""
        self._fold()
        self._screen.step(step)

    def end(self, reply: Reply | None) -> None:
        """Ends the lines, then says what there is to say about the reply."""
        self._fold()
        if reply is None:
            self._screen.end(None)
            return
        if turn.is_only_reasoning(reply):
            self._screen.pieces("", f"({turn.ONLY_THINKING}; /thinking shows it, /retry asks again)", ())
        self._screen.notes(())  # ends the lines
        print_notes(reply.notes, self._told)
        self._screen.end(msgspec.structs.replace(reply, notes=[]))

    def interrupted(self, reply: Reply | None) -> None:
        """Ends the lines where they are."""
        self._fold()
        self._screen.end(None)
        came = reply is not None and (reply.text or reply.tool_calls)
        stdio.print_line(
            "interrupted; this is what came so far"
            if came
            else "interrupted; no answer had come yet, /retry asks again"
        )

    def _fold(self) -> None:
        count, self._count = self._count, 0
        if not count:
            return
        if self._live:
            stdio.write_text(_BACK)
        print_dim(f"thought for {count} characters")

    def _drop(self) -> None:
        if self._count and self._live:
            stdio.write_text(_BACK)
        self._count = 0
