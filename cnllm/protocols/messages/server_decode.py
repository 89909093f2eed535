"""Decode requests of Anthropic Messages. `server_encode` writes the replies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cnllm.protocols import Recall, Stamp
from cnllm.protocols.fields import require_types
from cnllm.protocols.messages.fields import FIELDS
from cnllm.registry.flags import LEVELS
from cnllm.types import Media, Message, Note, Opaque, Part, Reasoning, Request, Seal, Text, ToolCall, ToolResult
from cnllm.types.checks import short_text
from cnllm.types.convert import result_of
from cnllm.types.media import as_media, is_file_part
from cnllm.types.tools import WebSearch

__all__ = ["read_request", "read_search"]

_PARAMS = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "stop_sequences": "stop"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_FUNCTION = ("type", "name", "description", "input_schema", "strict")
_SEARCH = re.compile("web_search_[0-9]+")

_BILLING = "x-anthropic-billing-header"
"""The beginning of a line in which a client puts a header for its vendor's gateway, before the text."""

Block = dict[str, Any]


def read_request(body: dict[str, Any], path: str, stamp: Stamp, recall: Recall) -> Request:
    """Return the messages and options of a body. Raises `ValueError` with the message or key that is wrong."""
    require_types(body, FIELDS)
    turns = body.get("messages")
    if not isinstance(turns, list) or not turns:
        raise ValueError("messages: a list with a message in it is required")
    if type(body.get("max_tokens")) is not int:
        raise ValueError("max_tokens: an integer is required")
    messages: list[Message] = []
    notes: list[Note] = []
    if body.get("system") is not None:
        blocks = _without_billing(_content_blocks(body["system"], "system"), notes)
        parts = [_part(block, f"system.{n}", "system", stamp) for n, block in enumerate(blocks)]
        messages += [Message("system", parts)] if parts else []
    has_system = "system" in [turn.get("role") for turn in turns if isinstance(turn, dict)]
    if has_system:
        turns = [_without_billing_in(turn, index, notes) for index, turn in enumerate(turns)]
    messages += recall.turns(turns, lambda index, turn: _turn(turn, f"messages.{index}", stamp))
    options: dict[str, Any] = {option: body[key] for key, option in _PARAMS.items() if body.get(key) is not None}
    extra = FIELDS.rest(body)
    notes += _tools(body, options, recall)
    effort = _effort_of(turns) if has_system else None
    if effort is not None:
        said = f"messages[].output_config.effort: {short_text(effort)}"
        notes.append(Note("reasoning-level", "reasoning", said, "the effort of the whole request"))
    _thinking(body, options, extra, effort)
    if extra:
        options["extra_body"] = extra
    stream = body.get("stream") is True
    return Request(model=body.get("model"), messages=messages, stream=stream, options=options, notes=notes)


def _without_billing_in(turn: Any, index: int, notes: list[Note]) -> Any:
    """Return a turn; one of the system without the lines of the client's billing data."""
    if not isinstance(turn, dict) or turn.get("role") != "system" or _is_setting(turn):
        return turn
    content = _content_blocks(turn.get("content"), f"messages.{index}.content")
    return {**turn, "content": _without_billing(content, notes)}


def _is_setting(turn: dict[str, Any]) -> bool:
    """Whether a message of the system has no content: it may set an effort alone."""
    return not turn.get("content") and isinstance(turn.get("output_config"), dict)


def _without_billing(blocks: list[Block], notes: list[Note]) -> list[Block]:
    """Return the blocks of the system without the lines of the client's billing data, which differ in each request.

    They are not for the model, and they would end each prefix in a cache.
    """
    out: list[Block] = []
    for block in blocks:
        text = block.get("text")
        if isinstance(text, str) and text.lstrip().startswith(_BILLING):
            rest = text.lstrip().partition("\n")[2].lstrip("\r\n")
            notes.append(Note("key-foreign", "system", f"the line {_BILLING}", "left out: it is not for the model"))
            if not rest.strip():
                continue
            block = {**block, "text": rest}
        out.append(block)
    return out


