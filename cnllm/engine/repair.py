"""Calls and their results, put right: each call answered once, right after its turn, with arguments that are JSON.

Only the copy for the wire changes, and each change has a note. Everything here is linear in the conversation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.engine.arguments import repaired
from cnllm.engine.ledger import Ledger
from cnllm.types import Media, Message, Opaque, Part, Text, ToolCall, ToolResult

__all__ = ["INTERRUPTED", "Turn", "as_text", "full", "paired"]

Turn = tuple[int, Message]
"""A message and where it stood in the caller's list, which is what notes speak of."""

INTERRUPTED = "(interrupted: this call has no result)"
"""What answers a call that nothing answers."""


class _Slot:
    """A call that waits for its result. `turn` and `order` say where it stands, `at` where its result stood."""

    __slots__ = ("at", "call", "order", "result", "turn")

    def __init__(self, call: ToolCall, turn: int, order: int) -> None:
        self.call = call
        self.turn = self.at = turn
        self.order = order
        self.result: ToolResult | None = None


class _Kept:
    """A turn that stays, with its calls; `answered` counts their results."""

    __slots__ = ("answered", "slots", "turn")

    def __init__(self, turn: Turn, slots: list[_Slot]) -> None:
        self.turn = turn
        self.slots = slots
        self.answered = 0


class _Open:
    """The calls that may still be answered.

    An id may come again in a later turn; from then on it means the later call. Turns of the assistant with nothing
    between them are one group: ids that repeat inside it are answered in order.
    """

    __slots__ = ("_by_id", "_group", "_waiting")

    def __init__(self) -> None:
        self._group = 0
        self._by_id: dict[str, tuple[int, deque[_Slot]]] = {}
        self._waiting: deque[_Slot] = deque()

    def add(self, slots: list[_Slot], *, begins: bool) -> None:
        """More calls; `begins`: they are a group of their own."""
        if begins:
            self._group += 1
            self._waiting = deque()
        for slot in slots:
            group, same = self._by_id.get(slot.call.id, (0, None))
            if same is None or group != self._group:
                self._by_id[slot.call.id] = (self._group, deque([slot]))
            else:
                same.append(slot)
        self._waiting.extend(slots)

    def take(self, result: ToolResult) -> _Slot | None:
        """The call that a result answers: by its id, or without one the first that waits, of its name if it has one."""
        if result.id:
            _, same = self._by_id.get(result.id, (0, None))
            while same:
                slot = same.popleft()
                if slot.result is None:
                    return slot
            return None
        while self._waiting and self._waiting[0].result is not None:
            self._waiting.popleft()
        free = (s for s in self._waiting if s.result is None)
        return next(
            (s for s in free if result.name in (None, s.call.name)), self._waiting[0] if self._waiting else None
        )


def paired(turns: Sequence[Turn], schemas: Mapping[str, dict[str, Any]], named: bool, ledger: Ledger) -> list[Turn]:
    """The turns with each call answered, in order, right after it; results of no call are left out.

    `schemas` are the parameters of the offered tools by name; `named`: a result carries its tool's name.
    """
    kept: list[_Kept] = []
    waiting = _Open()
    places: dict[int, _Kept] = {}
    before = ""
    for index, message in turns:
        if message.role == "tool":
            found = [p for p in message.parts if type(p) is ToolResult]
            for part in found:
                _answer(part, index, waiting, places, kept[-1] if kept else None, ledger)
            if not found:
                ledger.note("result-orphan", "messages", f"messages[{index}] holds no result", "left out")
        else:
            slots: list[_Slot] = []
            if message.role == "assistant" and any(type(p) is ToolCall for p in message.parts):
                message = _with_calls(message, index, schemas, slots, ledger)
                if slots:
                    waiting.add(slots, begins=before != "assistant")
            kept.append(_Kept((index, message), slots))
            if slots:
                places[index] = kept[-1]
        before = message.role
    return _laid_out(kept, named, ledger)


