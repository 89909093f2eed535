"""Define exit statuses, and report a failure: what is wrong, and what to do next."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, ENOSPC
from typing import TYPE_CHECKING

import click

from cnllm.cli.output import stdio, terminal
from cnllm.config import distribution
from cnllm.errors import (
    CnllmError,
    EndpointError,
    KeyMissing,
    LoopStopped,
    McpError,
    StreamCut,
    TransportError,
    UnknownModel,
)

if TYPE_CHECKING:
    from cnllm.types import Reply

__all__ = [
    "CORRECT",
    "FAILED",
    "INTERRUPTED",
    "PARTIAL",
    "WHOLE",
    "WRONG",
    "command_line_form",
    "correcting",
    "enable_debug",
    "error_text",
    "exit_status",
    "has_content",
    "hide_secrets",
    "read_file",
    "report_error",
    "require_place",
    "worst_status",
    "writing",
]

WHOLE, FAILED, WRONG, PARTIAL, INTERRUPTED = 0, 1, 2, 3, 130
"""A complete answer; no answer; a wrong call; an incomplete answer; Ctrl-C."""

CORRECT = "correct it; nothing was sent"
"""The hint for a value whose fault the message names."""

_BEST_FIRST = (WHOLE, PARTIAL, FAILED, WRONG, INTERRUPTED)
_MAX_LINE = 1000
_NO_ARGS_ERROR: type[click.UsageError] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())


class _ReportState:
    """The state of one run of the program that its error reports need."""

    debug = False
    secrets: tuple[str, ...] = ()


def reset() -> None:
    """Reset the state for a new run."""
    _ReportState.debug, _ReportState.secrets = False, ()


def enable_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Turn debugging on. This is the callback of `--debug`."""
    if value:
        _ReportState.debug = True


def shows_traceback() -> bool:
    """Whether `--debug` is on."""
    return _ReportState.debug


def hide_secrets(*secrets: str) -> tuple[str, ...]:
    """Hide these values from all output, and return all values that are hidden so far."""
    _ReportState.secrets = tuple(dict.fromkeys((*_ReportState.secrets, *filter(None, secrets))))
    return _ReportState.secrets


def has_content(reply: Reply | None) -> bool:
    """Whether a reply holds any part of an answer."""
    return reply is not None and bool(reply.text or reply.reasoning or reply.tool_calls or reply.incomplete)


