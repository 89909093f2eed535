"""Check messages as an endpoint does: roles, order, content, calls and their results, reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

from cnllm.jsonpath import get
from cnllm.protocols import server_codec
from cnllm.registry.flags import Patch, ReasoningFlags
from cnllm.registry.reasoning_form import BOTH, form, is_replayed, place, text_place
from cnllm.schemas.patterns import matches_whole
from cnllm.simulator.chat_request import CONTENT_SUBSTITUTES
from cnllm.simulator.codec import is_genuine_seal
from cnllm.simulator.request import Form, ParsedMessage
from cnllm.simulator.violations import RequestContext, Violation

__all__ = ["message_violations"]

_ROLES = ("system", "user", "assistant", "tool")
_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")


def message_violations(context: RequestContext) -> Iterator[Violation]:
    """Yield all violations in the messages."""
    checks = (_roles, _order, _results, _result_names, _calls, _content, _keys, _reasoning, _seals)
    return chain.from_iterable(check(context) for check in checks)


def _seals(context: RequestContext) -> Iterator[Violation]:
    """Yield seals that this endpoint did not issue: another's signature, or a changed one."""
    missing = context.flags.reasoning.if_missing
    substitute = missing.set if isinstance(missing, Patch) else None
    for index, turn in enumerate(context.request.turns):
        if not all(data == substitute or is_genuine_seal(context.model, data) for data in turn.seals):
            path = f"messages[{index}]"
            yield Violation("reasoning-sent", f"{path}: invalid signature in a block of reasoning", path, index=index)


def _roles(context: RequestContext) -> Iterator[Violation]:
    rules = context.flags.messages
    roles = [r for r in _ROLES if r != "system" or rules.system != "user"]
    roles += ["developer"] if rules.developer else []
    for index, turn in enumerate(context.request.turns):
        if turn.role not in roles:
            message = f"unknown role {turn.role}, expected one of {', '.join(roles)}"
            yield Violation("role", message, f"messages[{index}].role", turn.role, str(turn.role), index)


def _order(context: RequestContext) -> Iterator[Violation]:
    rules = context.flags.messages
    roles = [turn.role for turn in context.request.turns]
    for index, (previous, role) in enumerate(pairwise([None, *roles])):
        place = f"messages[{index}]"
        if rules.system == "first" and role in ("system", "developer") and index:
            message = "A system message must be the first message."
            yield Violation("system-place", message, place, role=role, index=index)
        if rules.consecutive_roles == "join" and role == previous and role in ("user", "assistant"):
            message = "Roles user and assistant must alternate."
            yield Violation("alternation", message, place, role=role, index=index)
        # Recordings show endpoints of these models that take it.
        if rules.after_results and context.strict and role == "user" and previous == "tool":
            message = "Unexpected role 'user' after role 'tool'"
            yield Violation("alternation", message, place, role=role, index=index)
    start = next((index for index, role in enumerate(roles) if role not in ("system", "developer")), None)
    if rules.first_user and start is not None and roles[start] != "user":
        message = "The first message after system must be the user's."
        yield Violation("alternation", message, "messages", role=str(roles[start]), index=start)
    if rules.last_user and roles[-1:] == ["assistant"]:
        message = "This model does not support prefill. The conversation must end with a user message."
        yield Violation("alternation", message, "messages", role="assistant", index=len(roles) - 1)


def _results(context: RequestContext) -> Iterator[Violation]:
    """Yield calls without a result right after their turn, and results without a call."""
    pending: list[Any] = []
    for index, turn in enumerate([*context.request.turns, None]):
        if turn is not None and turn.role == "tool":
            if turn.result_of not in pending:
                message = f"Tool result {turn.result_of} does not answer a call of the turn before it."
                yield Violation("results", message, param=f"messages[{index}]", value=turn.result_of, index=index)
            else:
                pending.remove(turn.result_of)
            continue
        if pending:
            message = (
                "An assistant message with tool_calls must be followed by tool messages responding to each "
                f"tool_call_id. Not answered: {', '.join(map(str, pending))}"
            )
            yield Violation("results", message, param=f"messages[{index}]", value=pending[0], index=index)
        pending = [c.id for c in turn.calls or ()] if turn is not None else []


