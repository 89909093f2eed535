"""Parse a chat-completions request in the dialect of an endpoint.

`cnllm.protocols.chat.server_decode` reads the same wire for a gateway: it makes messages of a valid body.
This reader keeps what an endpoint judges (null beside absent content, unknown keys, arguments of any type). It shares
no code with the client's encoder or with the gateway, so that an error there is not hidden by the same error here.
"""

from __future__ import annotations

import copy
from typing import Any

from cnllm.jsonpath import get, remove
from cnllm.registry.flags import CallPaths, Flags, Messages, Tools
from cnllm.simulator.request import Form, ParsedMessage, ParsedRequest, RequestCall, read_choice, read_tool
from cnllm.types.media import KIND_OF_PART

__all__ = ["CONTENT_SUBSTITUTES", "read_chat_request", "usual_body", "usual_messages"]

CONTENT_SUBSTITUTES = ("refusal", "audio", "function_call")
"""Keys of an assistant message, one of which may take the place of its content."""


def read_chat_request(body: dict[str, Any]) -> ParsedRequest:
    """Parse a body. Never raises: `broken` names the place that does not have the shape of the wire."""
    broken: list[str] = []
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        broken.append("messages")
        messages = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            broken.append(f"messages[{index}]")
    tools = body.get("tools")
    if tools is not None and (not isinstance(tools, list) or not all(isinstance(t, dict) for t in tools)):
        broken.append("tools")
        tools = None
    choice, tool_name = read_choice(body.get("tool_choice"))
    answer, schema = _format(body.get("response_format"))
    return ParsedRequest(
        body=body,
        turns=tuple(_turn(m) for m in messages if isinstance(m, dict)),
        tools=None if tools is None else tuple(read_tool(t) for t in tools),
        choice=choice,
        named=tool_name,
        parallel=body.get("parallel_tool_calls") is not False,
        stream=body.get("stream") is True,
        answer=answer,
        schema=schema,
        broken=broken[0] if broken else None,
    )


def _turn(message: dict[str, Any]) -> ParsedMessage:
    content = message.get("content")
    parts = [p for p in content if isinstance(p, dict)] if isinstance(content, list) else []
    texts = [p.get("text") for p in parts if p.get("type") == "text"]
    calls = message.get("tool_calls")
    return ParsedMessage(
        role=message.get("role"),
        form=_form(message),
        text=content if isinstance(content, str) else "".join(t for t in texts if isinstance(t, str)),
        wire=message,
        media=tuple(KIND_OF_PART.get(str(p.get("type")), "other") for p in parts if p.get("type") != "text"),
        blank="" in texts,
        calls=tuple(_call(c) for c in calls) if isinstance(calls, list) else None,
        result_of=message.get("tool_call_id"),
        keys=tuple(message),
        has_other_content=any(key in message for key in CONTENT_SUBSTITUTES),
    )


def _form(message: dict[str, Any]) -> Form:
    match message.get("content"):
        case None:
            return "null" if "content" in message else "absent"
        case "" | []:
            return "empty"
        case str():
            return "text"
        case list(parts) if all(isinstance(p, dict) for p in parts):
            return "parts"
        case _:
            return "other"


def _call(call: Any) -> RequestCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return RequestCall(id=None, name=None, arguments=None)
    return RequestCall(id=call.get("id"), name=function.get("name"), arguments=function.get("arguments"))


def _format(response_format: Any) -> tuple[str | None, Any]:
    match response_format:
        case None | {"type": "text"}:
            return None, None
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return "json_schema", schema
        case {"type": str(kind)}:
            return kind, None
        case _:
            return "other", None


# ── an endpoint's own paths ───────────────────────────────────────────────────
# What stands at a place that the endpoint does not read is refused.


def usual_body(body: dict[str, Any], flags: Flags) -> tuple[dict[str, Any], str | None]:
    """Return a body with the keys of its wire, and the first key that is not at the endpoint's own path."""
    paths = flags.body.rename or {}
    if not paths:
        return body, None
    out = copy.deepcopy(body)
    values = {key: remove(out, path) for key, path in paths.items() if get(body, path) is not None}
    misplaced = next((key for key in paths if key in out and key not in values), None)
    return {**out, **values}, misplaced


def usual_messages(body: dict[str, Any], flags: Flags) -> tuple[dict[str, Any], str | None]:
    """Return a body whose messages have the usual keys, and the first place that the endpoint does not read."""
    messages, tools = flags.messages, flags.tools
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
