"""Remove a stop text that the server left at the end of the answer."""

from __future__ import annotations

__all__ = ["StopTexts"]


class StopTexts:
    """Hold back text that may be a stop text at the end of an answer.

    `held` is the text that waits; `removed` says that a stop text was removed.
    """

    __slots__ = ("_stops", "pending", "removed")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = sorted(stops, key=len, reverse=True)
        self.pending = ""
        self.removed = False

    def feed(self, text: str) -> str:
        """Return the text that cannot be part of a stop text at the end."""
        text = self.pending + text
        limit = min(len(self._stops[0]), len(text))
        for size in range(limit, 0, -1):
            end = text[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                self.pending = end
                return text[:-size]
        self.pending = ""
        return text

    @property
    def complete(self) -> bool:
        """Whether the text that waits ends with a whole stop text."""
        return any(self.pending.endswith(stop) for stop in self._stops)

    def flush(self) -> str:
        """Return the text that waits: the answer goes on behind it."""
        text, self.pending = self.pending, ""
        return text

    def split(self) -> tuple[str, str]:
        """Return the text that waits as (text, stop text) at the end of the answer."""
        text = self.flush()
        stop = next((stop for stop in self._stops if text.endswith(stop)), "")
        return text[: len(text) - len(stop)], stop
