"""OpenAI Responses, as a server speaks it: requests. What it answers is written in `server_encode`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cnllm.protocols import Stamp
from cnllm.registry.flags import LEVELS
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Request, Text, ToolCall, ToolResult
from cnllm.types.convert import result_text

__all__ = ["read_request"]

_SAME = ("tool_choice", "parallel_tool_calls", "temperature", "top_p")
_OWN = ("input", "instructions", "model", "stream", "tools", "max_output_tokens", "reasoning", "text")
_ROLES = ("system", "developer", "user", "assistant")
_TEXTS = ("input_text", "output_text", "text")


def read_request(body: dict[str, Any], path: str, stamp: Stamp) -> Request:
    """Raises `ValueError` naming the item or key that is not as it must be."""
    messages: list[Message] = []
    instructions = body.get("instructions")
    if isinstance(instructions, str):
        messages.append(Message("system", (Text(instructions, stamp({"instructions": True})),)))
    elif instructions is not None:
        raise ValueError("instructions is not a string")
    messages += _messages(body, stamp)
    model = body.get("model")
    return Request(
        model=model if isinstance(model, str) else None,
        messages=messages,
        stream=body.get("stream") is True,
        options=_options(body),
    )


# ── options ──────────────────────────────────────────────────────────────────


def _options(body: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    extra = {k: v for k, v in body.items() if k not in (*_OWN, *_SAME) and v is not None}
    for key in _SAME:
        if body.get(key) is not None:
            options[key] = body[key]
    match options.get("tool_choice"):
        case {"type": "function", "name": str(name)}:
            options["tool_choice"] = {"type": "function", "function": {"name": name}}
        case None | str():
            pass
        case _:  # a choice among the endpoint's own tools
            extra["tool_choice"] = options.pop("tool_choice")
    if (tools := body.get("tools")) is not None:
        if not isinstance(tools, list):
            raise ValueError("tools is not a list")
        options["tools"] = [_tool(tool, index) for index, tool in enumerate(tools)]
    if body.get("max_output_tokens") is not None:
        options["max_tokens"] = body["max_output_tokens"]
    if isinstance(thinking := body.get("reasoning"), dict):
        rest = {k: v for k, v in thinking.items() if v is not None}
        if (effort := rest.get("effort")) == "none" or effort in LEVELS:
            options["reasoning"] = "off" if rest.pop("effort") == "none" else effort
        if rest:
            extra["reasoning"] = rest
    if isinstance(text := body.get("text"), dict) and (rest := _format(text, options)):
        extra["text"] = rest
    if extra:
        options["extra_body"] = extra
    return options


def _format(text: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The answer's format as an option, and what is left of the table."""
    rest = {k: v for k, v in text.items() if v is not None}
    match rest.pop("format", None):
        case {"type": "json_schema", "schema": dict() as schema} as said:
            options["schema"] = {"json_schema": {"name": said.get("name"), "schema": schema}}
            more = {k: v for k, v in said.items() if k not in ("type", "name", "schema") and v is not None}
            if more:
                rest["format"] = more
        case None | {"type": "text"}:
            pass
        case other:
            rest["format"] = other
    return rest


def _tool(tool: Any, index: int) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise ValueError(f"tools[{index}] is not an object")
    if tool.get("type") != "function":
        return tool
    if not isinstance(tool.get("name"), str):
        raise ValueError(f"tools[{index}].name is not a string")
    keys = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {key: tool[key] for key in keys if tool.get(key) is not None}}


# ── items ────────────────────────────────────────────────────────────────────


def _messages(body: dict[str, Any], stamp: Stamp) -> list[Message]:
    """The items as messages: what the assistant said and called in a row is one."""
    given = body.get("input")
    if isinstance(given, str):
        return [Message("user", (Text(given),))]
    if not isinstance(given, list):
        raise ValueError("input is neither a string nor a list")
    # Of a conversation that the endpoint keeps, only a part is here.
    kept = body.get("previous_response_id") is not None or body.get("conversation") is not None
    out: list[Message] = []
    called: set[str] = set()
    said: list[Part] = []
    for index, item in enumerate(given):
        if not isinstance(item, dict):
            raise ValueError(f"input[{index}] is not an object")
        kept = kept or item.get("type") == "item_reference"
        try:
            read = _item(item, stamp, called, kept)
        except ValueError as error:
            raise ValueError(f"input[{index}]{error}") from error
        if isinstance(read, Message):
            if said:
                out.append(Message("assistant", tuple(said)))
                said = []
            out.append(read)
        else:
            said += read
    return [*out, Message("assistant", tuple(said))] if said else out


def _item(item: dict[str, Any], stamp: Stamp, called: set[str], kept: bool) -> Message | list[Part]:
    """A message of its own, or parts of what the assistant said."""
    match item.get("type"):
        case None | "message":
            return _message(item, stamp)
        case "reasoning":
            return [Reasoning(_thought(item), stamp(item))]
        case "function_call":
            call = _call(item, stamp)
            called.add(call.id)
            return [call]
        case "function_call_output" if not kept or str(item.get("call_id")) in called:
            return Message("tool", (_result(item, stamp),))
    return [Opaque(item, stamp(None))]


