"""Calls and their results, put right: each call answered once, right after its turn, with arguments that are JSON.

Only the copy for the wire changes, and each change has a note. Everything here is linear in the conversation.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.arguments import repair_arguments
from cnllm.types import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.lenient_json import replace_surrogates

__all__ = [
    "INTERRUPTED",
    "IN_WORDS",
    "TextForm",
    "Turn",
    "calls_to_text",
    "drop_empty",
    "drop_unheard",
    "has_content",
    "move_calls_last",
    "pair_calls",
    "separate_results",
    "settle_calls",
]

Turn = tuple[int, Message]
"""A message and where it stood in the caller's list, which is what notes speak of."""

INTERRUPTED = "interrupted: it was not run, or its result was lost"
"""What answers a call that nothing answers."""

_NEAR = 64  # calls of one id among which a result's name is looked for


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

    __slots__ = ("_by_id", "_by_name", "_group", "_waiting")

    def __init__(self) -> None:
        self._group = 0
        self._by_id: dict[str, tuple[int, deque[_Slot]]] = {}
        self._waiting: deque[_Slot] = deque()
        self._by_name: dict[str, deque[_Slot]] = {}

    def add(self, slots: list[_Slot], *, begins: bool) -> None:
        """More calls; `begins`: they are a group of their own."""
        if begins:
            self._group += 1
            self._waiting = deque()
            self._by_name = {}
        for slot in slots:
            self._by_name.setdefault(slot.call.name, deque()).append(slot)
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
            while same and same[0].result is not None:
                same.popleft()
            if not same:
                return None
            # Where calls share an id, a result goes to the first of its name, and else to the first.
            near = itertools.islice(same, _NEAR)
            return next((s for s in near if s.result is None and s.call.name == result.name), same[0])
        named = None if result.name is None else _first_free(self._by_name.get(result.name, _NONE))
        return named or _first_free(self._waiting)


_NONE: deque[_Slot] = deque()


def _first_free(slots: deque[_Slot]) -> _Slot | None:
    """Return the first call that has no result yet. Those before it are dropped."""
    while slots and slots[0].result is not None:
        slots.popleft()
    return slots[0] if slots else None


def settle_calls(messages: Sequence[Message]) -> tuple[list[Message], int]:
    """The messages with a result for every call, and how many had to be made up: they say that it was interrupted.

    What stands there stays as it is: this is for a history that goes on, not for the wire.
    """
    waiting = _Open()
    open_at: dict[int, list[_Slot]] = {}
    before = ""
    for index, message in enumerate(messages):
        if message.role == "assistant" and (calls := message.tool_calls):
            open_at[index] = [_Slot(call, index, order) for order, call in enumerate(calls)]
            waiting.add(open_at[index], begins=before != "assistant")
        for part in message.parts:
            if type(part) is ToolResult and (slot := waiting.take(part)) is not None:
                slot.result = part
        before = message.role
    out: list[Message] = []
    lost: list[Message] = []
    made_up = 0
    for index, message in enumerate(messages):
        if message.role != "tool":
            out += lost
            lost = []
        out.append(message)
        lost += [Message("tool", (_interrupted(slot.call),)) for slot in open_at.get(index, ()) if slot.result is None]
        made_up += sum(slot.result is None for slot in open_at.get(index, ()))
    return out + lost, made_up


def _interrupted(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, INTERRUPTED, call.name, True)


