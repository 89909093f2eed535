"""stdin, stdout and stderr as they are found, made fit for use."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from cnllm.cli.output import terminal

__all__ = ["flush_streams", "prepare_streams", "print_line", "write_text"]


def prepare_streams() -> bool:
    """Text is UTF-8 in a pipe, and what a parent closed is opened on nothing, lest a socket get its number.

    Returns whether there is a stdout.
    """
    missing = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in missing:  # in the order of their numbers, each of which is the lowest that is free
        setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            plain = stream.isatty() or "PYTHONIOENCODING" in os.environ
            stream.reconfigure(encoding=None if plain else "utf-8", errors="backslashreplace")
    return "stdout" not in missing


def print_line(line: str) -> None:
    """A line on stderr, which a terminal gets without anything that it would obey."""
    write_text(f"{terminal.escape(line) if sys.stderr.isatty() else line}\n")


def write_text(text: str) -> None:
    """Text on stderr, as it is. Nobody has to read it: only if it shares a pipe with stdout is a closed one an end."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        if _same_file(sys.stdout, sys.stderr):
            raise
        _to_nothing(sys.stderr)


def flush_streams() -> None:
    """Writes out what is left; what cannot be written any more does not complain at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # told already, or nobody is left to tell
            _to_nothing(stream)


def _to_nothing(stream: TextIO) -> None:
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)


def _same_file(one: TextIO, other: TextIO) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())
