"""Decode requests of OpenAI Responses. `server_encode` writes the replies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from cnllm.protocols import Recall, Stamp
from cnllm.protocols.client_tools import allow_tools
from cnllm.protocols.fields import require_types
from cnllm.protocols.responses.fields import FIELDS
from cnllm.protocols.responses.server_tools import (
    ITEM_KINDS,
    ClientTools,
    built_in_arguments,
    client_tools,
    is_hosted_call,
    own_space,
    tool_definitions,
)
from cnllm.registry.flags import LEVELS
from cnllm.types import Media, Message, Note, Opaque, Part, Reasoning, Request, Role, Seal, Text, ToolCall, ToolResult
from cnllm.types.checks import short_text
from cnllm.types.convert import result_of
from cnllm.types.lenient_json import decode_arguments
from cnllm.types.media import as_media, from_url
from cnllm.types.message_memory import MessageMemory
from cnllm.types.parts import ANY_MODEL, seal_data
from cnllm.types.tools import WebSearch, custom_arguments

__all__ = ["read_request", "read_search"]

_SAME_OPTIONS = ("tool_choice", "parallel_tool_calls", "temperature", "top_p")
_SEARCH = re.compile("web_search(_preview)?([_0-9]*)")
_ROLES = ("system", "developer", "user", "assistant")
_TEXT_TYPES = ("input_text", "output_text", "text")
_ITEMS = "items"  # under which a memory has what items were read as
_SIZE = 500  # bytes of such an item in the memory
_OUTPUTS = (
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "tool_search_output",
)


def read_request(body: dict[str, Any], path: str, stamp: Stamp, recall: Recall) -> Request:
    """Return the messages and options of a body. Raises `ValueError` with the item or key that is wrong."""
    require_types(body, FIELDS)
    messages: list[Message] = []
    if (instructions := body.get("instructions")) is not None:
        messages.append(Message("system", (Text(instructions, stamp({"instructions": True})),)))
    tools = client_tools(body, recall)
    messages += _messages(body, stamp, tools, recall.memory)
    stream = body.get("stream") is True
    options, notes = _options(body, tools, recall)
    return Request(model=body.get("model"), messages=messages, stream=stream, options=options, notes=notes)


# ── options ───────────────────────────────────────────────────────────────────


def _options(body: dict[str, Any], tools: ClientTools, recall: Recall) -> tuple[dict[str, Any], list[Note]]:
    """Decode the options of a body. Return them with notes on what is left out."""
    options: dict[str, Any] = {}
    extra = FIELDS.rest(body)
    for key in _SAME_OPTIONS:
        if body.get(key) is not None:
            options[key] = body[key]
    if tools.has_more:
        options["tools"] = tools.definitions
    elif body.get("tools") is not None:
        options["tools"] = recall.tools(body["tools"], tool_definitions)
    notes = _choice(options.get("tool_choice"), options, extra, tools)
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
    return options, notes


def _choice(choice: Any, options: dict[str, Any], extra: dict[str, Any], tools: ClientTools) -> list[Note]:
    """Decode the tool choice; one among the endpoint's own tools stays in the body. Return notes on left out tools."""
    match choice:
        case None | str():
            pass
        case {"type": "allowed_tools", "tools": list() as allowed}:
            entries = [entry for entry in allowed if isinstance(entry, dict)]
            names = [name for entry in entries for name in tools.names_in(entry)]
            return allow_tools(options, choice, "tool_choice", names, [entry.get("type") for entry in entries])
        case {"type": str()} if names := tools.names_in(choice):
            options["tool_choice"] = {"type": "function", "function": {"name": names[0]}}
        case {"type": "function", "name": str(name)}:
            options["tool_choice"] = {"type": "function", "function": {"name": name}}
        case _:
            extra["tool_choice"] = options.pop("tool_choice")
    return []


def read_search(tool: Mapping[str, Any]) -> WebSearch | None:
    """Return the web search that a tool asks for. The last versions have a date in their type, the first a word."""
    if not isinstance(kind := tool.get("type"), str) or _SEARCH.fullmatch(kind) is None:
        return None
    settings = {key: value for key, value in tool.items() if key not in ("type", "filters") and value is not True}
    filters = tool.get("filters")
    filters = filters if isinstance(filters, Mapping) else {}
    return WebSearch.of_client({**settings, **filters}, filters.get("allowed_domains"), ("allowed_domains",))