def _result_names(context: RequestContext) -> Iterator[Violation]:
    """Yield results without the tool's name if the flag requires it, or with one if the flag forbids it.

    Recordings show endpoints that accept both, so that only a strict one refuses it.
    """
    required = context.flags.tools.result_name
    if required is None or not context.strict or not server_codec(context.model.protocol).result_names:
        return
    for index, turn in enumerate(context.request.turns):
        name = turn.wire.get("name") if turn.role == "tool" else None
        path = f"messages[{index}].name"
        if turn.role == "tool" and required and not (isinstance(name, str) and name):
            yield Violation("param", f"{path} is missing: a tool result carries the tool's name.", path, index=index)
        elif name is not None and not required:
            yield Violation("param", f"{path}: a tool result has no name here.", path, value=name, index=index)


def _calls(context: RequestContext) -> Iterator[Violation]:
    rules = context.flags.tools
    must_be_object = rules.arguments == "object"
    may_be_object = must_be_object or context.flags.simulator.object_arguments is True
    for index, turn in enumerate(context.request.turns):
        if turn.calls == ():
            path = f"messages[{index}].tool_calls"
            yield Violation("empty-tools", f"[] is too short - '{path}'", path, index=index)
        for number, call in enumerate(turn.calls or ()):
            path = f"messages[{index}].tool_calls[{number}]"
            if not isinstance(call.id, str) or not call.id or not isinstance(call.name, str) or not call.name:
                yield Violation("param", f"{path} has no id or no name.", path, index=index)
            elif rules.call_id_pattern and not matches_whole(rules.call_id_pattern, call.id):
                message = f"{path}.id is {call.id} but must match {rules.call_id_pattern}"
                yield Violation("results", message, f"{path}.id", call.id, index=index)
            elif rules.name_pattern and not matches_whole(rules.name_pattern, call.name):
                message = f"{path}: the name {call.name} must match {rules.name_pattern}"
                yield Violation("param", message, f"{path}.function.name", call.name, index=index)
            if must_be_object and not isinstance(call.arguments, dict):
                message = f"{path}: the arguments must be an object, not a text."
                yield Violation("arguments", message, f"{path}.function.arguments", index=index)
            elif not _is_object(call.arguments, may_be_object=may_be_object):
                message = f"{path}.function.arguments is not a JSON object."
                value = call.id if isinstance(call.id, str) else None
                yield Violation("arguments", message, f"{path}.function.arguments", value, index=index)


def _is_object(arguments: Any, *, may_be_object: bool) -> bool:
    if isinstance(arguments, dict):
        return may_be_object
    if not isinstance(arguments, str):
        return False
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _content(context: RequestContext) -> Iterator[Violation]:
    for index, turn in enumerate(context.request.turns):
        if (problem := _content_problem(context, turn)) is not None:
            path = f"messages[{index}].content"
            yield Violation("content", f"{path}: {problem}", param=path, role=str(turn.role), index=index)


_BESIDE_CALLS: dict[str | None, tuple[tuple[Form, ...], str | None]] = {
    "space": (("absent", "null", "empty"), "must not be empty"),
    "omit": (("null", "empty"), "must be left out beside tool calls"),
    "empty": (("null",), "must be a string"),
}
"""By `messages.empty`: the forms of content that an endpoint refuses beside calls, and its words."""


def _content_problem(context: RequestContext, turn: ParsedMessage) -> str | None:
    """Return why the content of a message is not accepted, or None if it is."""
    rules = context.flags.messages
    strict = "content" in context.worded  # an endpoint with a text for this error refuses empty text too
    if turn.form == "other":
        return "must be a string or a list of parts"
    if turn.form == "parts" and not turn.media and rules.content == "string":
        return "must be a string"
    if strict and turn.blank:
        return "text content is empty"
    unsupported = [m for m in turn.media if m != "other" and not _reads(context, m)]
    if unsupported:
        return f"this model does not read {unsupported[0]}"
    if turn.role == "tool" and turn.media and not context.flags.tools.result_media:
        return "only text may stand in a tool message"
    if turn.role == "assistant" and turn.calls:
        forms, problem = _BESIDE_CALLS.get(rules.empty, ((), None))
        return problem if turn.form in forms else None
    if turn.form in ("null", "absent") and not turn.has_other_content:
        return "must not be null"
    if strict and turn.form == "empty" and turn.role in ("user", "assistant"):
        return "must not be empty"
    return None


def _reads(context: RequestContext, kind: str) -> bool:
    """Whether the model reads a kind of media, or the endpoint reads files for it."""
    reads, files = context.flags.input, context.flags.messages.files
    has_file_reader = files == "all" or (files == "vision" and (reads is None or "image" in reads))
    return reads is None or kind in reads or (kind == "file" and has_file_reader)


