"""Read and write chat completions at the paths that an endpoint's flags declare.

`cnllm.protocols.chat.client_paths` does the reverse for a client. This module shares no code with it, so that an error
there is not hidden by the same error here: what stands at a place that the endpoint does not read is refused.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from cnllm.jsonpath import get, remove, set_value
from cnllm.registry.flags import Body, CallPaths, Flags, Messages, ReplyPaths, Tools

__all__ = ["place_choice", "place_message", "usual_body", "usual_messages"]


def usual_body(body: dict[str, Any], flags: Flags) -> tuple[dict[str, Any], str | None]:
    """Return a body with the keys of its wire, and the first key that is not at the endpoint's own path."""
    paths = (flags.body or Body()).rename or {}
    if not paths:
        return body, None
    out = copy.deepcopy(body)
    values = {key: remove(out, path) for key, path in paths.items() if get(body, path) is not None}
    misplaced = next((key for key in paths if key in out and key not in values), None)
    return {**out, **values}, misplaced


def usual_messages(body: dict[str, Any], flags: Flags) -> tuple[dict[str, Any], str | None]:
    """Return a body whose messages have the usual keys, and the first place that the endpoint does not read."""
    messages, tools = flags.messages or Messages(), flags.tools or Tools()
    turns = body.get("messages")
    own = (messages.answer_field, tools.calls_field, tools.call_paths, tools.result_role)
    if not any((*own, tools.result_id, tools.result_field)) or not isinstance(turns, list):
        return body, None
    faults: list[str] = []
    out = []
    for index, turn in enumerate(turns):
        if not isinstance(turn, dict):
            out.append(turn)
            continue
        turn, fault = _usual_turn(copy.deepcopy(turn), messages, tools)
        faults += [f"messages[{index}].{fault}"] if fault else []
        out.append(turn)
    return {**body, "messages": out}, faults[0] if faults else None


def _usual_turn(turn: dict[str, Any], messages: Messages, tools: Tools) -> tuple[dict[str, Any], str | None]:
    """Return a message with the usual keys, and the first of its places that the endpoint does not read."""
    id_path, role = tools.result_id or "tool_call_id", tools.result_role or "tool"
    is_result = turn.get("role") == role and (role not in ("user", "system") or get(turn, id_path) is not None)
    if is_result:
        places = {"tool_call_id": id_path, "content": tools.result_field or "content"}
    elif turn.get("role") == "assistant":
        places = {"content": messages.answer_field or "content", "tool_calls": tools.calls_field or "tool_calls"}
    else:
        return turn, f"role {turn['role']}" if turn.get("role") == "tool" else None
    fault = next((key for key, path in places.items() if key in turn and path.split(".")[0] != key), None)
    moved = {key: remove(turn, path) for key, path in places.items() if _has(turn, path)}
    turn |= moved | ({"role": "tool"} if is_result else {})
    calls = turn.get("tool_calls")
    if tools.call_paths is not None and isinstance(calls, list):
        turn["tool_calls"] = [_usual_call(call, tools.call_paths) for call in calls]
    return turn, fault


def _has(turn: dict[str, Any], path: str) -> bool:
    """Whether a message has a value at a path, null too."""
    *parents, last = path.split(".")
    holder = get(turn, ".".join(parents)) if parents else turn
    return isinstance(holder, dict) and last in holder


def _usual_call(call: Any, paths: CallPaths) -> Any:
    """Return a call of an earlier turn with the usual keys."""
    if not isinstance(call, dict):
        return call
    name, arguments = paths.name or "function.name", paths.arguments or "function.arguments"
    return {"id": get(call, paths.id or "id"), "function": {"name": get(call, name), "arguments": get(call, arguments)}}


def place_message(message: dict[str, Any], flags: Flags) -> dict[str, Any]:
    """Return a message or a delta of a reply with the endpoint's own paths."""
    messages, tools = flags.messages or Messages(), flags.tools or Tools()
    out: dict[str, Any] = {}
    for key, value in message.items():
        if key == "content":
            set_value(out, messages.answer_field or key, value)
        elif key == "tool_calls":
            set_value(out, tools.calls_field or key, [_place_call(call, tools) for call in value])
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] |= value
        else:
            out[key] = value
    return out


def _place_call(call: dict[str, Any], tools: Tools) -> dict[str, Any]:
    """Return a call, or a piece of one, with the endpoint's own paths."""
    paths = tools.call_paths or CallPaths()
    function = dict(call["function"])
    if tools.arguments == "object":
        function["arguments"] = json.loads(function["arguments"] or "{}")
    if paths == CallPaths():
        return {**call, "function": function}
    out = {} if "index" not in call else {"index": call["index"]}
    places = {"id": paths.id or "id", "name": paths.name or "function.name"}
    places["arguments"] = paths.arguments or "function.arguments"
    for key, value in {**call, **function}.items():
        if key in places:
            set_value(out, places[key], value)
    return out


def place_choice(body: dict[str, Any], choice: dict[str, Any] | None, flags: Flags) -> dict[str, Any]:
    """Return a body or a chunk with its only choice at the endpoint's own path; None: a chunk without a choice."""
    paths = flags.reply or ReplyPaths()
    if paths == ReplyPaths():
        return {**body, "choices": [] if choice is None else [choice]}
    if choice is None:
        return body
    own = {"message": paths.message, "delta": paths.delta, "finish_reason": paths.finish}
    out: dict[str, Any] = {}
    for key, value in choice.items():
        path = own.get(key) or key
        if path == ".":
            out |= value
        else:
            set_value(out, path, value)
    if paths.choices == ".":
        return {**body, **{key: value for key, value in out.items() if key != "index"}}
    set_value(body := copy.deepcopy(body), paths.choices or "choices", [out])
    return body
