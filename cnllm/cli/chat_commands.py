"""The commands of a chat."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cnllm.cli import options
from cnllm.cli.output import answer, errors, stdio, terminal
from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from cnllm.cli.chat_session import ChatSession

__all__ = ["COMMANDS", "completions", "run"]

COMMANDS = {
    "/help": "this list",
    "/model NAME": "ask another model from here on; without NAME: which one is asked",
    "/reasoning LEVEL": "how much models are to think, or default; without LEVEL: what it is",
    "/tools": "what the model may call",
    "/retry": "ask the last turn again",
    "/undo": "take the last turn back, in the logs too",
    "/cost": "what this chat has used",
    "/thinking": "show what models think, or fold it into a line",
    "/quit": "leave, as Ctrl-D does",
}
_DEFAULT = "default"
TYPING = (
    "A line is a turn. Alt-Enter begins a new line in it; so does Enter after a backslash, and between two ```.\n"
    "Ctrl-C stops an answer. A text that begins with a slash: write // for the first."
)


def run(talk: ChatSession, line: str) -> bool:
    """Does what a line that begins with a slash says; False where the chat is to end."""
    name, argument = (*line.split(maxsplit=1), "")[:2]
    name = name.lower()
    if name in ("/quit", "/exit"):
        return False
    known = _KNOWN.get(name)
    if known is None:
        errors.print_error(f"there is no command {name}", "/help lists them; // begins a text with a slash")
        return True
    try:
        known(talk, argument.strip())
    except (CnllmError, errors.UsageError, ValueError, TypeError, LookupError) as error:
        errors.print_error(*errors.error_text(error))
    return True


def completions(talk: ChatSession, before: str) -> Iterable[str]:
    """What the last word of a command may become."""
    name, space, argument = before.partition(" ")
    if not space:
        return [word.split()[0] for word in COMMANDS if word.startswith(name)]
    if name == "/reasoning":
        return [word for word in (*options.LEVEL_WORDS, _DEFAULT) if word.startswith(argument)]
    return talk.registry.complete(argument) if name == "/model" else []


def _help(talk: ChatSession, argument: str) -> None:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {said}" for name, said in COMMANDS.items()]
    stdio.print_line("\n".join([*lines, TYPING]))


def _model(talk: ChatSession, argument: str) -> None:
    if argument:
        talk.switch(argument)
        stdio.print_line(f"now asking {talk.model.name}")
    else:
        stdio.print_line(f"asking {talk.model.name}; /model NAME asks another")


def _reasoning(talk: ChatSession, argument: str) -> None:
    if argument:
        talk.reason(None if argument == _DEFAULT else options.level(argument))
    said = "the endpoint's default" if talk.reasoning is None else talk.reasoning
    stdio.print_line(f"reasoning: {said}{'' if argument else '; /reasoning LEVEL sets it'}")


def _tools(talk: ChatSession, argument: str) -> None:
    stdio.print_line(_shown("\n".join(talk.box.lines()) or "there are no tools; cnllm chat --tool NAME brings one"))


def _retry(talk: ChatSession, argument: str) -> None:
    if not talk.retry():
        stdio.print_line("there is no turn to ask again")


def _undo(talk: ChatSession, argument: str) -> None:
    question = talk.undo()
    if question is None:
        stdio.print_line("there is no turn to take back")
    else:
        said = " ".join(question.split())
        said = said if len(said) <= 60 else f"{said[:60]}…"
        left = f"{talk.count} turn{'' if talk.count == 1 else 's'} left"
        stdio.print_line(_shown(f"taken back: {said} ({left})"))


def _cost(talk: ChatSession, argument: str) -> None:
    stdio.print_line(talk.cost())


def _thinking(talk: ChatSession, argument: str) -> None:
    talk.thinking = not talk.thinking
    stdio.print_line("thinking is shown" if talk.thinking else "thinking is folded")
    last = talk.answers[-1].reasoning if talk.answers else ""
    if talk.thinking and last:
        screen = answer.TextView(reasoning=True, raw=False, hold=False)
        screen.pieces(last, "", ())
        screen.end(None)


def _shown(text: str) -> str:
    from cnllm.config.redact import redact

    text = redact(text, errors.hide_secrets())
    return terminal.escape(text) if sys.stderr.isatty() else text


_KNOWN: dict[str, Callable[[ChatSession, str], None]] = {
    "/help": _help,
    "/model": _model,
    "/reasoning": _reasoning,
    "/tools": _tools,
    "/retry": _retry,
    "/undo": _undo,
    "/cost": _cost,
    "/thinking": _thinking,
}
