"""The program `cnllm` run inside this process: what it printed and how it ended, without the start of an interpreter.

Click's own runner keeps output in memory. The program looks at what its streams are (a pipe, a file, a terminal), so
here they are files. Tests of pipes, terminals, signals, imports and the exit of the interpreter start a process.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import IO

import cnllm.cli

__all__ = ["can_run", "completed", "read_to_end", "run", "run_on_terminal"]

Completed = subprocess.CompletedProcess[str]
_File = IO[bytes] | FileIO

_OF_THE_START = ("PYTHON", "LC_", "LANG")  # variables that an interpreter reads when it starts


def can_run(env: Mapping[str, str]) -> bool:
    """Whether this environment means the same to an interpreter that runs already.

    PYTHONPATH does, and so does a locale of UTF-8: the language of messages is looked up at each run.
    """
    names = {name for name in {*os.environ, *env} if name.startswith(_OF_THE_START)} - {"PYTHONPATH", "LANG"}
    is_utf8 = env.get("LANG", "").endswith(".UTF-8")
    return is_utf8 and all(os.environ.get(name) == env.get(name) for name in names)


def run(args: Sequence[str], env: Mapping[str, str], stdin: bytes | None, cwd: Path | None) -> tuple[int, str, str]:
    """Run `cnllm` with these arguments: its exit status, stdout and stderr. Without `stdin` there is no input."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        with _process(args, env, cwd), _streams(None if stdin is None else given, out, err):
            status = _ended()
        return status, _text(out), _text(err)


def run_on_terminal(args: Sequence[str], env: Mapping[str, str]) -> tuple[int, bytes]:
    """Run `cnllm` with stdout and stderr on a terminal and no input: its exit status, and what reached the terminal."""
    import pty

    master, slave = pty.openpty()
    seen: list[bytes] = []
    reader = threading.Thread(target=read_to_end, args=(master, seen))
    reader.start()
    try:
        with open(slave, "wb", buffering=0) as screen, _process(args, env, None), _streams(None, screen, screen):
            status = _ended()
    finally:
        reader.join()
        os.close(master)
    return status, b"".join(seen)


def read_to_end(master: int, seen: list[bytes]) -> None:
    """Read what reaches a terminal until its other side is closed."""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the way Linux says that the other side closed
            return
        if not piece:
            return
        seen.append(piece)


def _ended() -> int:
    """Run the program with the arguments and streams of this process, and return its exit status."""
    try:
        status: object = cnllm.cli.main()  # `program` takes all objects out of later collections
    except SystemExit as end:
        status = end.code
    return status if isinstance(status, int) else int(status is not None)


def completed(
    args: Sequence[str], env: Mapping[str, str] | None = None, stdin: str | None = None, cwd: Path | None = None
) -> Completed:
    """Run `cnllm` with the environment of this process and `env`, as `subprocess.run` does with text."""
    given = None if stdin is None else stdin.encode()
    status, out, err = run(args, {**os.environ, **(env or {})}, given, cwd)
    return subprocess.CompletedProcess(list(args), status, out, err)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@contextmanager
def _streams(given: IO[bytes] | None, out: _File, err: _File) -> Iterator[None]:
    """stdin, stdout and stderr as an interpreter opens them."""
    before = sys.stdin, sys.stdout, sys.stderr
    with (
        open(os.devnull, "rb") as nothing,
        open((given or nothing).fileno(), encoding="utf-8", errors="surrogateescape", closefd=False) as stdin,
        open(out.fileno(), "w", encoding="utf-8", errors="surrogateescape", closefd=False) as stdout,
        open(err.fileno(), "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False) as stderr,
    ):
        sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = before


@contextmanager
def _process(args: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> Iterator[None]:
    """What a process has of its own: arguments, environment, folder, path of imports, the collector's settings."""
    environ, argv, folder, path, modules = dict(os.environ), sys.argv, Path.cwd(), list(sys.path), set(sys.modules)
    threshold, root = gc.get_threshold(), logging.getLogger()
    handlers = list(root.handlers)
    own = [str(cwd or folder), *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd or folder)
        sys.argv = ["cnllm", *args]
        sys.path[:0] = own
        importlib.invalidate_caches()
        root.handlers.clear()  # those of pytest: without any, Python says warnings on stderr
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(folder)
        sys.argv, sys.path[:] = argv, path
        root.handlers[:] = handlers
        gc.set_threshold(*threshold)
        for name in set(sys.modules) - modules:  # the user's own, which the next run may have otherwise
            place = getattr(sys.modules[name], "__file__", None)
            if place and not place.startswith(tuple(filter(None, path))):
                del sys.modules[name]
