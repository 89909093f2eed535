"""A stop text that the server left in: it is no part of the answer."""

from __future__ import annotations

__all__ = ["StopTexts"]


class StopTexts:
    """Holds back what may be a stop text at the end of an answer. `held` is what waits; `removed`: one was there."""

    __slots__ = ("_stops", "held", "removed")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = sorted(stops, key=len, reverse=True)
        self.held = ""
        self.removed = False

    def feed(self, text: str) -> str:
        """Return what cannot be part of a stop text at the end."""
        text = self.held + text
        most = min(len(self._stops[0]), len(text))
        for size in range(most, 0, -1):
            end = text[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                self.held = end
                return text[:-size]
        self.held = ""
        return text

    @property
    def complete(self) -> bool:
        """Whether what waits ends with a whole stop text."""
        return any(self.held.endswith(stop) for stop in self._stops)

    def flush(self) -> str:
        """Return what waits: the answer goes on behind it."""
        held, self.held = self.held, ""
        return held

    def split(self) -> tuple[str, str]:
        """Return what waits as (text, stop text) at the end of the answer."""
        held = self.flush()
        stop = next((stop for stop in self._stops if held.endswith(stop)), "")
        return held[: len(held) - len(stop)], stop
