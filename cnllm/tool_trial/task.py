"""Define a task: a prompt, tools that change a small world, and a check of the world and the answer at the end."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

__all__ = ["Attempt", "ReplyResult", "Task", "TaskResult"]


class Attempt(Struct, frozen=True):
    """A fresh world of a task.

    `expects_call` says whether the next reply has to call a tool. `check` takes the last answer's text and returns what
    is wrong at the end, or None.
    """

    prompt: str
    tools: tuple[Callable[..., object], ...]
    expects_call: Callable[[], bool]
    check: Callable[[str], str | None]


class Task(Struct, frozen=True):
    """A task: its name, what it tries, the function that makes a fresh world, and the requests that it mostly takes."""

    name: str
    about: str
    begin: Callable[[], Attempt]
    requests: int = 2


class ReplyResult(Struct, frozen=True):
    """One reply in a task: whether a call was expected, whether it called, and whether all its calls are valid.

    `first` is the time from sending to the first piece of text or of a call, `seconds` to the end; None where nothing
    came.
    """

    expected: bool
    called: bool
    valid: bool
    first: float | None = None
    seconds: float | None = None


class TaskResult(Struct, frozen=True):
    """The end of a task: `problem` is None if it ended right. `seconds` is the time of all its requests."""

    task: str
    problem: str | None
    replies: tuple[ReplyResult, ...] = ()
    seconds: float | None = None
