"""Declare the callbacks of a decoder. The engine builds events and a reply from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from cnllm.types import Event, Usage

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["REPEATABLE", "EventSink"]

REPEATABLE = "repeatable"
"""The key in `EventSink.state` for text that may be repeated. While it is set, every chunk is decoded in full."""


class EventSink(Protocol):
    """The receiver of a decoder's callbacks. Each method returns the events that it causes."""

    id: str | None
    model: str | None
    created: float | None
    """The time of the reply, in seconds since 1970."""
    raw_finish: str | None
    finished: bool
    """Whether the word or the event came with which the wire ends a reply."""
    answered: bool
    refused: bool
    fault: Any
    source: str | None
    """The field of the reasoning. The same text in another field counts as the same reasoning."""
    state: dict[str, Any]
    """The decoder's own state between two chunks."""

    @property
    def has_text(self) -> bool:
        """Whether any text was added."""

    @property
    def has_calls(self) -> bool:
        """Whether any call was added."""

    @property
    def part_count(self) -> int:
        """Return the number of parts that began, on an ordered wire."""

    def add_text(self, text: str) -> list[Event]:
        """Add text of the answer, as the wire has it."""

    def add_reasoning(self, text: str, field: str) -> list[Event]:
        """Add text of the reasoning, and the field that it came in."""

    def add_details(self, items: list[Any]) -> None:
        """Add structured reasoning, to be stored as received."""

    def add_opaque(self, data: Any) -> list[Event]:
        """Add a block of an unknown type."""

    def begin_block(self, kind: Literal["text", "thought"]) -> list[Event]:
        """Begin a part, on an ordered wire. Without this call a part begins at each change of kind."""

    def add_seal(self, data: Any, part: int | None = None) -> None:
        """Add the data that goes back with a part, on an ordered wire.

        For a call the data are keys beside it, for a block of an unknown type the block itself. The part is the last
        one, or the one of a number, counted from 0 in the order of their beginnings. A function is called when the
        part is made: it returns the data, or None if there is nothing.
        """

    def add_media(
        self,
        type: str,
        *,
        data: str | None = None,
        url: str | None = None,
        extra: dict[str, Any] | None = None,
        seal: Any = None,
    ) -> list[Event]:
        """Add a whole picture or sound of the answer. `seal` goes back with it, on a wire that orders no parts."""

    def annotate(self, data: dict[str, Any]) -> None:
        """Add data about the answer. It stays with the last text and is never sent back."""

    def add_citation(
        self,
        data: Any,
        url: Any,
        title: Any,
        start: Any = None,
        end: Any = None,
        *,
        part: int | None = None,
        quote: str | None = None,
    ) -> list[Event]:
        """Add a source of the answer; `data` is the wire's own object, and values of a wrong type count as unknown.

        `start` and `end` count the characters of the part with the number `part`, or of the whole answer. Without
        them the citation is for the whole part, once it ends. With `quote`, the cited text, they count its bytes.
        """

    def add_extra(self, key: str, value: Any) -> list[Event]:
        """Add data about the reply without a field of their own. `logprobs` are tokens that go on the list."""

    def note(self, code: NoteCode, flag: str, said: str, did: str) -> list[Event]:
        """Add a note for the caller."""

    def end_block(self) -> list[Event]:
        """End the last part, on an ordered wire."""

    def add_call_pieces(self, items: Any, whole: bool) -> list[Event]:
        """Add pieces of tool calls, or whole calls."""

    def end_call(self, index: Any, is_whole: bool) -> None:
        """Set whether the wire says that the last call with this index is whole. A call that is not never runs."""

    def report_finish(self, value: Any) -> bool:
        """Add a finish reason, and return whether a reply ends with it. Of several reasons the worst counts."""

    def add_usage(self, usage: Usage) -> list[Event]:
        """Add token counts."""
