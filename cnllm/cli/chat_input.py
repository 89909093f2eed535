"""Read the user's turns in a chat, from a terminal or from a pipe.

A turn is one line or several. A line that ends in a backslash continues, and so does an open code block (```).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from cnllm.cli.language.messages import translate
from cnllm.cli.output import stdio, terminal
from cnllm.cli.output.errors import UsageError
from cnllm.config.distribution import install_command

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

    from cnllm.cli.tools import Answer
    from cnllm.types import ToolCall

__all__ = ["LineInput", "TerminalInput", "is_in_code_block", "terminal_answer", "turn_input"]

_FENCE = re.compile(r"\s*(`{3,})([^`]*)")
_YES_OR_NO: dict[str, Answer] = {"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}
_MAX_ARGUMENTS = 200  # characters of a call's arguments; the lines above the question show all of them


def is_in_code_block(text: str) -> bool:
    """Whether a code block is open at the end of the text.

    A fence with more backticks after it in its line opens none."""
    ticks = 0
    for fence in filter(None, map(_FENCE.fullmatch, text.split("\n"))):
        if not ticks:
            ticks = len(fence[1])
        elif len(fence[1]) >= ticks and not fence[2].strip():
            ticks = 0
    return ticks > 0


def turn_input(
    completions: Callable[[str], Iterable[str]], history: Callable[[], Sequence[str]]
) -> LineInput | TerminalInput:
    """Return the terminal if there is one, else stdin line by line. `history` returns earlier prompts."""
    if not (sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())):
        if isinstance(sys.stdin, TextIOWrapper) and not sys.stdin.isatty():
            sys.stdin.reconfigure(encoding="utf-8")
        return LineInput(sys.stdin)
    try:
        import prompt_toolkit  # noqa: F401
    except ImportError:
        raise UsageError(
            "a chat at a terminal needs prompt_toolkit",
            f"{install_command('chat')}; or pipe the turns in, one per line",
        ) from None
    return TerminalInput(completions, history())


def _question(call: ToolCall) -> str:
    raw = call.raw if len(call.raw) <= _MAX_ARGUMENTS else f"{call.raw[:_MAX_ARGUMENTS]}…"
    return terminal.escape(translate(f"run {call.name} {raw}? [y]es / [n]o / [a]lways:"))


def _ask(call: ToolCall, read: Callable[[str], str]) -> Answer:
    """Ask until the user gives a valid answer, whether a call may run. The end of the input means no."""
    while True:
        try:
            answer = _YES_OR_NO.get(read(f"{_question(call)} ").strip().lower())
        except EOFError:
            return "no"
        if answer is not None:
            return answer


def _read_line(prompt: str) -> str:
    stdio.write_text(prompt)
    line = sys.stdin.readline()
    if not line:
        stdio.write_text("\n")
        raise EOFError
    return line


def terminal_answer(call: ToolCall) -> Answer:
    """Ask at a terminal whether a call may run. Ctrl-D means no."""
    return _ask(call, _read_line)


class LineInput:
    """A text stream in which each line is a turn."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_line: str | None = None

    def turn(self, prompt: str) -> str:
        """Return the next line, with the lines that continue it."""
        text = self._line()
        while (inside := is_in_code_block(text)) or text.endswith("\\"):
            try:
                next_line = self._line()
            except EOFError:
                break
            text = f"{text if inside else text[:-1]}\n{next_line}"
        return text

    def answer(self, call: ToolCall) -> Answer:
        """Read the next line as an answer. Any other text means no, and becomes the next turn."""
        stdio.print_line(_question(call))
        try:
            line = self._line()
        except EOFError:
            return "no"
        answer = _YES_OR_NO.get(line.strip().lower())
        if answer is None:
            self._next_line = line
        return answer or "no"

    def pick(self, names: Sequence[str]) -> str | None:
        """Return None: nobody sits there."""
        return None

    def _line(self) -> str:
        line, self._next_line = self._next_line, None
        if line is not None:
            return line
        try:
            line = self._stream.readline()
        except UnicodeDecodeError as error:
            raise UsageError(f"stdin is not {error.encoding}: {error.reason}", "pipe UTF-8 in") from error
        if not line:
            raise EOFError
        return line.rstrip("\r\n").removeprefix("\ufeff")


class TerminalInput:
    """A terminal with history, line editing and Alt-Enter for a new line."""

    def __init__(self, completions: Callable[[str], Iterable[str]], history: Sequence[str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.output import create_output

        output = create_output(stdout=sys.stdout if sys.stdout.isatty() else sys.stderr)
        self._session: PromptSession[str] = PromptSession(
            output=output,
            history=InMemoryHistory(history),
            multiline=True,
            prompt_continuation="… ",
            key_bindings=_key_bindings(),
            completer=_completer(completions),
            complete_while_typing=False,
        )
        self._question: PromptSession[str] = PromptSession(output=output, history=InMemoryHistory())

    def turn(self, prompt: str) -> str:
        """Return the text that the user types until Enter."""
        return self._session.prompt(prompt)

    def answer(self, call: ToolCall) -> Answer:
        """Ask until the user gives a valid answer. Ctrl-D means no."""
        return _ask(call, self._question.prompt)

    def pick(self, names: Sequence[str]) -> str | None:
        """Show the names with numbers, and read a number or a name. Enter alone, Ctrl-C and Ctrl-D pick none."""
        width = len(str(len(names)))
        stdio.print_line("\n".join(f"  {number:>{width}}  {name}" for number, name in enumerate(names, 1)))
        try:
            answer = self._question.prompt(translate("number or name (Enter: no change): ")).strip()
        except (EOFError, KeyboardInterrupt):
            return None
        return {str(number): name for number, name in enumerate(names, 1)}.get(answer, answer) or None


def _key_bindings() -> Any:
    """Build the key bindings. Enter sends a finished text, else it starts a new line; Alt-Enter always starts one."""
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_in_code_block(buffer.text):
            buffer.insert_text("\n")
        elif buffer.text.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()  # the backslash only marks that the turn continues
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
        """A completer for the last word of a command."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            text = document.text_before_cursor
            if not text.startswith("/") or "\n" in text:
                return
            length = len(text) - (text.rfind(" ") + 1)
            for word in completions(text):
                yield Completion(word, start_position=-length)

    return Words()
