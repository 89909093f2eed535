"""The pieces of a reply: what a decoder reads from a chunk or a body, as values.

A wire's decoder returns them in the order in which they stand there. The engine filters the texts, and collects
everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from cnllm.types import Media, Note, Usage

__all__ = [
    "ANOTHER",
    "ANSWERED",
    "ENDED",
    "FACTS",
    "FINISH_RANKS",
    "LISTS",
    "REFUSAL",
    "REFUSED",
    "WORDS",
    "Annotations",
    "CallEnd",
    "CallPieces",
    "CitationPiece",
    "Counts",
    "Decoder",
    "Details",
    "ExtraPiece",
    "Fault",
    "FinishWord",
    "Head",
    "Mark",
    "MediaPiece",
    "OpaquePiece",
    "PartEnd",
    "PartSeal",
    "PartStart",
    "Piece",
    "ReasoningPiece",
    "TextPiece",
    "WholeText",
]

FINISH_RANKS: Final[dict[str | None, int]] = {
    "pause": 1,
    "stop": 2,
    "tool_calls": 3,
    "length": 4,
    "content_filter": 5,
    "error": 6,
}
"""The meanings of the finish reasons that end a reply; the highest of several counts."""


class TextPiece(Struct, frozen=True, gc=False):
    """Text of the answer, as the wire has it: a delta or a snapshot."""

    text: str


class WholeText(Struct, frozen=True):
    """All text of a part that has come in pieces, as the endpoint repeats it at the end of the part.

    Without a number it is all text of the answer. `in_reasoning`: the part is one of the reasoning.
    """

    text: str
    part: int | None = None
    in_reasoning: bool = False


class ReasoningPiece(Struct, frozen=True, gc=False):
    """Text of the reasoning, and the field that it came in.

    Endpoints may send the same reasoning in several fields. A text that repeats what another field brought is dropped.
    `is_only` says that this field is the one that counts.
    """

    text: str
    field: str
    is_only: bool = False


class Details(Struct, frozen=True):
    """Structured items of reasoning, which go back to the endpoint as they came."""

    items: list[Any]


class PartStart(Struct, frozen=True):
    """A part begins, on a wire that orders its parts. Without this piece a part begins at each change of kind.

    `part` is the decoder's own number for the part, by which later pieces name it; so in the other pieces.
    """

    kind: Literal["text", "thought"]
    part: int | None = None


class PartEnd(Struct, frozen=True):
    """The last part ends, on a wire that orders its parts."""


class PartSeal(Struct, frozen=True):
    """The data that goes back with a part, on a wire that orders its parts: with the last one, or with a numbered one.

    For a call the data are keys beside it, for a block of an unknown type the block itself. A function is called when
    the part is made: it returns the data, or None if there is nothing.
    """

    data: Any
    part: int | None = None


class OpaquePiece(Struct, frozen=True):
    """A part that only the endpoint understands."""

    data: Any
    part: int | None = None


class MediaPiece(Struct, frozen=True):
    """A whole picture or sound of the answer. `seal` goes back with it, on a wire that orders no parts."""

    media: Media
    seal: Any = None
    part: int | None = None


class Annotations(Struct, frozen=True):
    """Data about the answer, by key, also in `Reply.extra`. It stays with the last text and is never sent back."""

    data: dict[str, Any]


class CitationPiece(Struct, frozen=True):
    """A source of the answer; `data` is the wire's own object, and values of a wrong type count as unknown.

    `start` and `end` count the characters of the numbered part, or of the whole answer. Without them the citation is
    for the whole part, once it ends. With `quote`, the cited text, they count its bytes. `in_part`: the part is the
    last one.
    """

    data: Any
    url: Any
    title: Any
    start: Any = None
    end: Any = None
    part: int | None = None
    quote: str | None = None
    in_part: bool = False


class ExtraPiece(Struct, frozen=True):
    """Data about the reply without a field of their own. Those of `LISTS` go on the list."""

    key: str
    value: Any


LISTS: Final = ("logprobs", "annotations")
"""The keys of such data that come in pieces: tokens, and sources of kinds that cnllm does not know."""


class CallPieces(Struct, frozen=True):
    """Pieces of tool calls, or whole calls, in the form of chat completions. `part` numbers the first that begins."""

    items: list[Any]
    whole: bool
    part: int | None = None


class CallEnd(Struct, frozen=True):
    """The end of the last call with an index. One that is not whole by the wire is never executed."""

    index: Any
    is_whole: bool


class FinishWord(Struct, frozen=True):
    """A finish reason, and its meaning by the registry: one of `FINISH_RANKS` ends a reply, None is unknown."""

    word: str
    kind: str | None


class Counts(Struct, frozen=True):
    """The counts of tokens so far.

    `invalid` are the names of counts that came and are none: they are unknown. `has_output`: the last object of counts
    says how much output there was, or what all of it costs.
    """

    usage: Usage
    invalid: frozenset[str] = frozenset()
    has_output: bool = True


class Head(Struct, frozen=True):
    """The id, the model and the time of the reply, in seconds since 1970; what is empty is unknown."""

    id: Any = None
    model: Any = None
    created: Any = None


class Fault(Struct, frozen=True):
    """An error in a chunk or a body. The first one counts."""

    data: Any


class Mark(Struct, frozen=True):
    """A fact about the reply."""

    fact: Literal["answered", "refused", "ended", "another", "words"]


ANSWERED: Final = Mark("answered")
"""The chunk belongs to an answer."""
REFUSED: Final = Mark("refused")
"""The model or the endpoint refused to answer."""
REFUSAL: Final = (REFUSED, ExtraPiece("refusal", True))
"""The model refused to answer, and the text that follows says so."""
ENDED: Final = Mark("ended")
"""The word or the event came with which the wire ends a reply."""
ANOTHER: Final = Mark("another")
"""Another reply begins in the same stream."""
WORDS: Final = Mark("words")
"""The object is no part of a reply, and has a sentence: it may be an error in words."""

Piece = (
    TextPiece
    | WholeText
    | ReasoningPiece
    | Details
    | PartStart
    | PartEnd
    | PartSeal
    | OpaquePiece
    | MediaPiece
    | Annotations
    | CitationPiece
    | ExtraPiece
    | CallPieces
    | CallEnd
    | FinishWord
    | Counts
    | Head
    | Fault
    | Mark
    | Note
)


FACTS: Final = frozenset(
    (Head, Mark, FinishWord, Counts, Details, PartSeal, CallEnd, Annotations, ExtraPiece, Fault, Note)
)
"""The kinds of pieces that say something about the reply, and neither are nor begin a part of it."""


class Decoder(Protocol):
    """The decoder of one reply. What it needs to know of earlier chunks is its own.

    `reads_all`: every chunk has to be decoded in full for now, because its text may repeat what came.
    """

    __slots__ = ()
    reads_all: bool = False

    def decode(self, data: dict[str, Any], *, whole: bool = False) -> Iterable[Piece]:
        """Return the pieces of one decoded chunk, or with `whole` of one body."""

    def end(self) -> Iterable[Piece]:
        """Return the pieces of what waits for more, because no more comes."""
        return ()