def _format(text: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Decode the answer's format as an option. Return the rest of the object."""
    rest = {k: v for k, v in text.items() if v is not None}
    match rest.pop("format", None):
        case {"type": "json_schema", "schema": dict()} as format:
            options["schema"] = {"json_schema": {k: v for k, v in format.items() if k != "type" and v is not None}}
        case None | {"type": "text"}:
            pass
        case other:
            rest["format"] = other
    return rest


# ── items ─────────────────────────────────────────────────────────────────────


class _Read(Struct, frozen=True):
    """The first items of an input, read with these tools. `parts` are those of an open message."""

    tools: ClientTools
    messages: tuple[Message, ...] = ()
    parts: tuple[Part, ...] = ()
    call_ids: frozenset[str] = frozenset()
    is_partial: bool = False


def _messages(body: dict[str, Any], stamp: Stamp, tools: ClientTools, memory: MessageMemory | None) -> list[Message]:
    """Decode the items as messages: texts and calls of the assistant in a row are one message.

    `memory` has what the first ones of an earlier request were read as.
    """
    items = body.get("input")
    if isinstance(items, str):
        return [Message("user", (Text(items),))]
    if items is None and body.get("prompt") is not None:  # the endpoint has the messages
        return []
    if not isinstance(items, list):
        raise ValueError("input is neither a string nor a list")
    # If the endpoint stores the conversation, the request has only a part of it.
    is_partial = body.get("previous_response_id") is not None or body.get("conversation") is not None
    kind = (_ITEMS, is_partial)
    start, read = (0, None) if memory is None else memory.find_start(kind, items)
    if read is None or read.tools is not tools:
        start, read = 0, _Read(tools, is_partial=is_partial)
    out, assistant_parts, call_ids, is_partial = [*read.messages], [*read.parts], set(read.call_ids), read.is_partial
    for index in range(start, len(items)):
        item = items[index]
        if not isinstance(item, dict):
            raise ValueError(f"input[{index}] is not an object")
        is_partial = is_partial or item.get("type") == "item_reference"
        try:
            parsed = _item(item, stamp, call_ids, tools, is_partial=is_partial)
        except ValueError as error:
            raise ValueError(f"input[{index}]{error}") from error
        if isinstance(parsed, Message):
            if assistant_parts:
                out.append(Message("assistant", tuple(assistant_parts)))
                assistant_parts = []
            out.append(parsed)
        else:
            assistant_parts += parsed
    if memory is not None and start < len(items):
        read = _Read(tools, tuple(out), tuple(assistant_parts), frozenset(call_ids), is_partial)
        memory.keep_start(kind, items, read, _SIZE * (len(items) - start))
    return [*out, Message("assistant", tuple(assistant_parts))] if assistant_parts else out


def _item(
    item: dict[str, Any], stamp: Stamp, call_ids: set[str], tools: ClientTools, *, is_partial: bool
) -> Message | list[Part]:
    """Decode an item: a message of its own, or parts of an assistant's message."""
    kind = item.get("type")
    match kind:
        case None | "message":
            return _message(item, stamp)
        case "agent_message":
            return _agent_message(item, stamp)
        case "reasoning":
            return [Reasoning(_reasoning_text(item), stamp(item))]
        case "image_generation_call" if isinstance(item.get("result"), str) and item["result"]:
            seal = stamp({"item": {key: value for key, value in item.items() if key != "result"}})
            return [Media(f"image/{item.get('output_format') or 'png'}", item["result"], seal=seal)]
        case "additional_tools":  # they are among the options
            return []
        case "compaction_trigger" | "configuration_update":  # the client's own wish, for any endpoint of this protocol
            return [Opaque(item, Seal(stamp(None).protocol, "", ANY_MODEL))]
        case str() if kind in ITEM_KINDS and (call := _call(item, stamp, tools)) is not None:
            call_ids.add(call.id)
            return [call]
        case "tool_search_output" if is_hosted_call(item) or item.get("call_id") is None:
            return [Opaque(item, stamp(None))]  # the tools in it are offered already
        case "shell_call_output" if item.get("call_id") not in call_ids and not is_partial:
            return [Opaque(item, stamp(None))]  # the output of a shell that the endpoint ran
        case str() if kind in _OUTPUTS and (not is_partial or str(_output_id(item)) in call_ids):
            return Message("tool", (_result(item, stamp, tools),))
    return [Opaque(item, stamp(None))]


def _output_id(item: dict[str, Any]) -> Any:
    """Return the id of the call that an output answers."""
    id = item.get("call_id")
    return item.get("id") if id is None and item.get("type") == "local_shell_call_output" else id


def _message(item: dict[str, Any], stamp: Stamp) -> Message | list[Part]:
    """Decode a message: an assistant's as parts. Raises `ValueError`."""
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise ValueError(f".role {short_text(role)} is not one of {', '.join(_ROLES)}")
    if not isinstance(content, str | list):
        raise ValueError(".content is neither a string nor a list")
    item_keys = {k: v for k, v in item.items() if k not in ("type", "role", "content") and v is not None}
    if role == "assistant":
        return list(_assistant_texts(item, item_keys, content, stamp))
    parts: list[Part] = (
        [Text(content)] if isinstance(content, str) else [_part(p, n, stamp) for n, p in enumerate(content)]
    )
    if item_keys and parts:
        data = {**seal_data(parts[0].seal), "item": item_keys}
        parts[0] = msgspec.structs.replace(parts[0], seal=stamp(data))
    return Message(cast(Role, role), tuple(parts))


def _agent_message(item: dict[str, Any], stamp: Stamp) -> Message:
    """Decode the message of one agent to another as the user's. Raises `ValueError`.

    The client puts what its own model wrote where encrypted text is expected: as such it is a text. An item without
    such text goes back as it is to endpoints of this protocol.
    """
    content = item.get("content")
    if not isinstance(content, str | list | None):
        raise ValueError(".content is neither a string nor a list")
    parts: list[Part] = []
    texts: list[str] = [content] if isinstance(content, str) else []
    is_own = True
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if (plain := _plain_text(part)) is not None:
            is_own = False
            texts.append(plain)
            continue
        match part:
            case {"type": "encrypted_content"}:
                other: Part = Opaque(part, stamp(None))
            case {"text": str(text)}:
                texts.append(text)
                continue
            case _:
                other = _part(part, index, stamp)
        parts += [Text("".join(texts)), other] if texts else [other]
        texts = []
    parts += [Text("".join(texts))] if texts else []
    if is_own and parts:
        parts[0] = msgspec.structs.replace(parts[0], seal=stamp({"item": item}))
    return Message("user", tuple(parts))


def _plain_text(part: Any) -> str | None:
    """Return the text of a part that should be encrypted and is not; None for any other part."""
    match part:
        case {"type": "encrypted_content", "encrypted_content": str(text)} if _ENCRYPTED.fullmatch(text) is None:
            return text
    return None


_ENCRYPTED = re.compile(r"[\w+/-]{40,}={0,2}", re.ASCII)
"""Text that only the endpoint that wrote it can read."""


def _assistant_texts(
    item: dict[str, Any], item_keys: dict[str, Any], content: str | list[Any], stamp: Stamp
) -> Iterator[Part]:
    """Yield the texts of an assistant's message, with a seal if there is more than text."""
    if isinstance(content, str):
        yield Text(content, stamp({"item": item_keys, "part": {}}) if item_keys else None)
        return
    texts = 0
    for index, part in enumerate(content):
        if not isinstance(part, dict):
            raise ValueError(f".content[{index}] is not an object")
        key = "refusal" if part.get("type") == "refusal" else "text"
        if part.get("type") not in (*_TEXT_TYPES, "refusal") or not isinstance(part.get(key), str):
            yield Opaque({**item, "content": [part]}, stamp(None))
            continue
        part_keys = {k: v for k, v in part.items() if k != key and (k != "type" or v not in _TEXT_TYPES)}
        if part_keys or item_keys or len(content) > 1:
            seal = {"item": item_keys, "part": part_keys} | ({"at": index} if texts else {})
            yield Text(part[key], stamp(seal))
        else:
            yield Text(part[key])
        texts += 1


def _part(part: Any, index: int, stamp: Stamp) -> Part:
    """Decode a part of a user's message. Raises `ValueError`."""
    if not isinstance(part, dict):
        raise ValueError(f".content[{index}] is not an object")
    kind = part.get("type")
    if kind in _TEXT_TYPES:
        if not isinstance(part.get("text"), str):
            raise ValueError(f".content[{index}].text is not a string")
        rest = {k: v for k, v in part.items() if k not in ("type", "text") and v is not None}
        return Text(part["text"], stamp({"part": rest}) if rest else None)
    if (media := _media(part)) is None:
        return Opaque(part, stamp(None))
    keys = _other_keys(part)
    return msgspec.structs.replace(media, seal=stamp({"part": keys})) if keys else media


def _other_keys(part: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a medium that no other protocol knows."""
    known = _MEDIA_KEYS if part["type"] == "input_image" else _MEDIA_KEYS - {"detail"}
    return {key: value for key, value in part.items() if key not in known and value is not None}


_MEDIA_KEYS = frozenset(("type", "image_url", "detail", "input_audio", "file_data", "file_url", "filename", "file_id"))


def _media(part: dict[str, Any]) -> Media | None:
    """Decode a picture, a sound or a file; None for anything else, or a medium stored at the endpoint."""
    match part:
        case {"type": "input_image", "image_url": str(url)}:
            extra = {"detail": part["detail"]} if part.get("detail") is not None else None
            return from_url(url, "image", extra)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            return Media(f"audio/{kind}", data)
        case {"type": "input_file"} if part.get("file_id") is None:
            return as_media({key: value for key, value in part.items() if key in _MEDIA_KEYS - {"detail"}})
    return None


def _reasoning_text(item: dict[str, Any]) -> str:
    """Return the text of a reasoning item. Raises `ValueError`."""
    for field in ("summary", "content"):
        parts = item.get(field)
        if parts is not None and not isinstance(parts, list):
            raise ValueError(f".{field} is not a list")
        if text := "".join(str(p.get("text") or "") for p in parts or () if isinstance(p, dict)):
            return text
    return ""


def _call(item: dict[str, Any], stamp: Stamp, tools: ClientTools) -> ToolCall | None:
    """Decode a call; None for one that the endpoint executed itself. Raises `ValueError`."""
    match item["type"]:
        case "custom_tool_call":
            id, name, input = (_text(item, key) for key in ("call_id", "name", "input"))
            function = tools.function_name(name, _namespace(item))
            return ToolCall(id, function, *custom_arguments(input), seal=_call_seal(item, stamp))
        case "tool_search_call":
            if is_hosted_call(item) or not isinstance(item.get("call_id"), str):
                return None
            return _own_call(item["call_id"], tools.function_name("tool_search"), item.get("arguments"))
        case "local_shell_call":
            name = tools.function_name("local_shell", own_space("local_shell"))
            return _own_call(str(_output_id(item) or item.get("id") or ""), name, built_in_arguments(item))
        case "shell_call" | "apply_patch_call" as kind:
            if is_hosted_call(item):
                return None
            name = tools.function_name(ITEM_KINDS[kind], own_space(ITEM_KINDS[kind]))
            call = _own_call(_text(item, "call_id"), name, built_in_arguments(item))
            return msgspec.structs.replace(call, seal=_call_seal(item, stamp))
    id, name, raw = (_text(item, key) for key in ("call_id", "name", "arguments"))
    call = _own_call(id, tools.function_name(name, _namespace(item)), raw)
    own_keys = ("type", "call_id", "name", "arguments", "namespace")
    other_keys = {k: v for k, v in item.items() if k not in own_keys and v is not None}
    return msgspec.structs.replace(call, seal=stamp(other_keys)) if other_keys else call


def _call_seal(item: dict[str, Any], stamp: Stamp) -> Seal | None:
    """Return the seal of a call that goes back as an item of another type, with the keys that both types have."""
    keys = {key: item[key] for key in ("caller", "async") if item.get(key) is not None}
    return stamp(keys) if keys else None


def _text(item: dict[str, Any], key: str) -> str:
    """Return a field that is a string. Raises `ValueError`."""
    value = item.get(key)
    if not isinstance(value, str):
        raise ValueError(f".{key} is not a string")
    return value


def _namespace(item: dict[str, Any]) -> str | None:
    """Return the namespace of a call. Raises `ValueError`."""
    return None if item.get("namespace") is None else _text(item, "namespace")


def _own_call(id: str, name: str, arguments: Any) -> ToolCall:
    """Return a call whose arguments are an object, or the text of one."""
    if isinstance(arguments, str):
        decoded, problem = decode_arguments(arguments)
        return ToolCall(id, name, decoded, arguments, "wire", problem)
    arguments = arguments if isinstance(arguments, dict) else {}
    return ToolCall(id, name, arguments, msgspec.json.encode(arguments).decode())


def _result(item: dict[str, Any], stamp: Stamp, tools: ClientTools) -> ToolResult:
    """Decode a tool result. Raises `ValueError`."""
    id, output = _output_id(item), item.get("output")
    name: str | None = None
    is_error = False
    match item["type"]:
        case "function_call_output" if id is None:  # it may name the tool alone
            own_name = item.get("name")
            id, name = "", tools.function_name(own_name, item.get("namespace")) if isinstance(own_name, str) else None
        case "tool_search_output":
            output = _found_tools(item.get("tools"), tools)
        case "shell_call_output" if isinstance(output, list):
            output = _shell_text(output)
        case "apply_patch_call_output":
            is_error = item.get("status") == "failed"
            output = output or ("The change failed." if is_error else "The file is changed.")
    if not isinstance(id, str):
        raise ValueError(".call_id is not a string")
    if not isinstance(output, str | list):
        raise ValueError(".output is neither a string nor a list")
    if item["type"] != "function_call_output":
        item = {key: item[key] for key in ("type", "caller") if key in item}  # its id is of another type of item
    item_keys = {k: v for k, v in item.items() if k not in ("type", "call_id", "output") and v is not None}
    seal: dict[str, Any] = {"item": item_keys} if item_keys else {}
    if isinstance(output, str):
        return ToolResult(id, output, name, is_error, (), stamp(seal) if seal else None)
    parts, is_complete = _output(output, stamp)
    if not is_complete:
        seal["output"] = output
    result = result_of(id, parts, name, error=is_error)
    return msgspec.structs.replace(result, seal=stamp(seal)) if seal else result


def _shell_text(output: list[Any]) -> str:
    """Return the output of a shell's commands as text, with how each of them ended."""
    texts: list[str] = []
    for entry in output:
        entry = entry if isinstance(entry, dict) else {}
        outcome = entry.get("outcome")
        outcome = outcome if isinstance(outcome, dict) else {}
        texts += [text for key in ("stdout", "stderr") if isinstance(text := entry.get(key), str) and text]
        if outcome.get("type") == "timeout":
            texts.append("[the command took too long and was ended]")
        elif outcome.get("exit_code") is not None:
            texts.append(f"[exit code {outcome['exit_code']}]")
    return "\n".join(text.rstrip("\n") for text in texts)


def _found_tools(found: Any, tools: ClientTools) -> str:
    """Return the result of a search for tools: the names of the functions that are offered from now on."""
    entries = found if isinstance(found, list) else ()
    names = [name for entry in entries if isinstance(entry, dict) for name in tools.names_in(entry)]
    return f"These functions can be called now: {', '.join(names)}" if names else "No tool was found."


def _output(output: list[Any], stamp: Stamp) -> tuple[list[Part], bool]:
    """Return the parts of a result; False if they do not express its content and its order."""
    parts: list[Part] = []
    is_complete = True
    for part in output:
        if (plain := _plain_text(part)) is not None:
            part = {"type": "input_text", "text": plain}
        part_object = part if isinstance(part, dict) else {}
        medium = _media(part_object)
        if medium is not None:
            parts.append(medium)
            is_complete = is_complete and not _other_keys(part_object)
        elif part_object.get("type") in _TEXT_TYPES and isinstance(part_object.get("text"), str):
            is_complete = is_complete and not parts and len(part_object) == 2
            parts.append(Text(part_object["text"]))
        else:
            parts.append(Opaque(part, stamp(None)))
            is_complete = False
    return parts, is_complete and (Media in map(type, parts) or not output)
