"""Compare a reply that begins again with the text that the client has."""

from __future__ import annotations

from collections.abc import Hashable

from msgspec.structs import replace

from cnllm.protocols.repeated_text import RepeatedText
from cnllm.types import (
    Citation,
    CitationAdded,
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)

__all__ = ["Delivered", "Diverged"]


class Diverged(Exception):
    """The reply began again with another text than the one that was sent."""


class Delivered:
    """The texts of a reply that were sent to the client, so that a reply that begins again is not sent twice.

    `EventOrder` of the encoders compares, too, but it cannot say that a reply failed: it writes a text that differs
    after the one that was sent. A gateway compares before the encoder gets the event, and ends the stream with an
    error.
    """

    def __init__(self) -> None:
        self._pieces: dict[Hashable, list[str]] = {}  # by type of delta, or by index of call
        self._names: dict[int, str] = {}  # of calls that were sent
        self._repeats: RepeatedText | None = None
        self._citations: list[Citation] = []
        self._missing_calls: set[int] = set()  # that were sent, and did not begin again yet

    def restart(self) -> None:
        """Begin again: what was sent is left out of the events that follow."""
        if self._pieces or self._names:
            sent = {key: pieces for key, pieces in self._pieces.items() if type(key) is not int or key in self._names}
            self._repeats = RepeatedText({key: "".join(pieces) for key, pieces in sent.items()})
            self._missing_calls = set(self._names)

    @property
    def is_first(self) -> bool:
        """Whether no reply that was sent in part began again."""
        return self._repeats is None

    def add(self, key: Hashable, texts: list[str]) -> None:
        """Add texts that are sent."""
        self._pieces.setdefault(key, []).extend(texts)

    def rest(self, event: Event) -> Event | None:
        """Return the part of an event that was not sent yet; None if all of it was.

        Raises `Diverged` for an event that differs, and for the end of a reply that lacks a part of what was sent.
        """
        match event:
            case TextDelta() | ReasoningDelta():
                return self._rest_of_delta(type(event), event)
            case ToolCallDelta():
                return self._rest_of_delta(event.index, event)
            case CitationAdded(citation=citation):
                if citation in self._citations:
                    return None
                self._citations.append(citation)
            case ToolCallStart(index=index, name=name, excluded=excluded):
                if index not in self._missing_calls:
                    if not excluded:  # the encoders leave such a call out
                        self._names[index] = name
                    return event
                if self._names[index] != name:
                    raise Diverged
                self._missing_calls.discard(index)
                return None
            case Finished():
                if self._missing_calls or (self._repeats is not None and not self._repeats.is_complete):
                    raise Diverged
        return event

    def _rest_of_delta(self, key: Hashable, event: TextDelta | ReasoningDelta | ToolCallDelta) -> Event | None:
        """Return the part of a delta that was not sent yet; None if all of it was. Raises `Diverged`."""
        if self._repeats is not None and key in self._repeats:
            text = self._repeats.new_part(key, event.text)
            if text is None:
                raise Diverged
            if not text:
                return None
            event = replace(event, text=text)
        self.add(key, [event.text])
        return event
