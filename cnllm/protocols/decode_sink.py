"""What a wire tells as it reads: the neutral happenings, which the engine folds into events and a reply."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from cnllm.types import Event, Usage

__all__ = ["REPEATABLE", "EventSink"]

REPEATABLE = "repeatable"
"""The key of `EventSink.state` that holds text which may come once more; while it does, every chunk is read in full."""


class EventSink(Protocol):
    """Each method takes one happening and returns the events it causes."""

    id: str | None
    model: str | None
    created: float | None
    """When the reply was made, in seconds since 1970."""
    raw_finish: str | None
    finished: bool
    answered: bool
    refused: bool
    fault: Any
    source: str | None
    """The field in which thinking comes; the same in another field is taken for the same thinking."""
    state: dict[str, Any]
    """What the wire has to remember from one chunk to the next."""

    @property
    def has_text(self) -> bool:
        """Has any text come?"""

    @property
    def has_calls(self) -> bool:
        """Has any call come?"""

    @property
    def part_count(self) -> int:
        """On an ordered wire: how many parts have begun."""

    def add_text(self, text: str) -> list[Event]:
        """More of the answer, as the wire has it."""

    def add_reasoning(self, text: str, field: str) -> list[Event]:
        """More thinking, and the field it came in."""

    def add_details(self, items: list[Any]) -> None:
        """Structured thinking, to be kept as received."""

    def add_opaque(self, data: Any) -> list[Event]:
        """A block nobody here understands."""

    def begin_block(self, kind: Literal["text", "thought"]) -> list[Event]:
        """On an ordered wire: a part begins. Unsaid, one begins whenever the kind of what comes changes."""

    def add_seal(self, data: Any, part: int | None = None) -> None:
        """On an ordered wire: what a part goes back with (a call: keys beside it; a block nobody understands: itself).

        It is the part that began last, or one by its number, counted from 0 as they began. A function is called when
        the part is made: it gives the data, or None where there is nothing.
        """

    def add_media(self, type: str, *, data: str | None = None, url: str | None = None) -> list[Event]:
        """On an ordered wire: a picture or a sound of the answer, whole."""

    def annotate(self, data: dict[str, Any]) -> None:
        """What came beside the answer and is about it; it stays with the last text and goes nowhere."""

    def note(self, code: str, flag: str, said: str, did: str) -> list[Event]:
        """Something that the caller is told."""

    def end_block(self) -> list[Event]:
        """On an ordered wire: the part that began last is over."""

    def add_call_pieces(self, items: Any, whole: bool) -> list[Event]:
        """Pieces of tool calls, or whole ones."""

    def add_usage(self, usage: Usage) -> list[Event]:
        """Usage came."""
