"""What an endpoint refuses about the messages: roles, order, content, calls and their results, reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cnllm.protocols import speaks
from cnllm.registry.flags import Patch, Reasoning
from cnllm.registry.reasoning_form import form, place
from cnllm.schemas import whole_matcher
from cnllm.simulator.jsonpath import at
from cnllm.simulator.read import CHAT, SEALS
from cnllm.simulator.request import Turn
from cnllm.simulator.violations import Case, Wrong
from cnllm.simulator.write import genuine

__all__ = ["wrongs"]

_ROLES = ("system", "user", "assistant", "tool")
_INSTEAD = (
    "refusal",
    "audio",
    "function_call",
)  # an assistant turn may have one of these in place of content
_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")
_LEFT_TO_REASONING = {"reasoning", "reasoning_content", "reasoning_details"}  # refused, or not, by what is said of it


def wrongs(case: Case) -> Iterator[Wrong]:
    """All that is wrong with the messages."""
    yield from _roles(case)
    yield from _order(case)
    yield from _results(case)
    yield from _result_names(case)
    yield from _calls(case)
    yield from _content(case)
    yield from _keys(case)
    yield from _reasoning(case)
    yield from _seals(case)


def _seals(case: Case) -> Iterator[Wrong]:
    """What this endpoint never gave out, it refuses: another's signature, or one that was changed."""
    missing = case.flags.reasoning.if_missing if case.flags.reasoning is not None else None
    instead = missing.set if isinstance(missing, Patch) else None
    for index, turn in enumerate(case.asked.turns if case.model.protocol != CHAT else ()):
        if not all(data == instead or genuine(case.model, data) for data in turn.wire.get(SEALS, ())):
            where = f"messages[{index}]"
            message = f"{where}: invalid signature in a block of reasoning"
            yield Wrong("reasoning-sent", message, param=where, index=index)


def _roles(case: Case) -> Iterator[Wrong]:
    rules = case.flags.messages
    taken = [r for r in _ROLES if r != "system" or rules is None or rules.system != "user"]
    if rules is not None and rules.developer:
        taken.append("developer")
    for index, turn in enumerate(case.asked.turns):
        if turn.role not in taken:
            where = f"messages[{index}].role"
            message = f"unknown role {turn.role}, expected one of {', '.join(taken)}"
            yield Wrong("role", message, param=where, value=turn.role, role=str(turn.role), index=index)


def _order(case: Case) -> Iterator[Wrong]:
    rules = case.flags.messages
    if rules is None:
        return
    turns = case.asked.turns
    for index, turn in enumerate(turns):
        if rules.system == "first" and turn.role in ("system", "developer") and index:
            message = "A system message must be the first message."
            yield Wrong("system-place", message, param=f"messages[{index}]", role=turn.role, index=index)
        if (
            rules.consecutive_roles == "join"
            and index
            and turn.role == turns[index - 1].role
            and turn.role in ("user", "assistant")
        ):
            message = "Roles user and assistant must alternate."
            yield Wrong("alternation", message, param=f"messages[{index}]", role=turn.role, index=index)
    start = next((t for t in turns if t.role not in ("system", "developer")), None)
    if rules.first_user and start is not None and start.role != "user":
        message = "The first message after system must be the user's."
        yield Wrong("alternation", message, param="messages", role=str(start.role), index=turns.index(start))


def _results(case: Case) -> Iterator[Wrong]:
    """Each call is answered right after its turn, and nothing is answered that was not called."""
    pending: list[Any] = []
    for index, turn in enumerate(case.asked.turns):
        if turn.role == "tool":
            if turn.result_of not in pending:
                message = f"Tool result {turn.result_of} does not answer a call of the turn before it."
                yield Wrong("results", message, param=f"messages[{index}]", value=turn.result_of, index=index)
            else:
                pending.remove(turn.result_of)
            continue
        if pending:
            yield _unanswered(pending, index)
        pending = [c.id for c in turn.calls or ()]
    if pending:
        yield _unanswered(pending, len(case.asked.turns))