def _content_blocks(content: Any, path: str) -> list[Block]:
    """Return content as blocks. Raises `ValueError`."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise ValueError(f"{path}: a string or a list of blocks is required")
    for position, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise ValueError(f"{path}.{position}: an object with a type is required")
    return content


def _turn(turn: Any, path: str, stamp: Stamp) -> Iterator[Message]:
    """Yield a message as neutral ones: each result is one of its own, before the rest of the user's content."""
    if not isinstance(turn, dict):
        raise ValueError(f"{path}: an object is required")
    role = turn.get("role")
    if role not in ("user", "assistant", "system"):
        raise ValueError(f"{path}.role: user or assistant is required, not {short_text(role)}")
    if role == "system" and _is_setting(turn):
        return
    blocks = _content_blocks(turn.get("content"), f"{path}.content")
    parts: list[Part] = []
    results = 0
    for position, block in enumerate(blocks):
        part = _part(block, f"{path}.content.{position}", role, stamp)
        if type(part) is ToolResult:
            results += 1
            yield Message("tool", [part])
        else:
            parts.append(part)
    if parts or not results:
        yield Message(role, parts)


def _part(block: Block, path: str, role: str, stamp: Stamp) -> Part:
    """Decode one block. Keys that the endpoint added to an answer are sealed; the caller's keys are not."""
    other_keys = _others(block, "type", "cache_control")
    marks = {"cache_control": block["cache_control"]} if block.get("cache_control") is not None else None
    if role == "assistant" and block.get(block["type"]) is None and block["type"] in ("text", "thinking"):
        block = {**block, block["type"]: ""}  # clients and gateways may leave out an empty text
        other_keys[block["type"]] = ""
    match block["type"], role:
        case "text", _ if isinstance(block.get("text"), str):
            del other_keys["text"]
            if role == "assistant" and stamp(None).provider:
                return Text(block["text"], stamp(other_keys) if other_keys else None, marks)
            return Text(block["text"], *_caller_keys({**other_keys, **(marks or {})}, stamp))
        case "image", "user" if (media := _media(block)) is not None:
            del other_keys["source"]
            seal, extra = _caller_keys({**other_keys, **(marks or {})}, stamp)
            return msgspec.structs.replace(media, seal=seal, extra=extra)
        case "thinking", "assistant" if isinstance(block.get("thinking"), str):
            del other_keys["thinking"]
            return Reasoning(block["thinking"], stamp(other_keys) if any(other_keys.values()) else None)
        case "redacted_thinking", "assistant":
            return Reasoning("", stamp(block))
        case "tool_use", "assistant":
            return _call(block, path, stamp)
        case "tool_result", "user":
            return _result(block, path, stamp)
        case "tool_addition", _ if (definition := _definition(block)) is not None:
            return Text(f"The tool {definition.get('name')} can be called now.")  # it is among the options
        case ("tool_result" | "tool_use" | "thinking" | "text") as kind, _:
            raise ValueError(f"{path}: a block of type {kind} has the wrong form, or is not allowed here")
    return Opaque(block, None if role == "user" and is_file_part(block) else stamp(None))


def _others(block: Block, *excluded: str) -> Block:
    """Return the keys of a block without these."""
    return {key: value for key, value in block.items() if key not in excluded and value is not None}


def _caller_keys(keys: Block, stamp: Stamp) -> tuple[Seal | None, Block | None]:
    """Return the caller's keys of a block as (seal, extra).

    They are sealed with the protocol, unless the messages go back to the known model that wrote the others.
    """
    if not keys:
        return None, None
    seal = stamp(keys)
    return (None, keys) if seal.provider else (seal, None)