def separate_results(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Results in messages of their own, and nothing else in these: what stood beside them is the user's, after them."""
    out: list[Turn] = []
    beside: list[Turn] = []
    for index, message in turns:
        role, parts = message.role, message.parts
        if len(parts) == 1 and not beside and type(parts[0]) is (ToolResult if role == "tool" else Text):
            out.append((index, message))  # most messages
            continue
        kinds = {type(part) for part in parts}
        if ToolCall in kinds and role != "assistant":
            ledger.note("call-misplaced", "messages", f"messages[{index}] by {role} calls tools", "left out")
            message = replace(message, parts=_but(message, ToolCall))
        if Reasoning in kinds and role != "assistant":
            ledger.note("reasoning-misplaced", "messages", f"messages[{index}] by {role} thinks", "left out")
            message = replace(message, parts=_but(message, Reasoning))
        if role == "tool":
            more = _but(message, ToolResult)
            if any(map(has_content, more)):
                said = f"messages[{index}] by tool holds more than results"
                ledger.note("result-beside", "messages", said, "sent as the user's, after the results")
                beside.append((index, Message("user", more)))
                message = replace(message, parts=_only(message, ToolResult))
                if not message.parts:
                    continue
            out.append((index, message))
            continue
        out += beside
        beside = []
        if ToolResult not in kinds:
            out.append((index, message))
            continue
        ledger.note(
            "result-beside", "messages", f"messages[{index}] by {role} holds results", "each in its own message"
        )
        given = [(index, Message("tool", _only(message, ToolResult)))]
        rest = _but(message, ToolResult)
        own = [(index, replace(message, parts=rest))] if rest else []
        out += [*own, *given] if role == "assistant" else [*given, *own]
    return out + beside


def _only(message: Message, kind: type) -> tuple[Part, ...]:
    return tuple(part for part in message.parts if type(part) is kind)


def _but(message: Message, kind: type) -> tuple[Part, ...]:
    return tuple(part for part in message.parts if type(part) is not kind)


def pair_calls(
    turns: Sequence[Turn], schemas: Mapping[str, dict[str, Any]] | None, orphans: bool, ledger: Ledger
) -> list[Turn]:
    """The turns with each call answered, in order, right after it; results of no call stay only if `orphans` may.

    `schemas` are the parameters of the offered tools by name; None: arguments may stay as they came.
    """
    kept: list[_Kept] = []
    waiting = _Open()
    places: dict[int, _Kept] = {}
    last: _Kept | None = None
    before = ""
    for index, message in turns:
        if message.role == "tool":
            results = [part for part in message.parts if type(part) is ToolResult]
            for part in results:
                if not _answer(part, index, waiting, places, last, orphans, ledger):
                    kept.append(_Kept((index, Message("tool", (part,))), []))
            if not results:
                ledger.note("result-orphan", "messages", f"messages[{index}] holds no result", "left out")
        else:
            slots: list[_Slot] = []
            if message.role == "assistant":
                message = _with_calls(message, index, schemas, slots, ledger)
                if slots:
                    waiting.add(slots, begins=before != "assistant")
            last = _Kept((index, message), slots)
            kept.append(last)
            if slots:
                places[index] = last
        before = message.role
    return _laid_out(kept, ledger)


def _with_calls(
    message: Message, index: int, schemas: Mapping[str, dict[str, Any]] | None, slots: list[_Slot], ledger: Ledger
) -> Message:
    """An assistant turn whose calls have a name and, by their `schemas`, legal arguments; each goes to `slots`."""
    if ToolCall not in map(type, message.parts):
        return message
    parts: list[Part] = []
    changed = False
    for part in message.parts:
        if type(part) is ToolCall:
            if not part.name:
                ledger.note("call-nameless", "messages", f"messages[{index}] calls a tool without a name", "left out")
                changed = True
                continue
            call = part if schemas is None else repair_arguments(part, index, schemas.get(part.name), ledger)
            changed = changed or call is not part
            slots.append(_Slot(call, index, len(slots)))
            parts.append(call)
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts)) if changed else message


def _answer(
    result: ToolResult,
    index: int,
    waiting: _Open,
    places: Mapping[int, _Kept],
    last: _Kept | None,
    orphans: bool,
    ledger: Ledger,
) -> bool:
    """Gives a result to its call, in the turn `last` or before it. Is it seen to? If not, it stays where it is."""
    slot = waiting.take(result)
    if slot is None:
        said = f"messages[{index}] answers {result.id or 'a call'}, which is not open"
        if not orphans:
            ledger.note("result-orphan", "messages", said, "left out")
        return not orphans
    if not result.id:
        said, did = f"messages[{index}] names no call", f"taken for {slot.call.id or slot.call.name}'s"
        ledger.note("result-paired", "messages", said, did)
    place = places[slot.turn]
    if place is not last or slot.order != place.answered:
        said = f"messages[{index}] answers messages[{slot.turn}]"
        ledger.note("result-moved", "messages", said, "put right after it, in the order of its calls")
    place.answered += 1
    slot.result, slot.at = result, index
    return True


def _laid_out(kept: Sequence[_Kept], ledger: Ledger) -> list[Turn]:
    out: list[Turn] = []
    for one in kept:
        out.append(one.turn)
        for slot in one.slots:
            result = slot.result
            if result is None:
                said = f"messages[{slot.turn}]: the call of {slot.call.name} has no result"
                ledger.note("call-unanswered", "messages", said, f"answered with {INTERRUPTED!r}")
                result = _interrupted(slot.call)
            elif result.id != slot.call.id or result.name is None or slot.call.excluded:
                name = slot.call.name if slot.call.excluded else result.name or slot.call.name
                result = replace(result, id=slot.call.id, name=name)
            out.append((slot.at, Message("tool", (result,))))
    return out


