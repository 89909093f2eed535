"""Read a whole body of the usual form directly, without the events and filters that only unusual ones need.

Most whole replies are one message with text, reasoning in a field of its own and complete calls. They can be read at
a third of the cost. Whatever needs a decision (markup, tags, a limit, a repeated id, an error) is left to
`StreamParser`, which gives the same reply for the usual ones, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from cnllm.engine.decode.meter import limited_output, meter_of
from cnllm.engine.decode.text_tool_calls import Then, marker_test
from cnllm.engine.decode.tool_calls import markup_in_names
from cnllm.engine.encode.plan import Plan
from cnllm.protocols import UsualMessage, wire
from cnllm.registry.flags import Flags
from cnllm.types import Finish, Message, Part, Reasoning, Reply, Text, ToolCall
from cnllm.types.lenient_json import decode_arguments

__all__ = ["read_usual_reply"]

_CHANGED_CALLS = ("ids-", "call", "result-", "tools-as-text")
"""The beginnings of the codes of notes on calls that were sent in another form, or not at all."""

_decode = msgspec.json.Decoder().decode


class _UsualFlags:
    """The flags of a model for its usual replies, looked up once.

    `may_hold_calls` is the quick test of a text for markup of calls; None where none is looked for.
    """

    __slots__ = ("finish", "may_hold_calls", "meter", "read", "tags")

    def __init__(self, protocol: str, flags: Flags, then: Then | None, has_functions: bool) -> None:
        reasoning = flags.reasoning
        usual_reader = wire(protocol).usual_reader
        is_open = reasoning.tags_at == "start-open" or "" in (reasoning.tags or ())[::2]
        self.read = None if usual_reader is None or is_open else usual_reader(flags)  # an open text begins as reasoning
        self.tags = tuple(filter(None, reasoning.answer_tags or ()))
        self.finish = flags.finish or {}
        self.meter = meter_of(flags)
        self.may_hold_calls = marker_test(flags, then, has_functions=has_functions)


_usual_flags = lru_cache(maxsize=256)(_UsualFlags)


def read_usual_reply(plan: Plan, status: int, body: bytes) -> Reply | None:
    """Return the reply of a body in the usual form; None where the body has another one, or anything is to be noted."""
    has_functions = None in [tool.definition for tool in plan.callable]
    rules = _usual_flags(plan.model.protocol, plan.flags, plan.text_calls, has_functions)
    if rules.read is None or status >= 300 or len(body) > plan.limits.reply:
        return None
    if plan.answer is not None or plan.prompted or plan.stops or plan.search is not None:
        return None
    try:
        raw = _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    message = rules.read(raw) if type(raw) is dict else None
    if message is None or not _is_plain(message, rules):
        return None
    calls = _read_calls(message, plan)
    finish = None if calls is None else _finish(message, rules.finish, plan, has_calls=bool(calls))
    if calls is None or finish is None:
        return None
    if not rules.meter.knows_time(message.created):  # the head may have it, or a note says so
        return None
    parts: list[Part] = []
    if message.reasoning:
        parts.append(Reasoning(message.reasoning))
    if message.text:
        parts.append(Text(message.text))
    reply = Reply(
        text=message.text,
        reasoning=message.reasoning,
        tool_calls=calls,
        finish=finish,
        raw_finish=message.finish,
        usage=message.usage,
        cost=None,
        model=message.model,
        id=message.id,
        notes=list(plan.notes),
        message=Message("assistant", (*parts, *calls), by=plan.model.name),
        incomplete=[],
        raw=raw,
        registry=plan.model.data_version,
        extra=message.extra,
    )
    paid: dict[str, int | None] = {}
    rules.meter.count(raw, paid)
    return msgspec.structs.replace(reply, cost=rules.meter.cost(reply, plan, message.created, paid))


def _is_plain(message: UsualMessage, rules: _UsualFlags) -> bool:
    """Whether a message has an answer, and no tag or markup in its texts."""
    text, thought = message.text, message.reasoning
    if not message.calls and not text.strip():
        return False
    for tag in rules.tags:
        if tag in text:
            return False
    may_hold_calls = rules.may_hold_calls
    return may_hold_calls is None or not (may_hold_calls(text) or may_hold_calls(thought))


def _read_calls(message: UsualMessage, plan: Plan) -> list[ToolCall] | None:
    """Return the calls; None where one has to be changed, or may not be executed, or where they are not as wanted."""
    rules = plan.call_rules
    calls: list[ToolCall] = []
    if rules is not None and rules.ignored_wishes([name for _, name, _ in message.calls]):
        return None
    if not message.calls:
        return calls
    ids = {id for id, _, _ in message.calls}
    if len(ids) < len(message.calls) or any(_may_repeat(id, plan) for id in ids):
        return None
    for id, name, written in message.calls:
        arguments, problem = decode_arguments(written)
        if problem is not None or name in plan.renamed or name in plan.strict_forms:
            return None
        if ("<" in name or "<" in written or "\\u" in written) and markup_in_names(name, arguments):
            return None
        if rules is not None and rules.exclusion(name) is not None:
            return None
        calls.append(ToolCall(id, name, arguments, written))
    return calls


def _may_repeat(id: str, plan: Plan) -> bool:
    """Whether the conversation may have a call of this id. A search of what was sent costs less than a look at each.

    An id that JSON writes with escapes may be there, and any one where calls were sent in another form, or not at all.
    """
    if not (id.isascii() and id.isprintable()) or '"' in id or "\\" in id:
        return True
    if plan.content.find(b'"%b"' % id.encode()) >= 0:
        return True
    return any(note.code.startswith(_CHANGED_CALLS) for note in plan.notes)


def _finish(message: UsualMessage, words: Mapping[str, str], plan: Plan, *, has_calls: bool) -> Finish | None:
    """Return the finish of a message; None where the endpoint's word and the message do not agree."""
    reported = words.get(message.finish)
    finish: Finish = "tool_calls" if has_calls else "stop"
    if reported != finish and not (reported == "stop" and has_calls and "tool_calls" not in words.values()):
        return None
    limit = plan.max_output
    output = limited_output(message.usage, plan.flags, thought=bool(message.reasoning))
    return None if limit and output is not None and output >= limit else finish