def _media(block: Block) -> Media | None:
    """Decode a picture; None if its source is unknown."""
    match block.get("source"):
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return Media(kind, data)
        case {"type": "url", "url": str(url)}:
            return Media("image", None, url)
    return None


def _call(block: Block, path: str, stamp: Stamp) -> ToolCall:
    """Decode a call. Raises `ValueError`."""
    id, name, input = block.get("id"), block.get("name"), block.get("input")
    if not isinstance(id, str) or not isinstance(name, str) or not id or not name:
        raise ValueError(f"{path}: an id and a name are required")
    if not isinstance(input, dict):
        raise ValueError(f"{path}.input: an object is required")
    other_keys = _others(block, "type", "id", "name", "input")
    raw = msgspec.json.encode(input).decode() if input else ""
    return ToolCall(id, name, input, raw, seal=stamp(other_keys) if other_keys else None)


def _result(block: Block, path: str, stamp: Stamp) -> ToolResult:
    """Decode a result. The order and the keys of its blocks are sealed, where text and media do not express them."""
    id = block.get("tool_use_id")
    if not isinstance(id, str) or not id:
        raise ValueError(f"{path}.tool_use_id: it is required")
    content = block.get("content")
    blocks = [] if content is None else _content_blocks(content, f"{path}.content")
    parts: list[Part] = []
    is_plain = True
    for inner in blocks:
        if inner["type"] == "text" and isinstance(inner.get("text"), str):
            parts.append(Text(inner["text"]))
        elif inner["type"] == "image" and (picture := _media(inner)) is not None:
            parts.append(picture)
            is_plain = is_plain and inner.keys() == {"type", "source"}
        else:
            file = as_media(inner) if inner["type"] == "document" else None
            parts.append(file or Opaque(inner, None if is_file_part(inner) else stamp(None)))
            is_plain = False
    result = result_of(id, parts, None, error=block.get("is_error") is True)
    data = _others(block, "type", "tool_use_id", "content", "is_error")
    texts: list[Block] = [{"type": "text", "text": result.text}] if result.text else []
    plain_blocks = [*texts, *(b for b in blocks if b["type"] != "text")]
    if not is_plain or blocks not in (plain_blocks, [{"type": "text", "text": ""}]):
        data["content"] = blocks
    return msgspec.structs.replace(result, seal=stamp(data)) if data else result


def _definition(block: Block) -> Block | None:
    """Return the function that a block adds to the tools by its definition; None where it adds none so."""
    match block:
        case {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": dict() as definition}}:
            return definition if isinstance(definition.get("name"), str) else None
    return None


def _added_tools(turns: list[Any]) -> Iterator[tuple[str, Block]]:
    """Yield the functions that messages add to the tools, with their places."""
    for index, turn in enumerate(turns):
        content = turn.get("content") if isinstance(turn, dict) else None
        for position, block in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(block, dict) or block.get("type") != "tool_addition":  # most are others
                continue
            if (definition := _definition(block)) is not None:
                yield f"messages.{index}.content.{position}.tool.definition", definition


def _tools(body: dict[str, Any], options: dict[str, Any], recall: Recall) -> list[Note]:
    """Decode functions in the neutral form; the endpoint's own tools, and keys beside a function, are kept.

    Those that a message adds are offered from the start. Return notes on them.
    """
    tools = body.get("tools")
    notes: list[Note] = []
    if tools is not None:
        options["tools"] = recall.tools(tools, _read_tools)
    for place, definition in _added_tools(body["messages"]):
        others = [tool for tool in options.get("tools", ()) if _name(tool) != definition["name"]]
        options["tools"] = [*others, _tool(definition, place)]
        notes.append(Note("tools-loaded", "tools", f"{definition['name']}, which a message adds", "offered in full"))
    choice = body.get("tool_choice")
    if choice is None:
        return notes
    match choice:
        case {"type": "tool", "name": str(name)}:
            options["tool_choice"] = {"type": "function", "function": {"name": name}}
        case {"type": ("auto" | "any" | "none") as kind}:
            options["tool_choice"] = _CHOICES[kind]
        case _:
            raise ValueError("tool_choice: an object of type auto, any, tool or none is required")
    if isinstance(choice.get("disable_parallel_tool_use"), bool):
        options["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]
    return notes


def _name(tool: Block) -> Any:
    """Return the name of a decoded tool."""
    return tool["function"]["name"] if "function" in tool else tool.get("name")


def _read_tools(tools: list[Any]) -> list[Block]:
    """Decode tools. Raises `ValueError`."""
    if not all(isinstance(tool, dict) for tool in tools):
        raise ValueError("tools: a list of objects is required")
    return [_tool(tool, f"tools.{index}") for index, tool in enumerate(tools)]


def _tool(tool: Block, path: str) -> Block:
    """Decode a tool. Raises `ValueError`."""
    if tool.get("type") not in (None, "custom"):
        return tool
    if not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), dict):
        raise ValueError(f"{path}: a name and an input_schema are required")
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    function |= {key: tool[key] for key in ("description", "strict") if tool.get(key) is not None}
    return {"type": "function", "function": function, **_others(tool, *_FUNCTION)}