def _result_names(case: Case) -> Iterator[Wrong]:
    """A result without the tool's name where the flag demands it, or with one where the flag denies it.

    Recordings show endpoints that take both, so that a strict one alone minds.
    """
    wanted = case.flags.tools.result_name if case.flags.tools is not None else None
    if wanted is None or not case.strict or not speaks(case.model.protocol).result_names:
        return
    for index, turn in enumerate(case.asked.turns):
        name = turn.wire.get("name") if turn.role == "tool" else None
        where = f"messages[{index}].name"
        if turn.role == "tool" and wanted and not (isinstance(name, str) and name):
            yield Wrong("param", f"{where} is missing: a tool result carries the tool's name.", where, index=index)
        elif name is not None and not wanted:
            yield Wrong("param", f"{where}: a tool result has no name here.", where, value=name, index=index)


def _unanswered(pending: list[Any], index: int) -> Wrong:
    message = (
        "An assistant message with tool_calls must be followed by tool messages responding to each "
        f"tool_call_id. Not answered: {', '.join(map(str, pending))}"
    )
    return Wrong("results", message, param=f"messages[{index}]", value=pending[0], index=index)


def _calls(case: Case) -> Iterator[Wrong]:
    rules = case.flags.tools
    objects = case.flags.simulator is not None and case.flags.simulator.object_arguments is True
    for index, turn in enumerate(case.asked.turns):
        if turn.calls == ():
            where = f"messages[{index}].tool_calls"
            yield Wrong("empty-tools", f"[] is too short - '{where}'", param=where, index=index)
        for n, call in enumerate(turn.calls or ()):
            where = f"messages[{index}].tool_calls[{n}]"
            if not isinstance(call.id, str) or not call.id or not isinstance(call.name, str) or not call.name:
                yield Wrong("param", f"{where} has no id or no name.", param=where, index=index)
            elif rules is not None and rules.call_id_pattern and not _fits(rules.call_id_pattern, call.id):
                message = f"{where}.id is {call.id} but must match {rules.call_id_pattern}"
                yield Wrong("results", message, param=f"{where}.id", value=call.id, index=index)
            if not _object(call.arguments, objects):
                message = f"{where}.function.arguments is not a JSON object."
                value = call.id if isinstance(call.id, str) else None
                yield Wrong("arguments", message, param=f"{where}.function.arguments", value=value, index=index)


def _fits(pattern: str, id: str) -> bool:
    matches = whole_matcher(pattern)
    return matches is None or matches(id)


def _object(arguments: Any, may_be_object: bool) -> bool:
    if isinstance(arguments, dict):
        return may_be_object
    if not isinstance(arguments, str):
        return False
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _content(case: Case) -> Iterator[Wrong]:
    for index, turn in enumerate(case.asked.turns):
        said = _content_wrong(case, turn)
        if said is not None:
            where = f"messages[{index}].content"
            yield Wrong("content", f"{where}: {said}", param=where, role=str(turn.role), index=index)


def _content_wrong(case: Case, turn: Turn) -> str | None:
    """Why the content of a turn is not taken, None where it is."""
    rules = case.flags.messages
    strict = "content" in case.worded  # an endpoint with words for it minds empty text too
    if turn.form == "other":
        return "must be a string or a list of parts"
    if turn.form == "parts" and not turn.media and rules is not None and rules.content == "string":
        return "must be a string"
    if strict and turn.blank and (turn.form == "parts" or case.model.protocol != CHAT):
        return "text content is empty"
    foreign = [m for m in turn.media if m != "other" and case.flags.input is not None and m not in case.flags.input]
    if foreign:
        return f"this model does not read {foreign[0]}"
    takes_media = case.flags.tools is not None and case.flags.tools.result_media
    if turn.role == "tool" and turn.media and not takes_media:
        return "only text may stand in a tool message"
    if turn.role == "assistant" and turn.calls:
        return _beside_calls(turn, rules.empty if rules is not None else None)
    if turn.form == "absent" and "reasoning" in turn.wire and case.model.protocol != CHAT:
        return None
    if turn.form in ("null", "absent") and not any(k in turn.wire for k in _INSTEAD):
        return "must not be null"
    if strict and turn.form == "empty" and turn.role in ("user", "assistant"):
        return "must not be empty"
    return None