def exit_status(error: BaseException) -> int:
    """Return the exit status for a failure."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, EndpointError | TransportError | StreamCut | LoopStopped):
        return PARTIAL if has_content(error.reply) else FAILED
    if isinstance(error, McpError) and error.server.startswith("http"):  # the network; a command is a wrong call
        return FAILED
    if isinstance(error, CnllmError | click.ClickException | ImportError):
        return WRONG
    return FAILED


def worst_status(*statuses: int) -> int:
    """Return the worst of exit statuses."""
    return max(statuses, key=_BEST_FIRST.index, default=WHOLE)


def report_error(error: Exception) -> int:
    """Print what is wrong and what to do next on stderr, in at most two lines, and return the exit status."""
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, _NO_ARGS_ERROR) and error.ctx is not None:
        stdio.print_line(error.ctx.get_help())
        return WRONG
    message, hint = error_text(error)
    if hint is None and isinstance(error, EndpointError) and error.status >= 400 and str(error.status) not in message:
        hint = f"the endpoint answered with status {error.status}"  # else its words look like those of cnllm
    print_error(message, hint)
    return exit_status(error)


def print_error(message: str, hint: str | None = None) -> None:
    """Print an error and a hint, one line each, without secrets or terminal control characters."""
    lines = [f"cnllm: {_line(message)}"] + ([f"  {_line(command_line_form(hint))}"] if hint else [])
    stdio.print_line("\n".join(lines))


def command_line_form(text: str) -> str:
    """Return a text without what it says in brackets for Python."""
    return re.sub(_FOR_PYTHON, "", text)


_FOR_PYTHON = r" \(in Python:? (?:[^()]|\([^()]*\))*\)"


def traceback(error: Exception) -> None:
    """Print the whole traceback, for `--debug`."""
    from traceback import format_exception

    stdio.write_text(terminal.escape(_redact("".join(format_exception(error)))))


def _redact(text: str) -> str:
    from cnllm.config.redact import redact  # imported late: a listing of commands needs no redaction, and stays fast

    return redact(text, (*_ReportState.secrets, *_environment_secrets()))


def _environment_secrets() -> list[str]:
    """Return the environment's values with names of secrets: a failure may come before the key's name is known.

    A proxy may have echoed its password.
    """
    from cnllm.config.redact import is_secret_name, looks_secret, proxy_secrets

    values = [value for name, value in os.environ.items() if is_secret_name(name)]
    return [*(value for value in values if looks_secret(value) and not value.startswith("/")), *proxy_secrets()]


def _line(text: str) -> str:
    return terminal.escape(terminal.one_line(_redact(text), _MAX_LINE))


def error_text(error: BaseException) -> tuple[str, str | None]:
    """Return what is wrong, and what to do next if that is known."""
    if isinstance(error, KeyMissing):
        return error.message, _key_hint(error)
    if isinstance(error, UnknownModel):
        close = f"did you mean {', '.join(error.close[:3])}?" if error.close else "cnllm models list shows all"
        return error.message, error.hint or close
    if isinstance(error, EndpointError) and has_content(error.reply):
        return f"the answer broke off: {error}", error.hint or "ask again"
    if isinstance(error, CnllmError):
        return str(error), error.hint
    if isinstance(error, click.UsageError):
        return _usage_text(error)
    if isinstance(error, click.ClickException):
        return error.format_message(), None
    if isinstance(error, OSError):
        source = f"{error.filename}: " if error.filename else "stdout: " if error.errno == ENOSPC else ""
        return f"{source}{error.strerror or error}", None
    if (failure := distribution.import_failure(error)) is not None:
        return failure
    return f"{type(error).__name__}: {error}", "this is a bug in cnllm: --debug shows the traceback"


def _key_hint(error: KeyMissing) -> str:
    """Return every way to go on: the variable, the file, the simulator, and the hint of the client."""
    name = error.env[0] if error.env else "NAME"
    hint = f"set {name}, or run: cnllm keys set {name}; --simulate needs no key"
    client_hint = error.hint or ""
    if all(word in client_hint for word in (name, "cnllm keys set", "--simulate")):
        return client_hint
    return f"{hint}; {client_hint}" if client_hint else hint


def _usage_text(error: click.UsageError) -> tuple[str, str | None]:
    hint = getattr(error, "hint", None)
    if hint is None and error.ctx is not None:
        hint = _usage_hint(error, error.ctx)
    message = error.format_message()
    if isinstance(error, click.MissingParameter):  # its name or the hint lists the values
        message = message.partition(". Choose from")[0]
    if isinstance(error, click.NoSuchOption):  # the hint has the guess
        message = f"there is no option {error.option_name}"
    elif (match := _NO_COMMAND.match(message)) is not None:
        message = f"there is no command {match[1]}"
    message = re.sub(_KIND, lambda match: f"is not {_KINDS[match[1]]}", message).rstrip(".")
    first = message.split(" ")[0]
    return (message if first[1:2].isupper() else message[:1].lower() + message[1:]), hint  # not the name of a variable


_KIND = r"is not a valid (float|integer)(?: range)?"
_CONTINUED = r" \\\n\s*"
_NO_COMMAND = re.compile(r"No such command '([^']*)'")
_KEY_OPTION = r"--?(api[-_]?)?(key|token)"
_KINDS = {"float": "a number", "integer": "a whole number"}


def _usage_hint(error: click.UsageError, ctx: click.Context) -> str:
    """Return an example for a missing value, what the option is for a wrong one, and else where to read on."""
    path = ctx.command_path
    if isinstance(error, click.MissingParameter):
        lines = [line.strip() for line in re.sub(_CONTINUED, " ", ctx.command.epilog or "").splitlines()]
        if (example := next((line for line in lines if line.startswith(path)), None)) is not None:
            return f"for example: {example}"
    elif isinstance(error, click.NoSuchOption):
        if (hint := _option_hint(error.option_name, ctx)) is not None:
            return hint
    elif isinstance(ctx.command, click.Group) and (match := _NO_COMMAND.match(error.message)):
        from cnllm.cli.output.suggestion import subcommand_hint

        names = ctx.command.list_commands(ctx)
        hint = subcommand_hint(ctx.info_name or "", match[1], names)
        listing = f"{path} has {', '.join(names)}"
        return listing if hint is None else f"{hint}{' ' if hint.endswith('?') else '; '}{listing}"
    elif isinstance(option := _wrong_option(error, ctx), click.Option) and option.help:
        return f"{option.opts[-1]} {option.make_metavar(ctx)}: {option.help}"
    return f"{path} --help shows how it is used"


def _wrong_option(error: click.UsageError, ctx: click.Context) -> click.Parameter | None:
    """Return the option whose value is wrong or missing."""
    if isinstance(error, click.BadParameter):
        return error.param
    name = error.option_name if isinstance(error, click.BadOptionUsage) else None
    return next((param for param in ctx.command.get_params(ctx) if name in param.opts), None)


def _option_hint(option: str, ctx: click.Context) -> str | None:
    """Return what an unknown option may mean."""
    from cnllm.cli.output.suggestion import option_hint

    names = [name for param in ctx.command.get_params(ctx) for name in (*param.opts, *param.secondary_opts)]
    if re.fullmatch(_KEY_OPTION, option) and "--key-env" in names:
        return "no option takes a key: store it with cnllm keys set, or name its variable with --key-env"
    root = ctx.find_root()
    return option_hint(
        ctx.command_path, option, names, root=[name for p in root.command.get_params(root) for name in p.opts]
    )


class UsageError(click.UsageError):
    """A wrong call of the command: what is wrong, and what to do next."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def format_message(self) -> str:
        """Return the message without click's prefix."""
        return self.message


def require_place(file: str) -> None:
    """Raise `UsageError` where the file of `-o` cannot stand, before a run whose end writes it asks anything."""
    folder = os.path.dirname(os.path.realpath(file))
    if not os.path.isdir(folder):
        raise UsageError(f"-o {file}: there is no such folder", "make the folder first")
    if not os.access(file if os.path.exists(file) else folder, os.W_OK):
        raise UsageError(f"{file} cannot be written: {os.strerror(EACCES)}", "name another file")


def read_file(path: str | os.PathLike[str], label: str, hint: str, most: int | None = None) -> bytes:
    """Return the content of a file that the user named. Raise `UsageError` where it cannot be read."""
    from cnllm.system import files  # imported late: a listing of commands reads none

    try:
        return files.read_bounded(path, most or files.MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{label}: {error.strerror or error}", hint) from error


@contextmanager
def correcting(place: str = "", hint: str = CORRECT) -> Iterator[None]:
    """Raise `UsageError` for a value that has the wrong type or means nothing; `place` begins its message."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise UsageError(f"{place}{error}", hint) from error


@contextmanager
def writing(name: object) -> Iterator[None]:
    """Raise `UsageError` where a file that the user named cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error.strerror}", "name another file") from error