def read_search(tool: Mapping[str, Any]) -> WebSearch | None:
    """Return the web search that a tool asks for."""
    if not isinstance(kind := tool.get("type"), str) or _SEARCH.fullmatch(kind) is None:
        return None
    settings = {key: value for key, value in tool.items() if key not in ("type", "name", "cache_control")}
    return WebSearch.of_client(settings, tool.get("allowed_domains"), ("allowed_domains",))


def _effort_of(turns: list[Any]) -> str | None:
    """Return the effort that messages of the system set for the answer; None where none does.

    One directly behind the user's words holds for the answer to them, another from the user's next words on.
    https://platform.claude.com/docs/en/build-with-claude/effort-per-message
    """
    effort = pending = None
    is_asked = False  # whether the message before is the user's, with words
    for turn in turns:
        if turn["role"] == "system":
            config = turn.get("output_config")
            level = config.get("effort") if isinstance(config, dict) else None
            if isinstance(level, str):
                effort, pending = (level, None) if is_asked else (effort, level)
            continue
        is_asked = turn["role"] == "user" and not _is_results(turn["content"])
        if is_asked and pending is not None:
            effort, pending = pending, None
    return effort


def _is_results(content: Any) -> bool:
    """Whether the content of a message is nothing but results of tools."""
    return isinstance(content, list) and all(block["type"] == "tool_result" for block in content)


def _thinking(body: dict[str, Any], options: dict[str, Any], extra: dict[str, Any], effort: str | None) -> None:
    """Decode how much reasoning is requested, and the form of the answer.

    `effort` is the one that a message sets.
    """
    thinking, config = body.get("thinking"), body.get("output_config")
    config = dict(config) if isinstance(config, dict) else {}
    if effort is not None:
        config["effort"] = effort
    format = config.pop("format", None) or body.get("output_format")
    if isinstance(format, dict) and isinstance(format.get("schema"), dict):
        options["schema"] = {"json_schema": {"name": "answer", "schema": format["schema"]}}
    rest: dict[str, Any] = {}
    if isinstance(thinking, dict):
        rest = {key: value for key, value in thinking.items() if key not in ("type", "budget_tokens")}
        match thinking.get("type"):
            case "enabled":
                budget = thinking.get("budget_tokens")
                options["reasoning"] = budget if type(budget) is int else "on"
            case "adaptive":
                is_known = config.get("effort") in LEVELS  # another word stays in the body
                options["reasoning"] = config.pop("effort") if is_known else "on"
            case "disabled" | "between_tools":
                options["reasoning"] = "off"
            case _:
                rest = thinking
    if rest:
        extra["thinking"] = rest
    if config:
        extra["output_config"] = config