def _beside_calls(turn: Turn, empty: str | None) -> str | None:
    if turn.form in ("text", "parts"):
        return None
    if empty == "space":
        return "must not be empty"
    if empty == "omit" and turn.form != "absent":
        return "must be left out beside tool calls"
    if empty == "empty" and turn.form == "null":
        return "must be a string"
    return None


def _keys(case: Case) -> Iterator[Wrong]:
    """Keys that no one knows. An endpoint that refuses reasoning by the name of its field checks every name."""
    if not case.refuses("reasoning-sent") or case.model.protocol != CHAT:
        return
    rules = case.flags.messages
    reasoning = case.flags.reasoning
    known = {*_KEYS, *_INSTEAD, *((rules and rules.fields) or ()), *((reasoning and reasoning.fields) or ())}
    for index, turn in enumerate(case.asked.turns):
        for key in turn.wire.keys() - known - _LEFT_TO_REASONING:
            where = f"messages[{index}].{key}"
            yield Wrong("param", f"{where}: property '{key}' is unsupported", param=where, index=index)


def _reasoning(case: Case) -> Iterator[Wrong]:
    rules = case.flags.reasoning
    if rules is None:
        return
    turns = case.asked.turns
    if _demands_reasoning(case, rules) and case.thinks:
        # Where reasoning is given up for want of an earlier turn's, the turns of the last answer alone are meant.
        users = [i for i, turn in enumerate(turns) if turn.role == "user"]
        recent = rules.if_missing == "reasoning-off" and "reasoning-missing" not in case.worded
        start = users[-1] if recent and users else -1
        for index in [i for i in _must_carry(case, rules) if i > start]:
            if not _carries(turns[index], rules):
                message = f"The reasoning of messages[{index}] must be passed back."
                yield Wrong("reasoning-missing", message, param=f"messages[{index}]", role="assistant", index=index)
    if case.refuses("reasoning-sent"):
        forbidden = _forbidden(case, rules)
        for index, turn in enumerate(turns):
            found = next((f for f in forbidden if at(turn.wire, f) is not None), None)
            if turn.role == "assistant" and found is not None:
                message = f"messages[{index}].{found} must not be sent."
                yield Wrong("reasoning-sent", message, param=f"messages[{index}].{found}", index=index)


def _demands_reasoning(case: Case, rules: Reasoning) -> bool:
    """Does the endpoint refuse a turn without its reasoning? Not where the registry says that it may be left out."""
    return "reasoning-missing" in case.worded or (case.strict and rules.if_missing not in (None, "omit"))


def _forbidden(case: Case, rules: Reasoning) -> list[str]:
    """The fields that may hold reasoning and are not the one in which it goes back."""
    if case.model.protocol != CHAT:
        return ["reasoning"] if rules.replay == "never" else []
    goes_back = rules.replay not in (None, "never") and form(rules) in ("field", "details", "seal")
    return [f for f in rules.fields or [] if not goes_back or f != place(rules)]


def _must_carry(case: Case, rules: Reasoning) -> list[int]:
    """Which turns must carry their reasoning.

    Under `always` a turn with calls must in any case, and the others once any of them does: a history without
    any may have come from a model that does not reason.
    """
    turns = case.asked.turns
    spoken = [i for i, t in enumerate(turns) if t.role == "assistant"]
    calling = [i for i in spoken if turns[i].calls]
    match rules.replay:
        case "tool-turns":
            return calling
        case "since-user":
            user = max((i for i, t in enumerate(turns) if t.role == "user"), default=-1)
            return [i for i in spoken if i > user]
        case "always" if case.model.protocol != CHAT:
            return calling  # of text alone it has none to ask for
        case "always":
            return spoken if any(_carries(turns[i], rules) for i in spoken) else calling
        case _:
            return []


def _carries(turn: Turn, rules: Reasoning) -> bool:
    """Does a turn bring its reasoning back, in the form the endpoint wants?"""
    key = place(rules)
    found = at(turn.wire, key) if key else None
    match form(rules):
        case "tags":
            return bool(rules.tags) and rules.tags is not None and rules.tags[0] in turn.text
        case "content-parts":
            return "other" in turn.media or bool(turn.wire.get(SEALS))
        case "details":
            return isinstance(found, list) and bool(found)
        case "seal":
            return bool(turn.wire.get(SEALS))
        case _:
            return found is not None and (found != "" or rules.if_missing != "space")
