"""Repair calls and their results: one result for each call, right after its turn, with arguments that are JSON.

Only the copy for the wire changes, and each change has a note. The time is linear in the length of the conversation.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.protocols import BlockLink
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.convert import text_with_error
from cnllm.types.lenient_json import decode_arguments, may_be_encoded, replace_surrogates
from cnllm.types.tools import Function, custom_arguments

__all__ = [
    "INTERRUPTED",
    "Turn",
    "drop_empty",
    "drop_pending",
    "drop_unheard",
    "has_content",
    "move_calls_last",
    "pair_calls",
    "separate_results",
    "settle_calls",
]

Turn = tuple[int, Message]
"""A message and its index in the caller's list. Notes name this index."""

INTERRUPTED = "interrupted: it was not run, or its result was lost"
"""The result for a call without one."""

_MAX_SHARED_ID = 64  # calls of one id among which the name of a result is compared
_shallow = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError)


class _CallSlot:
    """A call that waits for its result. `turn` and `order` are the call's position, `at` is that of its result.

    `entry` is the turn with its calls, where that is known.
    """

    def __init__(self, call: ToolCall, turn: int, order: int) -> None:
        self.call = call
        self.turn = self.at = turn
        self.order = order
        self.result: ToolResult | None = None
        self.entry: _TurnSlots | None = None


class _TurnSlots:
    """A turn that stays, with its calls; `answered` counts their results."""

    def __init__(self, turn: Turn, slots: Sequence[_CallSlot] = ()) -> None:
        self.turn = turn
        self.slots = slots
        self.answered = 0
        for slot in slots:
            slot.entry = self


class _OpenCalls:
    """The calls that have no result yet.

    An id may come again in a later turn; from then on it means the later call. Turns of the assistant with nothing
    between them are one group: ids that repeat inside a group are answered in order.
    """

    def __init__(self) -> None:
        self._group = 0
        self._by_id: dict[str, tuple[int, deque[_CallSlot]]] = {}
        self._waiting: deque[_CallSlot] = deque()
        self._by_name: dict[str, deque[_CallSlot]] = {}

    def add(self, slots: list[_CallSlot], *, begins: bool) -> None:
        """Add calls; `begins` means that they begin a new group."""
        if begins:
            self._group += 1
            self._waiting = deque()
            self._by_name = {}
        for slot in slots:
            self._by_name.setdefault(slot.call.name, deque()).append(slot)
            group, slots_of_id = self._by_id.get(slot.call.id, (0, None))
            if slots_of_id is None or group != self._group:
                self._by_id[slot.call.id] = (self._group, deque([slot]))
            else:
                slots_of_id.append(slot)
        self._waiting.extend(slots)

    def take(self, result: ToolResult) -> _CallSlot | None:
        """Return the call that a result answers; None where no call is open.

        A result with an id answers the call of that id. A result without one answers the first open call of its name,
        or the first one if it has no name either.
        """
        if result.id:
            _, slots = self._by_id.get(result.id, (0, None))
            while slots and slots[0].result is not None:
                slots.popleft()
            if not slots:
                return None
            # Where calls share an id, a result goes to the first of its name, otherwise to the first.
            candidates = itertools.islice(slots, _MAX_SHARED_ID)
            return next((s for s in candidates if s.result is None and s.call.name == result.name), slots[0])
        return _first_free(self._waiting if result.name is None else self._by_name.get(result.name, _EMPTY))


_EMPTY: deque[_CallSlot] = deque()


def _first_free(slots: deque[_CallSlot]) -> _CallSlot | None:
    """Return the first call that has no result yet. Those before it are dropped."""
    while slots and slots[0].result is not None:
        slots.popleft()
    return slots[0] if slots else None


def settle_calls(messages: Sequence[Message]) -> tuple[list[Message], int]:
    """Return the messages with a result for every call, and the count of results that were added.

    The added results say that the call was interrupted. Existing messages do not change: this is for a history that
    continues, not for the wire.
    """
    waiting = _OpenCalls()
    open_at: dict[int, list[_CallSlot]] = {}
    before = ""
    for index, message in enumerate(messages):
        if message.role == "assistant" and (calls := message.tool_calls):
            open_at[index] = [_CallSlot(call, index, order) for order, call in enumerate(calls)]
            waiting.add(open_at[index], begins=before != "assistant")
        for part in message.parts:
            if type(part) is ToolResult and (slot := waiting.take(part)) is not None:
                slot.result = part
        before = message.role
    out: list[Message] = []
    results: list[Message] = []
    count = 0
    for index, message in enumerate(messages):
        if message.role != "tool":
            out += results
            results = []
        out.append(message)
        open_calls = [slot.call for slot in open_at.get(index, ()) if slot.result is None]
        results += [Message("tool", (_interrupted_result(call),)) for call in open_calls]
        count += len(open_calls)
    return out + results, count


