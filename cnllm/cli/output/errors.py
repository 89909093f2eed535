"""Exit statuses, and how a failure is told: what is wrong, what to do next."""

from __future__ import annotations

from errno import ENOSPC
from typing import TYPE_CHECKING

import click

from cnllm.cli.output import stdio, terminal
from cnllm.errors import (
    CnllmError,
    EndpointError,
    KeyMissing,
    LoopStopped,
    StreamCut,
    TransportError,
    UnknownModel,
)

if TYPE_CHECKING:
    from cnllm.types import Reply

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "PARTIAL",
    "WHOLE",
    "WRONG",
    "enable_debug",
    "error_text",
    "exit_status",
    "has_content",
    "hide_secrets",
    "report_error",
    "worst_status",
]

WHOLE, FAILED, WRONG, PARTIAL, INTERRUPTED = 0, 1, 2, 3, 130
"""All came; nothing came; the call was wrong; an answer came that is not whole; Ctrl-C."""

_FROM_BEST = (WHOLE, PARTIAL, FAILED, WRONG, INTERRUPTED)
_LONGEST = 1000
_NO_ARGUMENTS: type[click.UsageError] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())


class _State:
    """What one run of the program needs to know while it fails."""

    debug = False
    secrets: tuple[str, ...] = ()


def reset() -> None:
    """A new run."""
    _State.debug, _State.secrets = False, ()


def enable_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """The callback of `--debug`."""
    if value:
        _State.debug = True


def shows_traceback() -> bool:
    """Was `--debug` given?"""
    return _State.debug


def hide_secrets(*secrets: str) -> tuple[str, ...]:
    """These values will be shown by nothing; all that were named so far are returned."""
    _State.secrets = tuple(dict.fromkeys((*_State.secrets, *filter(None, secrets))))
    return _State.secrets


def has_content(reply: Reply | None) -> bool:
    """Is there anything in it that a user would call an answer, be it a part of one?"""
    return reply is not None and bool(reply.text or reply.reasoning or reply.tool_calls or reply.incomplete)


def exit_status(error: BaseException) -> int:
    """The exit status that stands for a failure."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, EndpointError | TransportError | StreamCut | LoopStopped):
        return PARTIAL if has_content(error.reply) else FAILED
    if isinstance(error, CnllmError | click.ClickException):
        return WRONG
    return FAILED


def worst_status(*statuses: int) -> int:
    """Return the worst of exit statuses."""
    return max(statuses, key=_FROM_BEST.index, default=WHOLE)


def report_error(error: Exception) -> int:
    """Says on stderr what is wrong and what to do next, in at most two lines, and returns the exit status."""
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, _NO_ARGUMENTS) and error.ctx is not None:
        stdio.print_line(error.ctx.get_help())
        return WRONG
    message, hint = error_text(error)
    print_error(message, hint)
    return exit_status(error)


def print_error(message: str, hint: str | None = None) -> None:
    """One line, and a second one that helps; both without secrets or anything that a terminal obeys."""
    lines = [f"cnllm: {_line(message)}"] + ([f"  {_line(hint)}"] if hint else [])
    stdio.print_line("\n".join(lines))


def traceback(error: Exception) -> None:
    """The whole traceback, for `--debug`."""
    from traceback import format_exception

    stdio.write_text(terminal.escape(_redacted("".join(format_exception(error)))))


def _redacted(text: str) -> str:
    from cnllm.config.redact import redact  # a listing of commands has nothing to hide, and is fast

    return redact(text, (*_State.secrets, *_exported()))


def _exported() -> list[str]:
    """What the environment holds under the names of secrets: something may fail before it is known which key it is."""
    import os

    from cnllm.config.redact import is_secret_name, looks_secret

    found = [value for name, value in os.environ.items() if is_secret_name(name)]
    return [value for value in found if looks_secret(value) and not value.startswith("/")]


def _line(text: str) -> str:
    words = " ".join(_redacted(text).split())
    if len(words) > _LONGEST:
        words = words[:_LONGEST] + "…"
    return terminal.escape(words)


def error_text(error: BaseException) -> tuple[str, str | None]:
    """What is wrong, and what to do next if that is known."""
    if isinstance(error, KeyMissing):
        return error.message, _key_hint(error)
    if isinstance(error, UnknownModel):
        return error.message, error.hint or _close_hint(error.close)
    if isinstance(error, CnllmError):
        return str(error), error.hint
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, click.ClickException):
        return error.format_message(), None
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else "stdout: " if error.errno == ENOSPC else ""
        return f"{place}{error.strerror or error}", None
    return f"{type(error).__name__}: {error}", "this should not happen: --debug shows where it did"


def _key_hint(error: KeyMissing) -> str:
    """Every way on: the variable, the file, the simulator, and what the client knows beside these."""
    name = error.env[0] if error.env else "NAME"
    hint = f"set {name}, or run: cnllm keys set {name}; --simulate needs no key"
    known = error.hint or ""
    if all(word in known for word in (name, "cnllm keys set", "--simulate")):
        return known
    return f"{hint}; {known}" if known else hint


def _close_hint(close: list[str]) -> str:
    return f"did you mean {', '.join(close[:3])}?" if close else "cnllm models list shows all"


def _usage(error: click.UsageError) -> tuple[str, str | None]:
    hint = getattr(error, "hint", None)
    if hint is None and error.ctx is not None:
        hint = f"{error.ctx.command_path} --help shows how it is used"
    message = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:], hint


class UsageError(click.UsageError):
    """The call was wrong: what is wrong, and what to do next."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def format_message(self) -> str:
        return self.message
