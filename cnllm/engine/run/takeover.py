"""Compare a reply that goes on for another one with the text that was delivered: nothing is delivered twice."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.engine.encode import prefill
from cnllm.types import Event, ReasoningDelta, Reply, Text, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

__all__ = ["Diverged", "Follower", "RepeatedStart", "continued_reply"]

_LEAST_REPEATED = 16  # characters of a beginning that no model repeats by chance


class Diverged(Exception):
    """The reply is another one than the delivered text."""


class Follower:
    """Passes on what a new reply has after the delivered text. Raises `Diverged` at the first other character."""

    def __init__(self, delivered: str) -> None:
        self._missing = delivered
        self._held: list[Event] = []

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that go on from the delivered text."""
        if not self._missing:
            return list(events)
        out: list[Event] = []
        for event in events:
            if not self._missing:
                out.append(event)
            elif type(event) is TextDelta:
                size = min(len(event.text), len(self._missing))
                if event.text[:size] != self._missing[:size]:
                    raise Diverged
                self._missing = self._missing[size:]
                if not self._missing:
                    out += self._held
                    self._held = []
                    out += [TextDelta(event.text[size:])] if event.text[size:] else []
            elif isinstance(event, ToolCallStart | ToolCallDelta | ToolCallEnd):
                raise Diverged
            elif type(event) is ReasoningDelta:
                self._held.append(event)
        return out

    def end(self) -> list[Event]:
        """Return the events that were held back. Raises `Diverged` where the reply ended before the delivered text."""
        if self._missing:
            raise Diverged
        return []


class RepeatedStart:
    """Removes the beginning of a reply from one that was to go on from it and begins with it again."""

    def __init__(self, beginning: str) -> None:
        self._beginning = beginning if len(beginning) >= _LEAST_REPEATED else ""
        self._held = ""
        self._open = bool(self._beginning)
        self.repeats = False

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """Return the events without a repeated beginning; a text that may be one waits."""
        if not self._open:
            return list(events)
        out: list[Event] = []
        for event in events:
            if not self._open or type(event) is ReasoningDelta:
                out.append(event)
            elif type(event) is TextDelta:
                self._held += event.text
                if self._held.startswith(self._beginning):
                    self._open, self.repeats = False, True
                    self._held = self._held[len(self._beginning) :]
                    out += self._release()
                elif not self._beginning.startswith(self._held):
                    out += self._release()
            elif isinstance(event, ToolCallStart):
                out += [*self._release(), event]
            else:
                out.append(event)
        return out

    def end(self) -> list[Event]:
        """Return the events that were held back."""
        return self._release()

    def _release(self) -> list[Event]:
        self._open = False
        text, self._held = self._held, ""
        return [TextDelta(text)] if text else []


def continued_reply(before: Reply, rest: Reply, repeats: bool) -> Reply:
    """Join the beginning of a reply with its rest, which may repeat the beginning."""
    if repeats:
        text = rest.text.removeprefix(before.text)
        parts = tuple(part for part in rest.message.parts if type(part) is not Text)
        rest = replace(rest, text=text, message=replace(rest.message, parts=(Text(text), *parts)))
    return prefill.join_halves(before, rest)
