"""Define the slash commands of a chat."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cnllm.cli import options
from cnllm.cli.language.messages import translate
from cnllm.cli.output import answer, errors, stdio, terminal
from cnllm.cli.output.format import count
from cnllm.cli.output.suggestion import nearest
from cnllm.cli.output.usage import cost_text, token_parts
from cnllm.config.redact import redact
from cnllm.errors import CnllmError
from cnllm.store.records import sum_by_currency
from cnllm.system.files import open_private
from cnllm.types import Message, ToolCall, ToolResult, Usage
from cnllm.types.totals import is_counted

if TYPE_CHECKING:
    from cnllm.cli.chat_session import ChatSession
    from cnllm.types import Reply

__all__ = ["COMMANDS", "completions", "foreign_hint", "run"]

_DEFAULT = "default"
_FOREIGN = {
    "!multi": "Alt-Enter begins a new line; lines between two ``` are one turn",
    "!edit": "Alt-Enter begins a new line; /file FILE attaches a text that you have written elsewhere",
    "!fragment": "/file FILE attaches a file to the next question",
}
TYPING = (
    "A line is a turn. Alt-Enter begins a new line in it; so does Enter after a backslash, and between two ```.\n"
    "Ctrl-C stops an answer. For a text that begins with a slash, type // instead."
)


def run(session: ChatSession, line: str) -> bool:
    """Run a slash command. Return False if it ends the chat.

    One that fails counts in the exit status: the next turns of a pipe rely on it.
    """
    name, argument = (*line.split(maxsplit=1), "")[:2]
    name = name.lower()
    command = _HANDLERS.get(name)
    if command is None:
        session.add_failure(errors.WRONG)
        close = nearest(name, _HANDLERS)
        listing = "/help lists them; // begins a text with a slash"
        errors.print_error(f"there is no command {name}", f"did you mean {close}?" if close else listing)
        return True
    try:
        return not command(session, argument.strip())
    except (CnllmError, errors.UsageError, ValueError, TypeError, LookupError, OSError) as error:
        session.add_failure(errors.WRONG)
        errors.print_error(*errors.error_text(error))
    return True


def foreign_hint(line: str) -> str | None:
    """Return what stands for a command of `llm chat`, which would be paid for as a question; None otherwise."""
    return _FOREIGN.get(line.split(maxsplit=1)[0]) if line.startswith("!") else None


def completions(session: ChatSession, text: str) -> Iterable[str]:
    """Return completions for the last word of a command."""
    name, space, argument = text.partition(" ")
    if not space:
        return [word.split()[0] for word in COMMANDS if word.startswith(name)]
    if name == "/reasoning":
        return [word for word in (*options.LEVEL_WORDS, _DEFAULT) if word.startswith(argument)]
    return session.registry.complete(argument) if name == "/model" else []


def _help(session: ChatSession, argument: str) -> None:
    from cnllm.cli.output.help import wrap

    width, columns = max(map(len, COMMANDS)), shutil.get_terminal_size().columns
    lines = []
    for name, (description, _) in COMMANDS.items():
        first, *rest = wrap(translate(description), columns - width - 4)
        lines += [f"  {name:<{width}}  {first}", *(" " * (width + 4) + line for line in rest)]
    lines += [line for sentence in TYPING.splitlines() for line in wrap(translate(sentence), columns)]
    stdio.write_text("".join(f"{line}\n" for line in lines))


def _model(session: ChatSession, argument: str) -> None:
    if argument:
        session.switch(argument)
        stdio.print_line(f"now asking {session.model.name}")
        return
    stdio.print_line(f"asking {session.model.name}; /model NAME asks another")
    if (picked := session.pick_model()) is not None:
        _model(session, picked)


def _reasoning(session: ChatSession, argument: str) -> None:
    if argument:
        session.reason(None if argument == _DEFAULT else options.level(argument))
    level = "the endpoint's default" if session.reasoning is None else session.reasoning
    stdio.print_line(f"reasoning: {level}{'' if argument else '; /reasoning LEVEL sets it'}")


def _system(session: ChatSession, argument: str) -> None:
    if argument:
        session.system = None if argument == "-" else argument
        stdio.print_line("the next question goes " + ("with this system message" if session.system else "without one"))
    elif session.system:
        stdio.write_text(_safe_text(f"{session.system}\n"))
    else:
        stdio.print_line("there is no system message; /system TEXT sets one")


def _file(session: ChatSession, argument: str) -> None:
    if not argument:
        raise errors.UsageError("/file needs a file", "/file notes.md")
    try:
        session.attach(os.path.expanduser(argument))
    except errors.UsageError as error:  # its message names the option of `call`
        raise errors.UsageError(error.message.replace("-a ", "/file ", 1), error.hint) from error
    stdio.print_line(_safe_text(f"{argument} goes with the next question"))


def _clear(session: ChatSession, argument: str) -> None:
    session.clear()
    stdio.print_line("a new conversation begins")


def _save(session: ChatSession, argument: str) -> None:
    if not argument:
        raise errors.UsageError("/save needs a file", "/save talk.md")
    written = write_conversation(os.path.expanduser(argument), session.messages())
    stdio.print_line(_safe_text(f"{argument}: {count(written, 'message')}"))


def _tools(session: ChatSession, argument: str) -> None:
    stdio.print_line(
        _safe_text("\n".join(session.box.lines()) or "there are no tools; cnllm chat --tool NAME adds one")
    )


def _retry(session: ChatSession, argument: str) -> None:
    if not session.retry():
        stdio.print_line("there is no turn to ask again")


def _undo(session: ChatSession, argument: str) -> None:
    question = session.undo()
    if question is None:
        stdio.print_line("there is no turn to take back")
    else:
        text = terminal.one_line(question, 60)
        stdio.print_line(_safe_text(f"taken back: {text} ({count(session.count, 'turn')} left)"))


def _cost(session: ChatSession, argument: str) -> None:
    stdio.print_line(_cost_line(session.answers, session.unpaid))


def _cost_line(replies: Sequence[Reply], failed: int) -> str:
    """Return the usage of all answers. Those of turns that were taken back cost money too.

    `failed` counts turns without an answer that the endpoint may charge.
    """
    usages, names = [reply.usage for reply in replies], ("input", "cached", "output", "reasoning")
    total = Usage(**{name: sum(getattr(usage, name) or 0 for usage in usages) for name in names})
    unknown = failed + sum(not is_counted(usage) for usage in usages)
    simulated = sum(map(_is_simulated, replies))
    unpriced = failed + sum(reply.cost is None and not _is_simulated(reply) for reply in replies)
    parts = [count(len(replies), "answer"), *token_parts(total)]
    parts += [cost_text(cost, is_exact=not unpriced) for cost in sum_by_currency(reply.cost for reply in replies)]
    if unknown:
        parts.append(f"usage of {unknown} unknown")
    if unpriced:
        parts.append(f"price of {unpriced} unknown")
    if simulated:
        parts.append(f"{simulated} simulated: nothing was paid")
    return " · ".join(parts)


def _is_simulated(reply: Reply) -> bool:
    """Whether the simulator made a reply."""
    return any(note.code == "simulated" for note in reply.notes)


def _thinking(session: ChatSession, argument: str) -> None:
    session.thinking = not session.thinking
    stdio.print_line("thinking is shown" if session.thinking else "thinking is folded")
    last = session.answers[-1].reasoning if session.answers else ""
    if session.thinking and last:
        screen = answer.TextView(reasoning=True, raw=False, hold=False)
        screen.pieces(last, "", ())
        screen.end(None)


def _safe_text(text: str) -> str:
    text = redact(text, errors.hide_secrets())
    return terminal.escape(text) if sys.stderr.isatty() else text


def _quit(session: ChatSession, argument: str) -> bool:
    return True


_Handler = Callable[["ChatSession", str], bool | None]
"""Runs a command with its argument. Returns whether the chat ends."""

COMMANDS: dict[str, tuple[str, _Handler]] = {
    "/help": ("show this list", _help),
    "/model NAME": ("ask another model from now on; alone: pick one", _model),
    "/reasoning LEVEL": ("set how much models reason, or default; alone: show it", _reasoning),
    "/system TEXT": ("replace the system message, - removes it; alone: show it", _system),
    "/file FILE": ("attach a text, picture or other file to the next question", _file),
    "/tools": ("list the tools that the model may call", _tools),
    "/retry": ("ask the last turn again", _retry),
    "/undo": ("take the last turn back, in the logs too", _undo),
    "/clear": ("begin a new conversation; the old one stays in the logs", _clear),
    "/save FILE": ("write the conversation; FILE.json: as JSON, else Markdown", _save),
    "/cost": ("show what this chat has used", _cost),
    "/thinking": ("show the models' reasoning, or fold it into a line", _thinking),
    "/quit": ("leave, as exit, quit and Ctrl-D do", _quit),
}
"""The commands, with what each does."""
_HANDLERS = {"/exit": _quit} | {name.split()[0]: handler for name, (_, handler) in COMMANDS.items()}


# ── the conversation as a file ───────────────────────────────────────────────
def write_conversation(name: str, messages: Sequence[Message]) -> int:
    """Write messages into a new file, without keys, and return their number. Raise `UsageError` where it exists."""
    if name.endswith(".json"):
        text = json.dumps([message.to_dict() for message in messages], ensure_ascii=False, indent=2) + "\n"
    else:
        text = "\n".join(map(_markdown, messages))
    if os.path.lexists(name):
        raise errors.UsageError(f"{name} exists", "name another file")
    with errors.writing(name), open(name, "x", encoding="utf-8", errors="surrogatepass", opener=open_private) as file:
        file.write(redact(text, errors.hide_secrets()))
    return len(messages)


def _markdown(message: Message) -> str:
    """Return a message under a heading with its role and, for an answer, its model."""
    author = f" ({message.by})" if message.by else ""
    lines = [f"## {message.role}{author}", ""]
    if message.text:
        lines += [message.text, ""]
    for part in message.parts:
        if isinstance(part, ToolCall):
            lines += [f"calls `{part.name}` with `{part.raw}`", ""]
        elif isinstance(part, ToolResult):
            lines += [f"{'error' if part.error else 'result'} of `{part.name}`:", "", part.text, ""]
    return "\n".join(lines)
