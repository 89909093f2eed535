"""Compare a reply that begins again with what the client has of it."""

from __future__ import annotations

from msgspec.structs import replace

from cnllm.types import Event, Finished, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart

__all__ = ["Delivered", "Diverged"]


class Diverged(Exception):
    """The reply began again with another text than the one that was sent."""


class Delivered:
    """The texts of a reply that were sent to the client, so that a reply that begins again is not sent twice.

    `EventOrder` of the encoders leaves repeated text out, too, but it writes a text that differs after the one that
    was sent. A gateway can say that the reply failed, so it compares before the encoder gets the event.
    """

    def __init__(self) -> None:
        self._pieces: dict[object, list[str]] = {}
        self._skip: dict[object, str] = {}

    def restart(self) -> None:
        """Begin again: what was sent is left out of the events that follow."""
        self._skip = {key: "".join(pieces) for key, pieces in self._pieces.items()}

    @property
    def is_first(self) -> bool:
        """Whether the reply did not begin again."""
        return not self._skip

    def add(self, key: object, texts: list[str]) -> None:
        """Add texts that are sent."""
        self._pieces.setdefault(key, []).extend(texts)

    def rest(self, event: Event) -> Event | None:
        """Return the part of an event that was not sent yet; None if all of it was. Raises `Diverged`."""
        key: object
        match event:
            case TextDelta() | ReasoningDelta():
                key, text = type(event), event.text
            case ToolCallDelta():
                key, text = event.index, event.text
            case ToolCallStart():
                key, text = ("name", event.index), f"{event.name} "
            case Finished() if any(self._skip.values()):
                raise Diverged
            case _:
                return event
        if self._skip and (skip := self._skip.get(key)):
            length = min(len(skip), len(text))
            if skip[:length] != text[:length]:
                raise Diverged
            self._skip[key] = skip[length:]
            text = text[length:]
            if not text:
                return None
            event = replace(event, text=text)
        self._pieces.setdefault(key, []).append(text)
        return event
