"""Run the `sh` blocks of a page: `cnllm` in this process, with pipes and files, as a shell would connect them."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from cnllm.cli.app import run

_SIGNS = frozenset(["|", "<", ">", "&&", ";"])


class Failed(AssertionError):
    """A command ended with another status than 0, or is not one that can be run here."""


class Printed(NamedTuple):
    """What a command writes to stdout and to stderr."""

    out: bytes
    err: bytes = b""


def execute(script: str) -> str:
    """Run each line, and return what a terminal would show of it. Raises `Failed` naming the line."""
    return "".join(_line(line) for line in script.replace("\\\n", " ").splitlines())


def _line(line: str) -> str:
    """Run the commands of one line that pipes connect."""
    given, shown, target = b"", b"", None
    commands = list(_commands(line))
    for words, source, place in commands:
        given, error = _command(words, Path(source).read_bytes() if source else given, line)
        shown += error
        target = place
    if target:
        Path(target).write_bytes(given)
        given = b""
    return (shown + given).decode()


def _commands(line: str) -> Iterator[tuple[list[str], str, str]]:
    """Yield each command of a line: its words, the file that it reads, the file that it writes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>&;")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    files = {"<": "", ">": ""}
    tokens = iter(lexer)
    for token in tokens:
        if token in files:
            files[token] = next(tokens)
        elif token == "|":
            yield words, files["<"], files[">"]
            words, files = [], {"<": "", ">": ""}
        elif token in _SIGNS or set(token) <= set("|<>&;"):
            raise Failed(f"{line}: {token} is not known here")
        else:
            words.append(token)
    if words:
        yield words, files["<"], files[">"]


def _command(words: list[str], given: bytes, line: str) -> Printed:
    match words:
        case ["cnllm", *args]:
            return _cnllm(args, given, line)
        case ["printf", text]:
            return Printed(text.replace("\\n", "\n").encode())
        case ["cat", name]:
            return Printed(Path(name).read_bytes())
        case ["export", setting] if "=" in setting:
            name, _, value = setting.partition("=")
            if value != "…" or name not in os.environ:
                raise Failed(f"{line}: write {name}=…, where {name} is the variable of a key")
            return Printed(b"")
        case _:
            raise Failed(f"{line}: {words[0]} is not known here")


def _cnllm(args: list[str], given: bytes, line: str) -> Printed:
    """Run one command line of cnllm. Its streams are files, as the program asks which files they are."""
    before = sys.stdin, sys.stdout, sys.stderr
    with TemporaryFile() as read, TemporaryFile() as out, TemporaryFile() as err:
        read.write(given)
        read.seek(0)
        sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(one, encoding="utf-8") for one in (read, out, err))
        try:
            status = run(args)
        finally:
            for wrapper in (sys.stdin, sys.stdout, sys.stderr):
                wrapper.detach()
            sys.stdin, sys.stdout, sys.stderr = before
        out.seek(0)
        err.seek(0)
        if status:
            raise Failed(f"{line}: exit status {status}: {err.read().decode()}")
        return Printed(out.read(), err.read())
