"""What a user types in a chat: one turn after another, from a terminal or from a pipe.

A turn is a line, or several: a line that ends in a backslash goes on, and so does what stands between two fences.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from cnllm.cli.output import stdio, terminal
from cnllm.cli.output.errors import UsageError

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

    from cnllm.cli.tools import Answer
    from cnllm.types import ToolCall

__all__ = ["LineInput", "TerminalInput", "TurnInput", "is_in_code_block", "turn_input"]

_FENCE = re.compile(r"\s*(`{3,})([^`]*)")
_YES_OR_NO: dict[str, Answer] = {"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}
_SHORT = 200  # characters of a call's arguments; the whole of it stands above the question


class TurnInput(Protocol):
    """Where turns come from."""

    def turn(self, prompt: str) -> str:
        """The next one. Raises EOFError when there is none, KeyboardInterrupt for Ctrl-C."""

    def answer(self, call: ToolCall) -> Answer:
        """May this call be executed?"""


def is_in_code_block(said: str) -> bool:
    """Has a fence been opened and not closed? Ticks with more ticks after them in their line open none."""
    opened = 0
    for fence in filter(None, map(_FENCE.fullmatch, said.split("\n"))):
        if not opened:
            opened = len(fence[1])
        elif len(fence[1]) >= opened and not fence[2].strip():
            opened = 0
    return opened > 0


def turn_input(completions: Callable[[str], Iterable[str]], before: Callable[[], Sequence[str]]) -> TurnInput:
    """The terminal if there is one, else stdin line by line. `before` tells what was typed earlier."""
    if not (sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())):
        if isinstance(sys.stdin, TextIOWrapper) and not sys.stdin.isatty():
            sys.stdin.reconfigure(encoding="utf-8")
        return LineInput(sys.stdin)
    try:
        import prompt_toolkit  # noqa: F401
    except ImportError:
        raise UsageError(
            "a chat at a terminal needs prompt_toolkit", "pip install 'cnllm[chat]'; or pipe the turns in, one a line"
        ) from None
    return TerminalInput(completions, before())


def _question(call: ToolCall) -> str:
    raw = call.raw if len(call.raw) <= _SHORT else f"{call.raw[:_SHORT]}…"
    return terminal.escape(f"run {call.name} {raw}? [y]es / [n]o / [a]lways:")


class LineInput:
    """Each line of a stream is a turn."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._kept: str | None = None

    def turn(self, prompt: str) -> str:
        """The next line, or lines where it goes on."""
        said = self._line()
        while (block := is_in_code_block(said)) or said.endswith("\\"):
            try:
                more = self._line()
            except EOFError:
                break
            said = f"{said if block else said[:-1]}\n{more}"
        return said

    def answer(self, call: ToolCall) -> Answer:
        """The next line if that is an answer; any other is the next turn, and means no."""
        stdio.print_line(_question(call))
        try:
            line = self._line()
        except EOFError:
            return "no"
        said = _YES_OR_NO.get(line.strip().lower())
        if said is None:
            self._kept = line
        return said or "no"

    def _line(self) -> str:
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        try:
            line = self._stream.readline()
        except UnicodeDecodeError as error:
            raise UsageError(f"stdin is not {error.encoding}: {error.reason}", "pipe UTF-8 in") from error
        if not line:
            raise EOFError
        return line.rstrip("\r\n").removeprefix("\ufeff")


class TerminalInput:
    """A terminal: history, editing, Alt-Enter for a line more."""

    def __init__(self, completions: Callable[[str], Iterable[str]], before: Sequence[str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.output import create_output

        output = create_output(stdout=sys.stdout if sys.stdout.isatty() else sys.stderr)
        self._session: PromptSession[str] = PromptSession(
            output=output,
            history=InMemoryHistory(before),
            multiline=True,
            prompt_continuation="… ",
            key_bindings=_keys(),
            completer=_completer(completions),
            complete_while_typing=False,
        )
        self._question: PromptSession[str] = PromptSession(output=output, history=InMemoryHistory())

    def turn(self, prompt: str) -> str:
        """What is typed until Enter."""
        return self._session.prompt(prompt)

    def answer(self, call: ToolCall) -> Answer:
        """Asks until it is one of the answers; Ctrl-D is no."""
        while True:
            try:
                said = _YES_OR_NO.get(self._question.prompt(f"{_question(call)} ").strip().lower())
            except EOFError:
                return "no"
            if said is not None:
                return said


def _keys() -> Any:
    """Enter sends what is finished and else begins a line; Alt-Enter always begins one."""
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_in_code_block(buffer.text):
            buffer.insert_text("\n")
        elif buffer.text.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()  # it only said that the turn goes on
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _completer(completions: Callable[[str], Iterable[str]]) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Words(Completer):
        """Completes the last word of a command."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            before = document.text_before_cursor
            if not before.startswith("/") or "\n" in before:
                return
            last = len(before) - (before.rfind(" ") + 1)
            for whole in completions(before):
                yield Completion(whole, start_position=-last)

    return Words()
