"""Keep what the parts of conversations became at endpoints, so that a longer conversation costs what is new in it.

An agent sends all turns again with each request. A conversation is cut before each turn of the model that follows
another's: into segments, which an endpoint gets one after the other, each as if it were alone. Where that is not so
(a result of an earlier call, a call's id that comes again, a late system message, a picture), nothing is kept, and the
whole conversation is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Cause, Count, Ledger, MessageNote
from cnllm.engine.history.media import has_media
from cnllm.engine.history.reasoning import last_user_index
from cnllm.errors import CnllmError
from cnllm.types import Message, Note, Reasoning, ToolCall
from cnllm.types.parts import SYSTEM_ROLES

if TYPE_CHECKING:
    from cnllm.types.message_memory import MessageMemory

__all__ = ["JoinedSegments", "join_segments"]

_encode = msgspec.json.Encoder().encode
_WHOLE = frozenset(
    ["turn-empty", "result-orphan", "result-paired", "result-moved", "ids-absent", "ids-repeated", "reasoning-missing"]
)
"""Notes on changes that depend on the rest of the conversation."""

_MANY = 16  # new messages from which on a longer beginning is kept
_SIZE = 600  # bytes that a segment takes beside its content

Write = Callable[..., tuple[list[Message], list[dict[str, Any]]]]
"""Returns messages as they fit the endpoint, by a ledger, and these as its turns.

`before_user`: a turn of the user follows behind them.
"""


class _Segment(Struct, frozen=True):
    """A part of a conversation as the endpoint gets it.

    `content` are the objects of its turns with commas between them, None where they depend on other parts. `calls` are
    the ids of its calls, the caller's and those that are sent.
    """

    messages: tuple[Message, ...]
    places: list[int]
    content: bytes | None
    calls: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    on_messages: dict[Cause, MessageNote] = {}
    counts: dict[Count, int] = {}
    has_reasoning: bool = False


class JoinedSegments(Struct, frozen=True):
    """The turns of a conversation as bytes, without the brackets around them; `notes` are on all its messages."""

    content: bytes
    notes: list[Note]
    has_reasoning: bool


def join_segments(
    turns: Sequence[Message], memory: MessageMemory, key: Hashable, write: Write, ledger: Ledger, *, by_user: bool
) -> JoinedSegments | None:
    """Return the turns of a conversation; None where they have to be fitted as a whole.

    `key` stands for all that `write` depends on beside the messages. `ledger` is empty. `by_user`: a later
    turn of the user changes earlier ones.
    """
    pieces: list[bytes] = []
    calls: list[str] = []
    count, position = len(turns), 0
    last_user = last_user_index(turns) if by_user else -1
    has_reasoning = False
    start, prefix = (0, None) if by_user else memory.find_start(key, turns)
    if prefix is not None and _begins_segment(turns, start):
        pieces, calls, has_reasoning, position = [prefix.content], [*prefix.calls], prefix.has_reasoning, start
        ledger.extend(prefix.notes)
        ledger.add_messages(prefix.on_messages, prefix.counts, 0)
    while position < count:
        first = turns[position]
        place = (key, id(first), position <= last_user)
        found = memory.find(place)
        if found is None or not _continues(found, turns, position):
            found = _segment(turns, position, write, ledger, before_user=position <= last_user)
            memory.keep(place, found, _SIZE + len(found.content or b""))
        if found.content is None or (found.notes and position):
            return None
        end = position + len(found.places)
        if end == count and not by_user and position - start >= _MANY:  # the last segment may go on
            content = b",".join(pieces)
            on_messages = {cause: replace(note) for cause, note in ledger.on_messages.items()}
            notes, counts = tuple(ledger.plain), ledger.counts.copy()
            beginning = _Segment((), [], content, tuple(calls), notes, on_messages, counts, has_reasoning)
            memory.keep_start(key, turns[:position], beginning, _SIZE + len(content))
        pieces.append(found.content)
        calls += found.calls
        has_reasoning = has_reasoning or found.has_reasoning
        if found.notes:
            ledger.extend(found.notes)
        if found.on_messages or found.counts:
            ledger.add_messages(found.on_messages, found.counts, position)
        position = end
    if len(set(calls)) != len(calls):
        return None
    return JoinedSegments(b",".join(pieces), ledger.notes, has_reasoning)


def _continues(segment: _Segment, turns: Sequence[Message], position: int) -> bool:
    """Whether a segment is the one at this position: it has these messages, and ends where the next one begins."""
    end = position + len(segment.places)
    if list(map(id, turns[position:end])) != segment.places:
        return False
    return _begins_segment(turns, end)


def _begins_segment(turns: Sequence[Message], position: int) -> bool:
    """Whether a segment begins at a position, or the conversation ends there."""
    return position == len(turns) or (turns[position].role == "assistant" != turns[position - 1].role)


def _segment(turns: Sequence[Message], start: int, write: Write, ledger: Ledger, *, before_user: bool) -> _Segment:
    """Return the segment that begins at a message."""
    end = start + 1
    while not _begins_segment(turns, end):
        end += 1
    messages = tuple(turns[start:end])
    own = ledger.empty()
    alone = _Segment(messages, list(map(id, messages)), None)
    roles = [message.role for message in messages]
    is_head = roles[0] != "assistant"
    is_odd = "user" not in roles if is_head else not SYSTEM_ROLES.isdisjoint(roles)
    if is_odd or (start == 0) != is_head or has_media(messages):
        return alone
    try:
        fitted, written = write(messages, own, before_user=before_user)
        content = _encode(written)[1:-1]
    except (CnllmError, UnicodeEncodeError, TypeError):  # the whole conversation fails in the same way, with its place
        return alone
    codes = {note.note.code for note in own.on_messages.values()}
    texts = [note.note.said for note in own.on_messages.values()]
    is_apart = is_head or (fitted and fitted[0].role == "assistant")
    if not content or not is_apart or fitted[-1].role == "assistant" != roles[-1] or not _WHOLE.isdisjoint(codes):
        return alone
    if any(text.count("messages[") > 1 for text in texts):  # it names another message
        return alone
    calls = dict.fromkeys(p.id for m in (*messages, *fitted) for p in m.parts if type(p) is ToolCall)
    has_reasoning = any(type(p) is Reasoning for m in fitted for p in m.parts)
    notes = tuple(own.plain)
    return _Segment(messages, alone.places, content, tuple(calls), notes, own.on_messages, own.counts, has_reasoning)
