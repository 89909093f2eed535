"""Read the body of a response: whole, or as the events of a stream."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from cnllm.engine.decode.framing import detect_mode
from cnllm.engine.decode.parser import StreamParser
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.effects import Effect, ReadBody, SetReadDeadline
from cnllm.errors import IdleTimeout, TransportError
from cnllm.types import Event

__all__ = ["is_stream", "read_body", "read_events"]

_USAGE_WAIT = 2.0  # seconds in which usage may follow a finish


def is_stream(status: int, body: bytes) -> bool:
    """Whether the beginning of a body, which `read_body` returned, is that of a stream of events."""
    return status < 300 and detect_mode(body) == "sse"


def read_body(plan: Plan, status: int, progress: float | None) -> Generator[Effect, Any, bytes]:
    """Return the rest of a body, or the beginning of a stream of events that came in its place.

    An error response counts even if its body breaks off. Raises `IdleTimeout` where the body stops in the middle.
    """
    body: bytes
    body, error = yield ReadBody(plan.limits.reply, progress, is_reply=status < 300)
    if error is not None and (status < 300 or isinstance(error, IdleTimeout)):
        error.began, error.retryable = True, False  # a part of the reply came: another request would be paid, too
        raise error
    return body


def read_events(
    parser: StreamParser,
    begin: bytes,
    progress: float | None,
    clock: Callable[[], float],
    deliver: Callable[[], None],
) -> Generator[Effect, Any, tuple[list[Event], TransportError | None]]:
    """Read a stream that begins with these bytes; return its last events, and the error that ended it.

    All other events are delivered. `deliver` is called before.
    """
    feed = parser.feed
    silent_since: float | None = clock()  # since when no event came; None while events are delivered
    has_deadline = False
    error: TransportError | None = None
    events: list[Event] = []
    chunk: Any = begin or (yield events)
    while True:
        if type(chunk) is not bytes:
            error = chunk
            break
        events = feed(chunk)
        if parser.done:
            break
        if events:
            silent_since = None
            deliver()
        elif silent_since is None:
            silent_since = clock()
        elif progress is not None and clock() - silent_since > progress:
            error = IdleTimeout(
                f"no event for {progress:g} s, although the connection is open",
                hint="raise the timeout, or ask for a shorter answer",
            )
            break
        if parser.finished is not has_deadline:  # an answer may go on after a finish reason
            has_deadline = not has_deadline
            yield SetReadDeadline(_USAGE_WAIT if has_deadline else None)
        chunk = yield events
    return events if parser.done else parser.end(orderly=error is None), error
