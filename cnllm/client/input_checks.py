"""Check the inputs of custom tools by their grammars, in processes that can be killed.

Grammars and inputs come from strangers (see `cnllm.schemas.grammar`). A check has a time limit, the process of it a
memory limit, and one client has only so many processes. What cannot be judged within these is unknown, not wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

from cnllm.engine.run.effects import InputCheck, InputVerdict

__all__ = ["InputChecker"]

_SECONDS = 3.0  # of work for one check
_PATIENCE = 7  # seconds that a second of work may take on a busy machine
_WAIT = 10.0  # seconds until one of the processes is free
_MOST_PROCESSES = 4
_MOST_IDLE = 1
_LONGEST_GRAMMAR = 50_000  # characters
_LONGEST_INPUT = 500_000  # characters
_MOST_STEPS = 10_000_000  # size of a regular expression × length of an input
_LONGEST_PROBLEM = 1_000  # characters
_VARIABLES = ("SYSTEMROOT", "LD_LIBRARY_PATH", "PATH")  # that Python may need: never the keys


class InputChecker:
    """The checks of one client. `check` may be called from any thread; `close` ends the processes."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._slots = threading.BoundedSemaphore(_MOST_PROCESSES)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        weakref.finalize(self, _end_all, self._idle)  # where nobody calls `close`

    def check(self, checks: Sequence[InputCheck]) -> list[InputVerdict]:
        """Return the verdict of each check. It may block for seconds."""
        return [self._check(check) for check in checks]

    def _check(self, check: InputCheck) -> InputVerdict:
        """Return the verdict of a check."""
        if len(check.definition) > _LONGEST_GRAMMAR:
            return InputVerdict(unknown=f"the grammar has more than {_LONGEST_GRAMMAR:,} characters")
        if len(check.text) > _LONGEST_INPUT:
            return InputVerdict(unknown=f"the input has more than {_LONGEST_INPUT:,} characters")
        if check.syntax == "regex":
            return _check_regex(check)
        if check.syntax == "lark":
            return self._check_lark(check)
        return InputVerdict(unknown=f"the syntax {check.syntax[:40]!r} is not known")

    def _check_lark(self, check: InputCheck) -> InputVerdict:
        """Return the verdict on an input by a grammar of lark."""
        import importlib.util

        spec = importlib.util.find_spec("lark")
        if spec is None or spec.origin is None:
            return InputVerdict(unknown="lark is not installed: pip install lark")
        if not sys.executable:
            return InputVerdict(unknown="no Python is known that could run the check")
        if not self._slots.acquire(timeout=_WAIT):
            return InputVerdict(unknown="too many other inputs are being checked")
        try:
            return self._ask(check, str(Path(spec.origin).parent.parent))
        finally:
            self._slots.release()

    def _ask(self, check: InputCheck, folder: str) -> InputVerdict:
        """Return the verdict of a process."""
        request = {"grammar": check.definition, "text": check.text, "seconds": self._seconds}
        try:
            process = self._take(folder)
        except OSError as error:
            return InputVerdict(unknown=f"no process could be started: {error}")
        answer = process.ask(json.dumps(request).encode() + b"\n", self._seconds * _PATIENCE)
        if answer is None:
            process.end()
            return InputVerdict(unknown=f"the check takes more than {self._seconds:g} s")
        self._put_back(process)
        problem, unknown = answer.get("problem"), answer.get("unknown")
        return InputVerdict(problem and problem[:_LONGEST_PROBLEM], unknown and unknown[:_LONGEST_PROBLEM])

    def _take(self, folder: str) -> _Process:
        """Return an idle process, or a new one. Raises `OSError`."""
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    return process
                process.end()
        return _Process(folder)

    def _put_back(self, process: _Process) -> None:
        """Keep a process for the next check, or end it."""
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(process)
                return
        process.end()

    def close(self) -> None:
        """End the idle processes."""
        with self._lock:
            _end_all(self._idle)


class _Process:
    """A process that checks one text after the other. It gets no variable of the environment that may hold a key."""

    def __init__(self, folder: str) -> None:
        from cnllm.schemas import grammar

        variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(grammar.__file__), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=variables,
        )

    @property
    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    def ask(self, request: bytes, seconds: float) -> dict[str, str] | None:
        """Return the answer to a request; None where none came in time. Then the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (OSError, ValueError):
            return None
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            return None
        answer: dict[str, str] = json.loads(line)
        return answer

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # bytes that it did not read
                    pipe.close()
        self._process.wait()


def _end_all(processes: list[_Process]) -> None:
    """End the processes of a list, and empty it."""
    while processes:
        processes.pop().end()


def _check_regex(check: InputCheck) -> InputVerdict:
    """Return the verdict on an input by a regular expression. The search takes linear time."""
    from cnllm.schemas.patterns import compile_pattern, whole_matcher, whole_problem

    if (fault := whole_problem(check.definition)) is not None:
        return InputVerdict(unknown=f"the regular expression cannot be judged: {fault[0]}"[:_LONGEST_PROBLEM])
    if compile_pattern(check.definition).size * len(check.text) > _MOST_STEPS:
        return InputVerdict(unknown="the regular expression and the input are too long together")
    matches = whole_matcher(check.definition)
    assert matches is not None
    if matches(check.text):
        return InputVerdict()
    return InputVerdict(f"the text as a whole does not match {check.definition}"[:_LONGEST_PROBLEM])
