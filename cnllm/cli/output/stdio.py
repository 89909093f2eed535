"""Prepare stdin, stdout and stderr, and write to stderr."""

from __future__ import annotations

import os
import stat
import sys
from typing import BinaryIO, TextIO

from cnllm.cli.language.messages import translate
from cnllm.cli.output import terminal
from cnllm.errors import CnllmError

__all__ = ["flush_streams", "has_piped_stdin", "is_piped", "prepare_streams", "print_line", "read_stdin", "write_text"]

_LEAST_WIDTH = 20  # columns of a text beside its indent


def prepare_streams() -> bool:
    """Set UTF-8 for pipes, and open closed streams on the null device, so that no socket gets their numbers.

    Return whether there is a stdout.
    """
    missing = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in missing:  # in the order of their numbers: open() returns the lowest free one
        setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            keep_encoding = stream.isatty() or "PYTHONIOENCODING" in os.environ
            stream.reconfigure(encoding=None if keep_encoding else "utf-8", errors="backslashreplace")
    return "stdout" not in missing


def print_line(line: str) -> None:
    """Write a message to stderr in the user's language. On a terminal, escape control characters; break at spaces."""
    line = translate(line)
    write_text(f"{_fit_terminal(terminal.escape(line)) if sys.stderr.isatty() else line}\n")


def _fit_terminal(text: str) -> str:
    """Return a text in lines that fit the terminal of stderr, whose own breaks would stand inside words."""
    columns = terminal.columns(sys.stderr)
    if columns is None or all(terminal.display_width(line) <= columns for line in text.splitlines()):
        return text
    from cnllm.cli.output.help import wrap

    lines = list[str]()
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        first, *rest = wrap(line, max(columns - len(indent) - 2, _LEAST_WIDTH)) or [""]
        lines += [f"{indent}{first}", *(f"{indent}  {more}" for more in rest)]
    return "\n".join(lines)


def write_text(text: str) -> None:
    """Write text to stderr unchanged.

    A closed stderr is no error, unless it shares a pipe with stdout: then it is the end. A full disk is none: the
    answer is worth more than a word about it, and a server goes on."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        if os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()):
            raise
        _redirect_to_null(sys.stderr)
    except OSError:
        pass  # the stream keeps the text, and writes it once there is room


def has_piped_stdin() -> bool:
    """Whether stdin is a pipe or a file, so that text may come from it."""
    raw: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    return raw is not None and is_piped(raw)


def is_piped(raw: BinaryIO) -> bool:
    """Whether a stream is a pipe, a file or a socket; other kinds of stdin are not for this program."""
    mode = os.fstat(raw.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def read_stdin(stream: BinaryIO, most: int, name: str) -> bytes:
    """Read a stream to its end. Raises `CnllmError` where that is more than so many bytes."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise CnllmError(f"{name}: it has more than {most:,} bytes", hint="pipe less")
    return data


def flush_streams() -> None:
    """Flush stdout and stderr. A failure at exit is not reported."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # reported before, or there is no reader
            _redirect_to_null(stream)


def _redirect_to_null(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
