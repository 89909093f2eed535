"""Read a whole body of the usual form directly, without the events and filters that only unusual ones need.

Most whole replies are one message with text, reasoning in a field of its own and complete calls. They can be read at
a third of the cost. Whatever needs a decision (markup, tags, a limit, a repeated id, an error) is left to
`StreamParser`, which gives the same reply for the usual ones, too.
"""

from __future__ import annotations

import msgspec

from cnllm.engine.decode.cost import cost_of
from cnllm.engine.decode.final_notes import price_note
from cnllm.engine.decode.text_tool_calls import has_marker
from cnllm.engine.decode.tool_calls import markup_in_names
from cnllm.engine.encode.plan import Plan
from cnllm.protocols import UsualMessage, wire
from cnllm.types import Finish, Message, Part, Reasoning, Reply, Text, ToolCall, ToolResult
from cnllm.types.arguments import decode_arguments

__all__ = ["read_usual_reply"]

_decode = msgspec.json.Decoder().decode


def read_usual_reply(plan: Plan, status: int, body: bytes) -> Reply | None:
    """Return the reply of a body in the usual form; None where the body has another one, or anything is to be noted."""
    read_message = wire(plan.model.protocol).read_usual
    if read_message is None or status >= 300 or len(body) > plan.limits.reply:
        return None
    if plan.answer is not None or plan.prompted or plan.stops:
        return None
    try:
        raw = _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    flags = plan.flags
    message = read_message(raw, flags) if type(raw) is dict else None
    if message is None or not _is_plain(message, plan):
        return None
    calls = _read_calls(message, plan)
    finish = None if calls is None else _finish(message, bool(calls), plan)
    if calls is None or finish is None:
        return None
    price = flags.price
    has_hours = price is not None and price.off_peak is not None
    if price and has_hours and price_note(plan.model, price, message.usage, message.created) is not None:
        return None
    parts: list[Part] = []
    if message.reasoning:
        parts.append(Reasoning(message.reasoning))
    if message.text:
        parts.append(Text(message.text))
    return Reply(
        text=message.text,
        reasoning=message.reasoning,
        tool_calls=calls,
        finish=finish,
        raw_finish=message.finish,
        usage=message.usage,
        cost=cost_of(message.usage, price, message.created),
        model=message.model,
        id=message.id,
        notes=list(plan.notes),
        message=Message("assistant", (*parts, *calls), by=plan.model.name),
        incomplete=[],
        raw=raw,
        registry=plan.model.data_version,
    )


def _is_plain(message: UsualMessage, plan: Plan) -> bool:
    """Whether a message has an answer, and no tag or markup in its texts."""
    text, thought = message.text, message.reasoning
    if not message.calls and not text.strip():
        return False
    reasoning = plan.flags.reasoning
    if reasoning is not None and text:
        if reasoning.tags_at == "start-open":
            return False
        for tag in (*(reasoning.tags or ()), *(reasoning.answer_tags or ())):
            if tag in text:
                return False
    return not has_marker(plan.flags, plan.callable, plan.text_calls, (text, thought))


def _read_calls(message: UsualMessage, plan: Plan) -> list[ToolCall] | None:
    """Return the calls; None where one has to be changed, or may not be executed, or where they are not as wanted."""
    rules = plan.call_rules
    if not message.calls:
        return None if rules is not None and rules.ignored_wishes([]) else []
    calls: list[ToolCall] = []
    ids = {id for id, _, _ in message.calls}
    if len(ids) < len(message.calls):
        return None
    for turn in plan.messages:
        for part in turn.parts:
            if (type(part) is ToolCall or type(part) is ToolResult) and part.id in ids:
                return None
    for id, name, written in message.calls:
        arguments, problem = decode_arguments(written)
        if problem is not None or name in plan.renamed or name in plan.strict_forms or markup_in_names(name, arguments):
            return None
        if rules is not None and rules.exclusion(name) is not None:
            return None
        calls.append(ToolCall(id, name, arguments, written))
    return None if rules is not None and rules.ignored_wishes([call.name for call in calls]) else calls


def _finish(message: UsualMessage, has_calls: bool, plan: Plan) -> Finish | None:
    """Return the finish of a message; None where the endpoint's word and the message do not agree."""
    words = plan.flags.finish or {}
    reported = words.get(message.finish)
    finish: Finish = "tool_calls" if has_calls else "stop"
    if reported != finish and not (reported == "stop" and has_calls and "tool_calls" not in words.values()):
        return None
    output = message.usage.output
    return None if plan.max_output and output is not None and output >= plan.max_output else finish