def _with_calls(
    message: Message, index: int, schemas: Mapping[str, dict[str, Any]], slots: list[_Slot], ledger: Ledger
) -> Message:
    """An assistant turn whose calls have a name and legal arguments; each of them goes to `slots`."""
    parts: list[Part] = []
    changed = False
    for part in message.parts:
        if type(part) is ToolCall:
            if not part.name:
                ledger.note("call-nameless", "messages", f"messages[{index}] calls a tool without a name", "left out")
                changed = True
                continue
            call = repaired(part, index, schemas.get(part.name), ledger)
            changed = changed or call is not part
            slots.append(_Slot(call, index, len(slots)))
            parts.append(call)
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts)) if changed else message


def _answer(
    result: ToolResult, index: int, waiting: _Open, places: Mapping[int, _Kept], last: _Kept | None, ledger: Ledger
) -> None:
    slot = waiting.take(result)
    if slot is None:
        said = f"messages[{index}] answers {result.id or 'a call'}, which is not open"
        ledger.note("result-orphan", "messages", said, "left out")
        return
    if not result.id:
        said, did = f"messages[{index}] names no call", f"taken for {slot.call.id or slot.call.name}'s"
        ledger.note("result-paired", "messages", said, did)
    place = places[slot.turn]
    if place is not last or slot.order != place.answered:
        said = f"messages[{index}] answers messages[{slot.turn}]"
        ledger.note("result-moved", "messages", said, "put right after it, in the order of its calls")
    place.answered += 1
    slot.result, slot.at = result, index


def _laid_out(kept: Sequence[_Kept], named: bool, ledger: Ledger) -> list[Turn]:
    out: list[Turn] = []
    for one in kept:
        out.append(one.turn)
        for slot in one.slots:
            result = slot.result
            if result is None:
                said = f"messages[{slot.turn}]: the call of {slot.call.name} has no result"
                ledger.note("call-unanswered", "messages", said, f"answered with {INTERRUPTED!r}")
                result = ToolResult(slot.call.id, INTERRUPTED, slot.call.name, True)
            elif result.id != slot.call.id or (named and result.name is None):
                result = replace(result, id=slot.call.id, name=result.name or slot.call.name)
            out.append((slot.at, Message("tool", (result,))))
    return out


# ── where no tools are taken ─────────────────────────────────────────────────


def as_text(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Calls and results told in words, for a model that knows neither."""
    out: list[Turn] = []
    names: dict[str, str] = {}
    for index, message in turns:
        told: list[Part] = []
        for part in message.parts:
            if type(part) is ToolCall:
                names[part.id] = part.name
                told.append(Text(f"{_break(told)}[called {part.name} with {part.raw.strip() or '{}'}]"))
            elif type(part) is ToolResult:
                of = part.name or names.get(part.id)
                told.append(Text(f"{_break(told)}[result{f' of {of}' if of else ''}: {part.text}]"))
                told += part.media
            else:
                told.append(part)
        if tuple(told) != tuple(message.parts):
            said = f"messages[{index}] holds {'results' if message.role == 'tool' else 'calls'} of tools"
            ledger.note("tools-as-text", "tools.supported", said, "told in words")
            role = "user" if message.role == "tool" else message.role
            if message.role == "tool" and out and out[-1][1].role == "user":
                index, last = out.pop()  # parallel results are one message
                told = [*last.parts, Text("\n"), *told]
            message = replace(message, role=role, parts=tuple(told))
        elif message.role == "tool":
            continue
        out.append((index, message))
    return out


def _break(told: Sequence[Part]) -> str:
    return "\n" if told and type(told[-1]) is Text else ""


# ── turns that say nothing ───────────────────────────────────────────────────


def full(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Without the assistant's turns that neither say nor call anything, and the user's but for the last."""
    out: list[Turn] = []
    for place, (index, message) in enumerate(turns):
        role = message.role
        if (role == "assistant" or (role == "user" and place + 1 < len(turns))) and not _says(message):
            ledger.note("turn-empty", "messages", f"messages[{index}] by {role} is empty", "left out")
        else:
            out.append((index, message))
    return out


def _says(message: Message) -> bool:
    for part in message.parts:
        kind = type(part)
        if kind in (ToolCall, ToolResult, Media, Opaque) or (kind is Text and part.text.strip()):  # type: ignore[union-attr]
            return True
    return False