def _message(item: dict[str, Any], stamp: Stamp) -> Message | list[Part]:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise ValueError(f".role {role!r} is none of {', '.join(_ROLES)}")
    if not isinstance(content, str | list):
        raise ValueError(".content is neither a string nor a list")
    beside = {k: v for k, v in item.items() if k not in ("type", "role", "content") and v is not None}
    if role == "assistant":
        return list(_said(item, beside, content, stamp))
    parts: list[Part] = (
        [Text(content)] if isinstance(content, str) else [_part(p, n, stamp) for n, p in enumerate(content)]
    )
    if beside and parts:
        seal = parts[0].seal
        both = {**(seal.data if seal is not None and isinstance(seal.data, dict) else {}), "item": beside}
        parts[0] = msgspec.structs.replace(parts[0], seal=stamp(both))
    return Message(str(role), tuple(parts))


def _said(item: dict[str, Any], beside: dict[str, Any], content: str | list[Any], stamp: Stamp) -> Iterator[Part]:
    """The texts of an assistant's message, sealed where there is more to it than text."""
    if isinstance(content, str):
        yield Text(content, stamp({"item": beside, "part": {}}) if beside else None)
        return
    texts = 0
    for index, part in enumerate(content):
        if not isinstance(part, dict):
            raise ValueError(f".content[{index}] is not an object")
        key = "refusal" if part.get("type") == "refusal" else "text"
        if part.get("type") not in (*_TEXTS, "refusal") or not isinstance(part.get(key), str):
            yield Opaque({**item, "content": [part]}, stamp(None))
            continue
        rest = {k: v for k, v in part.items() if k != key and (k != "type" or v not in _TEXTS)}
        if rest or beside or len(content) > 1:
            seal = {"item": beside, "part": rest} | ({"at": index} if texts else {})
            yield Text(part[key], stamp(seal))
        else:
            yield Text(part[key])
        texts += 1


def _part(part: Any, index: int, stamp: Stamp) -> Part:
    """A part of what the user says."""
    if not isinstance(part, dict):
        raise ValueError(f".content[{index}] is not an object")
    kind = part.get("type")
    if kind in _TEXTS:
        if not isinstance(part.get("text"), str):
            raise ValueError(f".content[{index}].text is not a string")
        rest = {k: v for k, v in part.items() if k not in ("type", "text") and v is not None}
        return Text(part["text"], stamp({"part": rest}) if rest else None)
    return _media(part) or Opaque(part, stamp(None))


def _media(part: dict[str, Any]) -> Media | None:
    """A picture or a sound; None for what is neither, or is kept by the endpoint."""
    match part:
        case {"type": "input_image", "image_url": str(url)}:
            extra = {k: v for k, v in part.items() if k not in ("type", "image_url") and v is not None}
            head, comma, data = url.partition(",")
            if comma and head.startswith("data:") and head.endswith(";base64"):
                return Media(head[5:-7], data, None, None, extra or None)
            return Media("image", None, url, None, extra or None)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            return Media(f"audio/{kind}", data)
    return None


def _thought(item: dict[str, Any]) -> str:
    for field in ("summary", "content"):
        parts = item.get(field)
        if parts is not None and not isinstance(parts, list):
            raise ValueError(f".{field} is not a list")
        if text := "".join(str(p.get("text") or "") for p in parts or () if isinstance(p, dict)):
            return text
    return ""


def _call(item: dict[str, Any], stamp: Stamp) -> ToolCall:
    id, name, raw = item.get("call_id"), item.get("name"), item.get("arguments")
    for key, value in (("call_id", id), ("name", name), ("arguments", raw)):
        if not isinstance(value, str):
            raise ValueError(f".{key} is not a string")
    arguments, problem = _decoded(str(raw))
    beside = {k: v for k, v in item.items() if k not in ("type", "call_id", "name", "arguments") and v is not None}
    seal = stamp(beside) if beside else None
    return ToolCall(str(id), str(name), arguments, str(raw), "wire", problem, seal)


def _decoded(raw: str) -> tuple[dict[str, Any] | None, str | None]:
    if not raw.strip():
        return {}, None
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return None, f"the arguments are not JSON: {error}"
    return (value, None) if isinstance(value, dict) else (None, "the arguments are not a JSON object")


def _result(item: dict[str, Any], stamp: Stamp) -> ToolResult:
    id, output = item.get("call_id"), item.get("output")
    if not isinstance(id, str):
        raise ValueError(".call_id is not a string")
    if not isinstance(output, str | list):
        raise ValueError(".output is neither a string nor a list")
    beside = {k: v for k, v in item.items() if k not in ("type", "call_id", "output") and v is not None}
    seal: dict[str, Any] = {"item": beside} if beside else {}
    text: Any = output
    media: tuple[Media, ...] = ()
    if isinstance(output, list):
        text, media, plain = _output(output)
        if not plain:
            seal["output"] = output
    return ToolResult(id, str(text), None, False, media, stamp(seal) if seal else None)


def _output(output: list[Any]) -> tuple[str, tuple[Media, ...], bool]:
    """A result's text and pictures; False where they do not say all that stands there, in its order."""
    texts: list[str] = []
    media: list[Media] = []
    plain = True
    for part in output:
        said = part if isinstance(part, dict) else {}
        found = _media(said)
        if found is not None:
            media.append(found)
        elif said.get("type") in _TEXTS and isinstance(said.get("text"), str):
            plain = plain and not media and not texts and len(said) == 2
            texts.append(said["text"])
        else:
            plain = False
    return result_text(texts), tuple(media), plain and (bool(media) or not output)
