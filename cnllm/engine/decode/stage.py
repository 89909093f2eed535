"""Items, which pass through the row of stages between a wire's decoder and the collector, and the form of a stage.

A stage takes pieces and gives pieces. It changes texts of the answer, of the reasoning or of both, and passes on the
rest. It may hold text back until it is certain, and give notes, and calls that it found.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from cnllm.engine.decode.tool_calls import CallBuilder
from cnllm.protocols.pieces import Piece, ReasoningPiece, TextPiece

__all__ = ["TAGGED", "Item", "PlainText", "Restart", "Stage", "next_places", "removal", "text_piece"]

TAGGED = "(tags)"
"""The field of reasoning that stands between tags in the answer, beside the names of fields."""


class Restart(Struct, frozen=True):
    """Texts of these kinds were misread and begin again: what a stage knows of them no longer holds."""

    text: bool = False
    thought: bool = False


Item = Piece | Restart | CallBuilder
"""An item of the row: a piece, a restart, or a call that a stage found in a text."""


class Stage:
    """One stage of the row. It belongs to one reply. Text of a kind that it does not read passes by."""

    __slots__ = ()

    reads_text = True
    """Whether the stage reads text of the answer."""
    reads_thought = False
    """Whether the stage reads text of the reasoning."""
    is_idle = True
    """Whether the stage holds nothing back."""
    pending = ""
    """Text of the answer that is held back, as it came."""
    lets_text = True
    """Whether plain text of the answer that goes on may pass by for now: the stage would not change it."""
    lets_thought = True
    """Whether plain text of the reasoning that goes on may pass by for now."""

    def feed(self, item: Item) -> list[Item]:
        """Return what becomes of an item; itself where the stage leaves it as it is."""
        return [item]

    def release(self) -> list[Item]:
        """Return what is held back only because a part of the reply was open that is over now."""
        return []

    def end(self, *, proven: bool) -> list[Item]:
        """Return what is left at the end of the reply; `proven` means that the endpoint marked the end."""
        return []


class PlainText:
    """The last text of a stage in which neither a marker nor a tag begins. The stage behind it compares objects."""

    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = ""


def text_piece(text: str, *, in_reasoning: bool) -> TextPiece | ReasoningPiece:
    """Return a piece of the reasoning or of the answer, behind the stages that know the fields of reasoning."""
    return ReasoningPiece(text, "") if in_reasoning else TextPiece(text)


def removal(text: str, reason: str) -> str:
    """Say how much was removed, and why."""
    return f"removed from the text ({len(text)} characters): {reason}"


@lru_cache(maxsize=64)
def next_places(stages: tuple[type[Stage], ...]) -> tuple[list[int], list[int]]:
    """Return for each place in a row, and for its end, the first place from there on where a stage reads.

    The first list is for text of the answer, the second for the reasoning.
    """
    texts, thoughts = [len(stages)], [len(stages)]
    for place in range(len(stages) - 1, -1, -1):
        texts.insert(0, place if stages[place].reads_text else texts[0])
        thoughts.insert(0, place if stages[place].reads_thought else thoughts[0])
    return texts, thoughts