def _keys(context: RequestContext) -> Iterator[Violation]:
    """Yield unknown keys. An endpoint that refuses reasoning by the name of its field checks every name."""
    if not context.refuses("reasoning-sent"):
        return
    messages, reasoning = context.flags.messages, context.flags.reasoning
    declared = [path.partition(".")[0] for path in (*(messages.fields or ()), *(reasoning.fields or ()))]
    allowed = {*_KEYS, *CONTENT_SUBSTITUTES, *declared}
    for index, turn in enumerate(context.request.turns):
        for key in set(turn.keys) - allowed:
            path = f"messages[{index}].{key}"
            yield Violation("param", f"{path}: property '{key}' is unsupported", param=path, index=index)


def _reasoning(context: RequestContext) -> Iterator[Violation]:
    rules = context.flags.reasoning
    turns = context.request.turns
    if _demands_reasoning(context, rules) and context.thinks:
        # If a missing earlier reasoning turns reasoning off, only the turns of the last answer are checked.
        users = [i for i, turn in enumerate(turns) if turn.role == "user"]
        recent_only = rules.if_missing == "reasoning-off" and "reasoning-missing" not in context.worded
        start = users[-1] if recent_only and users else -1
        for index in [i for i in _turns_with_reasoning(context, rules) if i > start]:
            if not _has_reasoning(turns[index], rules):
                message = f"The reasoning of messages[{index}] must be passed back."
                yield Violation("reasoning-missing", message, param=f"messages[{index}]", role="assistant", index=index)
    if context.refuses("reasoning-sent"):
        fields = _forbidden_fields(context, rules)
        for index, turn in enumerate(turns):
            field = next((f for f in fields if get(turn.wire, f) is not None), None)
            if turn.role == "assistant" and field is not None:
                message = f"messages[{index}].{field} must not be sent."
                yield Violation("reasoning-sent", message, param=f"messages[{index}].{field}", index=index)


def _demands_reasoning(context: RequestContext, rules: ReasoningFlags) -> bool:
    """Whether the endpoint refuses a message without its reasoning. Not if the registry allows to omit it."""
    return "reasoning-missing" in context.worded or (context.strict and rules.if_missing not in (None, "omit"))


def _forbidden_fields(context: RequestContext, rules: ReasoningFlags) -> list[str]:
    """Return the fields of reasoning, except the one in which it is sent back; none where replay is unknown."""
    if rules.replay == "unknown":
        return []
    if not server_codec(context.model.protocol).dialects:
        return ["reasoning"] if rules.replay == "never" else []
    takes_fields = is_replayed(rules) and form(rules) in ("field", "details", BOTH, "seal")
    return [f for f in rules.fields or [] if not takes_fields or f not in (place(rules), text_place(rules))]


def _turns_with_reasoning(context: RequestContext, rules: ReasoningFlags) -> list[int]:
    """Return the indexes of messages that must carry their reasoning.

    Under `always` a message with calls must carry it in any case, and the others if any of them does: a history without
    reasoning may come from a model that does not reason.
    """
    turns = context.request.turns
    assistant = [i for i, t in enumerate(turns) if t.role == "assistant"]
    with_calls = [i for i in assistant if turns[i].calls]
    match rules.replay:
        case "tool-turns":
            return with_calls
        case "since-user":
            user = max((i for i, t in enumerate(turns) if t.role == "user"), default=-1)
            return [i for i in assistant if i > user]
        case "always" if not server_codec(context.model.protocol).dialects:
            return with_calls  # messages of text alone have no reasoning to send back
        case "always":
            return assistant if any(_has_reasoning(turns[i], rules) for i in assistant) else with_calls
        case _:
            return []


def _has_part(turn: ParsedMessage, rules: ReasoningFlags) -> bool:
    """Whether a message has a part of reasoning, with the form in which the endpoint writes it."""
    content = turn.wire.get("content")
    parts = [p for p in content if isinstance(p, dict)] if isinstance(content, list) else []
    values = [part.get(rules.part) for part in parts if rules.part is not None and part.get("type") == rules.part]
    return bool(values) and all(isinstance(value, str if rules.part_form == "text" else list) for value in values)


def _has_reasoning(turn: ParsedMessage, rules: ReasoningFlags) -> bool:
    """Whether a message carries its reasoning, in the form that the endpoint requires."""
    path = text_place(rules)
    value = get(turn.wire, path) if path else None
    match form(rules):
        case "tags":
            return rules.tags is not None and len(rules.tags) > 1 and rules.tags[1] in turn.text
        case "content-parts":
            return bool(turn.seals) or _has_part(turn, rules)
        case "details":
            return isinstance(value, list) and bool(value)
        case "seal":
            return bool(turn.seals)
        case _:
            return value is not None and (value != "" or rules.if_missing != "space")