def _interrupted_result(call: ToolCall) -> ToolResult:
    """Return the result that says that a call was interrupted."""
    return ToolResult(call.id, INTERRUPTED, call.name, True)


def separate_results(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns with each result in a message of its own.

    Other parts of such a message go after the results, as the user's.
    """
    out: list[Turn] = []
    user_turns: list[Turn] = []
    for index, message in turns:
        role, parts = message.role, message.parts
        if len(parts) == 1 and not user_turns and type(parts[0]) is (ToolResult if role == "tool" else Text):
            out.append((index, message))  # most messages
            continue
        kinds = {type(part) for part in parts}
        if ToolCall in kinds and role != "assistant":
            ledger.note("call-misplaced", "messages", f"messages[{index}] by {role} calls tools", "left out")
            message = replace(message, parts=_parts_without(message, ToolCall))
        if Reasoning in kinds and role != "assistant":
            ledger.note("reasoning-misplaced", "messages", f"messages[{index}] by {role} thinks", "left out")
            message = replace(message, parts=_parts_without(message, Reasoning))
        if role == "tool":
            others = _parts_without(message, ToolResult)
            if any(map(has_content, others)):
                subject = f"messages[{index}] by tool holds more than results"
                ledger.note("result-beside", "messages", subject, "sent as the user's, after the results")
                user_turns.append((index, Message("user", others)))
                message = replace(message, parts=_parts_of_kind(message, ToolResult))
                if not message.parts:
                    continue
            out.append((index, message))
            continue
        out += user_turns
        user_turns = []
        if ToolResult not in kinds:
            out.append((index, message))
            continue
        subject = f"messages[{index}] by {role} holds results"
        ledger.note("result-beside", "messages", subject, "each in its own message")
        results = [(index, Message("tool", _parts_of_kind(message, ToolResult)))]
        rest = _parts_without(message, ToolResult)
        remaining = [(index, replace(message, parts=rest))] if rest else []
        out += [*remaining, *results] if role == "assistant" else [*results, *remaining]
    return out + user_turns


def _parts_of_kind(message: Message, kind: type) -> tuple[Part, ...]:
    """Return the parts of one type."""
    return tuple(part for part in message.parts if type(part) is kind)


def _parts_without(message: Message, kind: type) -> tuple[Part, ...]:
    """Return the parts of all types but one."""
    return tuple(part for part in message.parts if type(part) is not kind)


def pair_calls(
    turns: Sequence[Turn], tools: Mapping[str, Function] | None, ledger: Ledger, *, orphans: bool
) -> list[Turn]:
    """Return the turns with each call answered, in order, right after its turn.

    Results without a call stay only if `orphans` is true. `tools` are the offered tools by their names; None leaves
    the arguments as they are.
    """
    out: list[_TurnSlots] = []
    waiting = _OpenCalls()
    last: _TurnSlots | None = None
    before = ""
    for index, message in turns:
        if message.role == "tool":
            results = [part for part in message.parts if type(part) is ToolResult]
            for part in results:
                if (rest := _assign_result(part, index, waiting, last, ledger, orphans=orphans)) is not None:
                    out.append(_TurnSlots((index, rest)))
            if not results:
                ledger.note("result-orphan", "messages", f"messages[{index}] holds no result", "left out")
        else:
            slots: list[_CallSlot] = []
            if message.role == "assistant":
                message = _check_calls(message, index, tools, slots, ledger)
                if slots:
                    waiting.add(slots, begins=before != "assistant")
            last = _TurnSlots((index, message), slots)
            out.append(last)
        before = message.role
    return _join_turns(out, ledger)


def _check_calls(
    message: Message, index: int, tools: Mapping[str, Function] | None, slots: list[_CallSlot], ledger: Ledger
) -> Message:
    """Return an assistant turn whose calls have a name and arguments that are JSON, repaired by their `tools`.

    Each call is added to `slots`.
    """
    if ToolCall not in map(type, message.parts):
        return message
    parts: list[Part] = []
    is_changed = False
    for part in message.parts:
        if type(part) is ToolCall:
            if not part.name:
                ledger.note("call-nameless", "messages", f"messages[{index}] calls a tool without a name", "left out")
                is_changed = True
                continue
            call = part if tools is None else _repair_arguments(part, index, tools.get(part.name), ledger)
            is_changed = is_changed or call is not part
            slots.append(_CallSlot(call, index, len(slots)))
            parts.append(call)
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts)) if is_changed else message


def _assign_result(
    result: ToolResult, index: int, waiting: _OpenCalls, last: _TurnSlots | None, ledger: Ledger, *, orphans: bool
) -> Message | None:
    """Assign a result to its call. Return the message of a result that stays without one.

    A result that names no call may be no answer at all: clients hand over messages so.
    """
    slot = waiting.take(result)
    if slot is None and orphans:
        return Message("tool", (result,))
    if slot is None:
        subject = f"messages[{index}] answers {result.id or 'a call'}, which is not open"
        is_left_out = bool(result.id) or not (result.text.strip() or result.media or result.blocks)
        ledger.note("result-orphan", "messages", subject, "left out" if is_left_out else "sent as the user's")
        texts = Text(f"From the result of {result.name or 'a tool'}:"), Text(text_with_error(result))
        return None if is_left_out else Message("user", (*texts, *result.media, *result.blocks))
    if not result.id:
        subject, did = f"messages[{index}] names no call", f"taken for {slot.call.id or slot.call.name}'s"
        ledger.note("result-paired", "messages", subject, did)
    entry = slot.entry
    assert entry is not None
    if entry is not last or slot.order != entry.answered:
        subject = f"messages[{index}] answers messages[{slot.turn}]"
        ledger.note("result-moved", "messages", subject, "put right after it, in the order of its calls")
    entry.answered += 1
    slot.result, slot.at = result, index
    return None


def _join_turns(entries: Sequence[_TurnSlots], ledger: Ledger) -> list[Turn]:
    """Return each turn with the results of its calls after it."""
    out: list[Turn] = []
    for entry in entries:
        out.append(entry.turn)
        for slot in entry.slots:
            result = slot.result
            if result is None:
                subject = f"messages[{slot.turn}]: the call of {slot.call.name} has no result"
                ledger.note("call-unanswered", "messages", subject, f"answered with {INTERRUPTED!r}")
                result = _interrupted_result(slot.call)
            elif result.id != slot.call.id or result.name != slot.call.name:
                result = replace(result, id=slot.call.id, name=slot.call.name)
            out.append((slot.at, Message("tool", (result,))))
    return out


# ── empty turns ──────────────────────────────────────────────────────────────


def drop_unheard(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns without empty messages of others than the model.

    Where the model is to answer such a message, it becomes an ellipsis.
    """
    out: list[Turn] = []
    for position, (index, message) in enumerate(turns):
        if message.role in ("assistant", "tool") or any(map(has_content, message.parts)):
            out.append((index, message))
            continue
        subject, did = f"messages[{index}] by {message.role} is empty", "left out"
        is_open = not out or out[-1][1].role not in ("user", "tool")
        if position + 1 == len(turns) and message.role == "user" and is_open:
            did = "sent as an ellipsis"
            out.append((index, replace(message, parts=(Text("…"),))))
        ledger.note("turn-empty", "messages", subject, did)
    return out


def drop_pending(turns: Sequence[Turn], link: BlockLink, ledger: Ledger) -> list[Turn]:
    """Return the turns without calls of an endpoint's own tools that have no result, where the user's turn is the next.

    The endpoint goes on with such a call only where its turn is the last one, or where results of other calls follow.
    """
    blocks = [part for _, message in turns for part in message.parts if type(part) is Opaque]
    links = {id(part): link(part.data) for part in blocks if isinstance(part.data, dict)}
    answered = {result for _, result in links.values()}
    pending = {block for block, (call, _) in links.items() if call is not None and call not in answered}
    if not pending:
        return list(turns)
    out: list[Turn] = []
    for position, (index, message) in enumerate(turns):
        following = turns[position + 1][1].role if position + 1 < len(turns) else None
        parts = [part for part in message.parts if following != "user" or id(part) not in pending]
        if len(parts) != len(message.parts):
            subject = f"messages[{index}]: a call of the endpoint's own tool has no result"
            ledger.note("call-unanswered", "messages", subject, "left out: the endpoint refuses it before a user turn")
            message = replace(message, parts=tuple(parts))
        out.append((index, message))
    return out


def drop_empty(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns without the assistant's turns that have no content."""
    out: list[Turn] = []
    for index, message in turns:
        if message.role == "assistant" and not any(map(has_content, message.parts)):
            ledger.note("turn-empty", "messages", f"messages[{index}] by assistant is empty", "left out")
        else:
            out.append((index, message))
    return out


def has_content(part: Part) -> bool:
    """Whether a part has content that endpoints accept. Many refuse reasoning alone."""
    if type(part) is Text:
        return bool(part.text) and not part.text.isspace()
    return type(part) is not Reasoning


def move_calls_last(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns with the text after calls moved before them: results must follow the calls at once.

    Parts with an endpoint's seal stay where the endpoint put them, and so does text around reasoning that it signed: an
    endpoint refuses its own turn in another order.
    """
    return [(index, _with_calls_last(message, index, ledger)) for index, message in turns]


def _with_calls_last(message: Message, index: int, ledger: Ledger) -> Message:
    parts = message.parts
    first = next((i for i, p in enumerate(parts) if type(p) is ToolCall and message.role == "assistant"), len(parts))
    movable = [p for p in parts[first:] if type(p) in (Text, Media) and p.seal is None and has_content(p)]
    if not movable or any(type(p) is Reasoning and p.seal is not None for p in parts[first:]):
        return message
    did = "moved before them: results must follow the calls at once"
    ledger.note("calls-last", "messages", f"messages[{index}] has content after its calls", did)
    ids = set(map(id, movable))
    rest = [p for p in parts[first:] if id(p) not in ids]
    return replace(message, parts=(*parts[:first], *movable, *rest))


# ── arguments ─────────────────────────────────────────────────────────────────


def _repair_arguments(call: ToolCall, index: int, tool: Function | None, ledger: Ledger) -> ToolCall:
    """Return a call with valid arguments.

    `index` is that of its message, `tool` its tool where it is offered. Plain text is the input of a custom one.
    """
    subject = f"messages[{index}]: the arguments of {call.name}"
    clean = _without_half_characters(call)
    if clean is not call:
        ledger.note("text-mended", "messages", f"{subject} hold half of a character", "replaced by U+FFFD")
        call = clean
    if call.excluded:  # cnllm does not execute it, and sends the model's text back unchanged
        call = replace(call, arguments=decode_arguments(call.raw)[0])
    if call.arguments is None:
        # few arguments are no object
        from cnllm.protocols.client_tools import is_bare_input
        from cnllm.tools.arguments import unwrap_object

        inner = unwrap_object(call.raw)
        if inner is None and tool is not None and tool.custom is not None and is_bare_input(call.raw):
            arguments, raw = custom_arguments(call.raw)
            return replace(call, arguments=arguments, raw=raw, problem=None)
        if inner is None:
            ledger.note("arguments-emptied", "messages", f"{subject} are not a JSON object: {call.raw[:80]}", "{}")
            return replace(call, arguments={}, raw="{}", problem=None)
        ledger.note("arguments-decoded", "messages", f"{subject} are JSON inside a JSON string", "decoded")
        call = replace(call, arguments=inner, raw="", problem=None)
    elif call.raw and not _is_object(call.raw):
        call = replace(call, raw="")  # the decoded arguments count
    assert call.arguments is not None
    if tool is None or not any(map(may_be_encoded, call.arguments.values())):
        return call
    from cnllm.tools.arguments import decode_values  # few arguments may be JSON inside a JSON string

    decoded = decode_values(call.arguments, tool.parameters)
    if decoded is call.arguments:
        return call
    names = [name for name, value in call.arguments.items() if decoded[name] is not value]
    did = "decoded, because its schema requires arrays or objects"
    ledger.note("arguments-decoded", "tools", f"{subject}: {', '.join(names)} is JSON inside a JSON string", did)
    return replace(call, arguments=decoded, raw="")


def _without_half_characters(call: ToolCall) -> ToolCall:
    """Return the call without halves of surrogate pairs, which UTF-8 cannot hold."""
    raw = str(replace_surrogates(call.raw))
    if raw != call.raw:
        return replace(call, raw=raw, arguments=decode_arguments(raw)[0])
    if call.arguments is None or (raw and _is_object(raw)):
        return call
    arguments = replace_surrogates(call.arguments)
    return replace(call, arguments=arguments) if type(arguments) is dict and arguments != call.arguments else call


def _is_object(raw: str) -> bool:
    """Whether a text is a JSON object, or null."""
    try:
        _shallow(raw)
    except _DECODE_ERRORS:
        return raw.strip() == "null"
    return True