# ── where no tools are taken ─────────────────────────────────────────────────


class TextForm(Struct, frozen=True):
    """How calls and results are told to a model that knows neither, and the note that says so."""

    call: Callable[[ToolCall], str]
    result: Callable[[ToolResult], str]
    code: str
    flag: str
    did: str


def _called(call: ToolCall) -> str:
    raw = call.raw.strip() or msgspec.json.encode(replace_surrogates(call.arguments or {})).decode()
    return f"[called {call.name} with {raw}]"


def _resulted(result: ToolResult) -> str:
    return f"[result{f' of {result.name}' if result.name else ''}: {result.text}]"


IN_WORDS = TextForm(_called, _resulted, "tools-as-text", "tools.supported", "told in words")
"""For a model that is told of no tools."""


def calls_to_text(turns: Sequence[Turn], words: TextForm, ledger: Ledger) -> list[Turn]:
    """Calls as text of their turn, and results, those that stand together, as a message of the user's."""
    out: list[Turn] = []
    told: list[int] = []
    run: list[Part] = []  # of results that stand together
    start = 0

    def put_down() -> None:
        nonlocal run
        if run:
            out.append((start, Message("user", tuple(run))))
            run = []

    for index, message in turns:
        if message.role == "tool":
            parts: list[Part] = []
            for part in message.parts:
                if type(part) is ToolResult:
                    parts += [Text(words.result(part)), *part.media]
            told.append(index)
            if run:
                run += [Text("\n"), *parts]
            else:
                start, run = index, parts
            continue
        put_down()
        if any(type(p) is ToolCall for p in message.parts):
            told.append(index)
            message = replace(message, parts=tuple(_written(message.parts, words)))
        out.append((index, message))
    put_down()
    if told:
        said = f"calls and results in {len(told)} messages, the first messages[{told[0]}]"
        ledger.note(words.code, words.flag, said, words.did)
    return out


def _written(parts: Sequence[Part], words: TextForm) -> list[Part]:
    """An assistant's parts, each call on a line of its own."""
    out: list[Part] = []
    for part in parts:
        if type(part) is ToolCall:
            before = next((known.text for known in reversed(out) if type(known) is Text and known.text), "\n")
            part = Text(words.call(part) if before.endswith("\n") else "\n" + words.call(part))
        out.append(part)
    return out


# ── turns that say nothing ───────────────────────────────────────────────────


def drop_unheard(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Without what others than the model say and is empty; where it is to answer that, an ellipsis is said."""
    out: list[Turn] = []
    for place, (index, message) in enumerate(turns):
        if message.role in ("assistant", "tool") or any(map(has_content, message.parts)):
            out.append((index, message))
            continue
        said, did = f"messages[{index}] by {message.role} is empty", "left out"
        if place + 1 == len(turns) and message.role == "user" and (not out or out[-1][1].role not in ("user", "tool")):
            did = "sent as an ellipsis"
            out.append((index, replace(message, parts=(Text("…"),))))
        ledger.note("turn-empty", "messages", said, did)
    return out


def drop_empty(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Without the assistant's turns that neither say nor call anything."""
    out: list[Turn] = []
    for index, message in turns:
        if message.role == "assistant" and not any(map(has_content, message.parts)):
            ledger.note("turn-empty", "messages", f"messages[{index}] by assistant is empty", "left out")
        else:
            out.append((index, message))
    return out


def has_content(part: Part) -> bool:
    """Does a part of a turn say anything that an endpoint takes? Thinking alone is refused by many."""
    if type(part) is Text:
        return bool(part.text) and not part.text.isspace()
    return type(part) is not Reasoning


def move_calls_last(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """What a turn says after its calls is put before them: results are to follow at once.

    What is sealed stays where the endpoint itself put it.
    """
    out: list[Turn] = []
    for index, message in turns:
        if message.role == "assistant" and ToolCall in map(type, message.parts):
            first = next(i for i, p in enumerate(message.parts) if type(p) is ToolCall)
            after = message.parts[first:]
            late = [p for p in after if type(p) in (Text, Media) and p.seal is None and has_content(p)]
            if late:
                said = f"messages[{index}] says something after its calls"
                ledger.note("calls-last", "messages", said, "put before them: the results follow at once")
                moved = set(map(id, late))
                rest = [p for p in after if id(p) not in moved]
                message = replace(message, parts=(*message.parts[:first], *late, *rest))
        out.append((index, message))
    return out
