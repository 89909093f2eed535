"""Convert what a message holds from and to dicts, and read what a caller writes as its content.

The dicts have OpenAI's shape. Where that shape would lose something, they also have cnllm's own (`parts`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import count
from typing import Any, cast

import msgspec

from cnllm.types import checks
from cnllm.types.checks import message_fault
from cnllm.types.json_form import encode_json, plain_value
from cnllm.types.lenient_json import decode_arguments
from cnllm.types.media import MediaKind, as_media, data_url, from_url, is_file_part, media_kind, sound_format
from cnllm.types.parts import (
    CACHE_MARK,
    CACHE_MARKS,
    MESSAGE_KEYS,
    ROLES,
    Fields,
    Media,
    Opaque,
    Part,
    Reasoning,
    Role,
    Seal,
    Text,
    ToolCall,
    ToolResult,
)
from cnllm.types.tools import custom_arguments

__all__ = [
    "call_of",
    "content_part",
    "content_parts",
    "dict_of_message",
    "is_content_of",
    "message_fields",
    "result_of",
    "result_parts",
    "result_text",
    "text_with_error",
    "tool_result",
    "with_content",
    "with_error",
    "wrong_role",
]

_KNOWN_KEYS = MESSAGE_KEYS | {"refusal", "error", "function_call"}
_ASSISTANT_KEYS = frozenset(["reasoning", "reasoning_content", "refusal", "tool_calls", "function_call"])
_EXPECTED = "a string, a part (cnllm.Text, cnllm.Media, …), or a list of them"
_PARTS = (Text, Media, Reasoning, ToolCall, ToolResult, Opaque)


def content_parts(place: str, content: Any, role: Role = "user") -> tuple[Part, ...]:
    """Return the parts of a content. Raises `TypeError` or `ValueError` with the place."""
    if type(content) is str:
        return (Text(content),) if content else ()
    if not isinstance(content, (str, Mapping, list, tuple, *_PARTS)):
        raise checks.wrong_type(place, content, _EXPECTED)
    parts: list[Part] = []
    for item in content if isinstance(content, list | tuple) else [content]:
        if isinstance(item, _PARTS):
            parts.append(item)
            continue
        try:
            parts += message_fields({"role": role, "content": [item]})[1]
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{place}: {error}") from error
    return tuple(parts)


def tool_result(id: str, content: Any, name: str | None = None, *, error: bool = False) -> ToolResult:
    """Return the result of a call. Raises `TypeError` for a content that is neither text nor media."""
    checks.require_text("id", id)
    if name is not None:
        checks.require_text("name", name)
    checks.require_type("error", error, bool, "True or False")
    parts = content_parts("content", content)
    for part in parts:
        if not isinstance(part, Text | Media | Opaque):
            raise checks.wrong_type("content", part, "a string, a Text, a Media, or a list of them")
    return result_of(id, parts, name, error=error)


def result_of(id: str, parts: Iterable[Part], name: str | None, *, error: bool) -> ToolResult:
    """Return the result of a call with these parts as its content."""
    return with_content(ToolResult(id, "", name, error), parts)


def with_content(result: ToolResult, parts: Iterable[Part]) -> ToolResult:
    """Return a result with these parts as its content."""
    parts = [part for part in parts if isinstance(part, Media | Opaque) or (isinstance(part, Text) and part.text)]
    texts = [part.text for part in parts if isinstance(part, Text)]
    media = [part for part in parts if isinstance(part, Media)]
    blocks = [part for part in parts if isinstance(part, Opaque)]
    media_places, block_places = count(), count(len(media))
    order: list[str | int] = [
        part.text if isinstance(part, Text) else next(media_places if isinstance(part, Media) else block_places)
        for part in parts
    ]
    usual = [*texts, *range(len(media) + len(blocks))]
    return msgspec.structs.replace(
        result,
        text=result_text(texts),
        media=tuple(media),
        blocks=tuple(blocks),
        order=() if order == usual else tuple(order),
    )


def result_parts(result: ToolResult) -> list[Text | Media | Opaque]:
    """Return the content of a result in its order."""
    inside: list[Media | Opaque] = [*result.media, *result.blocks]
    texts = [piece for piece in result.order if isinstance(piece, str)]
    places = [piece for piece in result.order if not isinstance(piece, str)]
    if result_text(texts) != result.text or sorted(places) != [*range(len(inside))]:
        return [*([Text(result.text)] if result.text.strip() else []), *inside]
    return [Text(piece) if isinstance(piece, str) else inside[piece] for piece in result.order]


def message_fields(data: Mapping[str, Any]) -> Fields:
    """Return the fields of the message of a dict (see `Message.from_dict`)."""
    if type(data) is not dict:
        data = checks.as_dict("data", data, "a dict with the keys of a message")
    role = data.get("role")
    if type(role) is not str:
        role = _plain_string(role)
    if len(data) == 3 and role == "tool" and type(data.get("content")) is type(data.get("tool_call_id")) is str:
        return "tool", (ToolResult(data["tool_call_id"], data["content"]),), None, None, None
    if role not in ROLES:
        raise wrong_role(data.get("role"))
    by, name = data.get("by"), data.get("name")
    for key, value in (("by", by), ("name", name)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{key} is {type(value).__name__}, a string is expected")
    extra = None if data.keys() <= _KNOWN_KEYS else {k: v for k, v in data.items() if k not in _KNOWN_KEYS}
    parts = _flat_parts(role, data)
    if data.get("parts") is not None:
        parts = _merge_edits(role, _decode_parts(data["parts"]), parts, data)
    return role, tuple(parts), by, name, extra


def wrong_role(role: Any) -> ValueError:
    """Return the error for a role that no message has."""
    return ValueError(f"role {checks.short_text(role)} is none of {', '.join(ROLES)}")


def dict_of_message(fields: Fields) -> dict[str, Any]:
    """Return the dict of a message with these fields (see `Message.to_dict`)."""
    role, parts, by, name, extra = fields
    if len(parts) == 1 and role != "tool" and extra is None and (text := _plain_text(parts[0])):
        spoken = {"role": role, "content": text} if name is None else {"role": role, "name": name, "content": text}
        return spoken if by is None else {**spoken, "by": by}
    if not all(map(checks.has_plain_fields, parts)) and (fault := message_fault("", fields)) is not None:
        raise fault
    try:
        out = _flat(fields)
        if _flat_parts(role, out) != list(parts):
            out["parts"] = msgspec.to_builtins(parts, enc_hook=plain_value)
    except checks.FAILURES as error:
        if (fault := message_fault("", fields)) is not None:
            raise fault from error
        raise
    if name is not None:
        out["name"] = name
    return out


def _plain_text(part: Part) -> str | None:
    """Return the text of a part that the flat keys hold as it is; None for another part."""
    if type(part) is Text and type(part.text) is str and part.seal is None and part.extra is None:
        return part.text
    return None


def _flat(fields: Fields) -> dict[str, Any]:
    """Return the flat keys of a message."""
    role, parts, by, name, extra = fields
    further = {**({"by": by} if by is not None else {}), **(extra or {})}  # keys beyond those of OpenAI
    out: dict[str, Any] = {"role": role}
    if role == "tool":
        if result := next((p for p in parts if type(p) is ToolResult), None):
            out["tool_call_id"] = result.id
            if result.name:
                out["name"] = result.name
            media = [part for part in result_parts(result) if type(part) is not Opaque]
            out["content"] = _content(media if result.order else [Text(result.text), *result.media])
            if result.error:
                out["error"] = True
        return {**out, **further}
    if name is not None:
        out["name"] = name
    if reasoning := "".join([p.text for p in parts if type(p) is Reasoning]):
        out["reasoning"] = reasoning
    calls = [p for p in parts if type(p) is ToolCall]
    content = _content([p for p in parts if type(p) in (Text, Media)])
    out["content"] = content if content or not calls else None
    if calls:
        out["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": _arguments(c)}} for c in calls
        ]
    return {**out, **further}


def _arguments(call: ToolCall) -> str:
    """Return the arguments of a call as JSON."""
    return call.raw or encode_json(call.arguments or {}).decode()


def _content(parts: list[Any]) -> str | list[dict[str, Any]]:
    """Return a string where there is only one plain text, otherwise a list of content parts."""
    if all(type(p) is Text and p.extra is None for p in parts) and len(parts) < 2:
        return "".join(p.text for p in parts)
    return [content_part(p) for p in parts]


def content_part(part: Text | Media) -> dict[str, Any]:
    """Return an OpenAI content part."""
    if type(part) is Text:
        return {"type": "text", "text": part.text} | _further_keys(part.extra, "type", "text")
    media = cast(Media, part)
    extra = _further_keys(media.extra, *CACHE_MARKS)
    mark = _cache_mark(media.extra or {})
    kind = media_kind(media)
    if kind == "audio" and media.data is not None:
        sound = {"data": media.data, "format": sound_format(media)}
        return {"type": "input_audio", "input_audio": sound | _further_keys(extra, *sound), **mark}
    if kind == "file" and media.data is not None:
        return {"type": "file", "file": {"file_data": data_url(media)} | _further_keys(extra, "file_data"), **mark}
    form = f"{kind}_url"
    return {"type": form, form: {"url": data_url(media)} | _further_keys(extra, "url"), **mark}


def result_text(texts: Iterable[str]) -> str:
    """Join the text parts of a tool's result, with a blank line between them."""
    return "\n\n".join(filter(None, texts))


def is_content_of(result: ToolResult, content: list[Any], kinds: Collection[str]) -> bool:
    """Whether content with texts of these types is that of a result: nobody has changed its text, media or blocks."""
    texts = [p["text"] for p in content if type(p) is dict and p.get("type") in kinds and type(p.get("text")) is str]
    return result_text(texts) == result.text and len(content) - len(texts) == len(result.media) + len(result.blocks)


_ERROR = "Error: "
_ERROR_WORDS = r"(?i)\W*(?:\w*(?:error|exception|failure)\b|failed\b|traceback\b|错误|失败)"


def text_with_error(result: ToolResult) -> str:
    """Return the text of a result for a wire without a field for failures: that of a failure begins with the word."""
    if not result.error or re.match(_ERROR_WORDS, result.text):
        return result.text
    return f"{_ERROR}{result.text if result.text.strip() else 'the tool failed'}"


def with_error(result: ToolResult) -> ToolResult:
    """Return a result with the text that says that it is a failure (`text_with_error`), in the same order."""
    text = text_with_error(result)
    if text == result.text:
        return result
    first = next((place for place, piece in enumerate(result.order) if isinstance(piece, str)), None)
    order = tuple(f"{_ERROR}{piece}" if place == first else piece for place, piece in enumerate(result.order))
    return msgspec.structs.replace(result, text=text, order=order)


def _further_keys(extra: dict[str, Any] | None, *own: str) -> dict[str, Any]:
    """Return the further keys of a part, without its own."""
    return {k: v for k, v in (extra or {}).items() if k not in own}


def _flat_parts(role: str, data: Mapping[str, Any]) -> list[Part]:
    """Return the parts that the flat keys describe."""
    content = data.get("content")
    if type(content) is str and role in ("user", "system") and (len(data) == 2 or _ASSISTANT_KEYS.isdisjoint(data)):
        return [Text(content)] if content else []
    if role == "tool":
        id, error = _text_value(data, "tool_call_id"), _as_bool(data.get("error"))
        inner = _content_parts(content)
        result = result_of(id, inner, data.get("name"), error=error)
        return [_with_keys(result, inner)]
    parts: list[Part] = []
    if reasoning := _plain_string(data.get("reasoning")) or _plain_string(data.get("reasoning_content")):
        parts.append(Reasoning(reasoning))
    parts += _content_parts(content)
    if refusal := _plain_string(data.get("refusal")):
        parts.append(Text(f"\n\n{refusal}" if any(type(part) is Text for part in parts) else refusal))
    calls = data.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise TypeError(f"tool_calls is {type(calls).__name__}, a list is expected")
    if not calls and isinstance(call := data.get("function_call"), Mapping):  # the older form
        calls = [{"function": call}]
    if calls:
        parts += [call_of(call, index) for index, call in enumerate(calls)]
    return parts


def _plain_string(value: Any) -> str:
    """Return a string of any class as a plain one; an empty one for any other value."""
    return value if type(value) is str else str.__str__(value) if isinstance(value, str) else ""


def _with_keys(result: ToolResult, parts: Iterable[Part]) -> ToolResult:
    """Return a result with the further keys of its texts, the last of each, sealed for the wire that has such a place.

    On Messages a result itself has the cache mark; on chat completions its texts have the others.
    """
    keys = {key: value for part in parts if type(part) is Text and part.extra for key, value in part.extra.items()}
    if not keys:
        return result
    protocol = "anthropic-messages" if CACHE_MARK in keys else "openai-chat"
    data = {CACHE_MARK: keys[CACHE_MARK]} if CACHE_MARK in keys else keys
    return msgspec.structs.replace(result, seal=Seal(protocol, "", "", data))


def _content_parts(content: Any) -> list[Part]:
    """Return the content of a message as parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(str.__str__(content))] if content else []
    if isinstance(content, tuple):
        content = list(content)
    if not isinstance(content, list):
        raise TypeError(f"content is {type(content).__name__}; a string, None or a list of parts is expected")
    return [_part(item) for item in content]


def _cache_mark(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a content part that mark a prefix for the prompt cache; nothing where it has none."""
    return {key: item[key] for key in CACHE_MARKS if item.get(key) is not None}


def _part(item: Any) -> Part:
    """Return a content part as a part."""
    if isinstance(item, str):
        return Text(item)
    if type(item) is not dict:
        item = checks.as_dict("content: a content part", item)
    kind = item.get("type")
    if type(kind) is not str:
        return Opaque(dict(item))
    if kind in ("text", "input_text", "output_text") and isinstance(item.get("text"), str):
        return Text(item["text"], None, {k: v for k, v in item.items() if k not in ("type", "text")} or None)
    if kind in ("image_url", "video_url"):
        inner = checks.plain(kind, item.get(kind))
        table = {"url": inner} if isinstance(inner, str) else inner if type(inner) is dict else {}
        if isinstance(url := table.get("url"), str):
            extra = {k: v for k, v in table.items() if k != "url"}
            return from_url(url, cast(MediaKind, kind.removesuffix("_url")), {**extra, **_cache_mark(item)} or None)
    sound = checks.plain("input_audio", item.get("input_audio")) if kind == "input_audio" else None
    if type(sound) is dict and isinstance(data := sound.get("data"), str) and ":" not in data[:12]:
        extra = {k: v for k, v in sound.items() if k not in ("data", "format")} | _cache_mark(item)
        mime = f"audio/{checks.as_text('format', sound.get('format', 'wav'))}"
        return Media(mime, data, None, None, extra or None)
    if is_file_part(item) and (media := as_media(item)) is not None:
        mark = _cache_mark(item) if kind == "file" else {}
        return msgspec.structs.replace(media, extra={**(media.extra or {}), **mark}) if mark else media
    if kind == "refusal" and isinstance(item.get("refusal"), str):
        return Text(item["refusal"], None, _cache_mark(item) or None)
    return Opaque(dict(item))


def call_of(data: Any, index: int) -> ToolCall:
    """Return a call of a dict as a ToolCall; that of a custom tool is one of the function for it."""
    place = f"tool_calls[{index}]"
    data = checks.plain(place, data)
    if type(data) is not dict:
        raise TypeError(f"{place} is {type(data).__name__}, a dict is expected")
    if _plain_string(data.get("type")) == "custom" and isinstance(data.get("custom"), Mapping):
        return _custom_call(place, data)
    function = checks.plain(place, data.get("function", data))
    if type(function) is not dict or type(function.get("name")) is not str:
        raise ValueError(f"{place} has no function name")
    arguments = function.get("arguments")
    if type(arguments) is not str and isinstance(arguments, Mapping):
        table = checks.as_dict(f"{place}.function.arguments", arguments)
        checks.check_finite(f"{place}.function.arguments", table)
        return ToolCall(_text_value(data, "id"), function["name"], table, "")
    if arguments is not None and not isinstance(arguments, str):
        checks.check_json_value(f"{place}.function.arguments", arguments)
    raw = arguments if isinstance(arguments, str) else "" if arguments is None else encode_json(arguments).decode()
    decoded, problem = decode_arguments(raw)
    return ToolCall(_text_value(data, "id"), function["name"], decoded, raw, "wire", problem)


def _custom_call(place: str, data: dict[str, Any]) -> ToolCall:
    """Return the call of a custom tool. Its input is a text, and a missing one is empty."""
    custom = checks.as_dict(f"{place}.custom", data["custom"])
    input = "" if custom.get("input") is None else custom["input"]
    checks.require_text(f"{place}.custom.name", custom.get("name"))
    checks.require_text(f"{place}.custom.input", input)
    return ToolCall(_text_value(data, "id"), custom["name"], *custom_arguments(input))


def _text_value(data: Mapping[str, Any], key: str) -> str:
    """Return the text under a key; empty where the key is missing."""
    value = data.get(key)
    return _plain_string(value) if value is None or isinstance(value, str) else checks.as_text(key, value)


def _as_bool(value: Any) -> bool:
    """Whether `error` marks a failure, by Python's truth of any value."""
    try:
        return bool(value)
    except Exception as error:
        raise checks.unreadable("error", error) from error


def _decode_parts(parts: Any) -> list[Part]:
    """Return the key `parts` as parts. Raises `ValueError` or `TypeError` naming the place."""
    try:
        return msgspec.convert(parts, list[Part])
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise ValueError(f"parts{place.rstrip('`')}: {problem.lower()}") from None
    except Exception as error:  # a caller's object that raises while it is read, or one that holds itself
        raise checks.unreadable("parts", error) from error


def _merge_edits(role: Role, parts: list[Part], flat: list[Part], data: Mapping[str, Any]) -> list[Part]:
    """Return the parts with the edits of the flat keys.

    A flat key that differs from `parts` was edited: it wins, and the parts it replaces have no seal.
    """
    derived = _flat_parts(role, _flat((role, tuple(parts), None, None, None)))
    if role == "tool":  # the flat keys hold the first result only
        first = next((i for i, p in enumerate(parts) if type(p) is ToolResult), None)
        if first is None or flat == derived:
            return parts if flat == derived else [*flat, *parts]
        return [*parts[:first], *flat, *parts[first + 1 :]]
    out = _replace_parts(parts, flat, derived, (Reasoning,), ("reasoning", "reasoning_content"), data)
    out = _replace_parts(out, flat, derived, (Text, Media), ("content",), data)
    return _replace_calls(out, flat, derived) if "tool_calls" in data else out


def _replace_parts(
    parts: list[Part],
    flat: list[Part],
    derived: list[Part],
    kinds: tuple[type, ...],
    keys: tuple[str, ...],
    data: Mapping[str, Any],
) -> list[Part]:
    """Return the parts with those of some kinds replaced together, if one of their flat keys was edited."""
    edited = [p for p in flat if type(p) in kinds]
    if not any(key in data for key in keys) or edited == [p for p in derived if type(p) in kinds]:
        return parts
    index = next((i for i, p in enumerate(parts) if type(p) in kinds), None)
    if index is None:
        calls = (i for i, p in enumerate(parts) if type(p) is ToolCall)
        index = 0 if Reasoning in kinds else next(calls, len(parts))
    before = [p for p in parts[:index] if type(p) not in kinds]
    return [*before, *edited, *(p for p in parts[index:] if type(p) not in kinds)]


def _replace_calls(parts: list[Part], flat: list[Part], derived: list[Part]) -> list[Part]:
    """Return the parts with each edited call in the form of its flat key; other calls stay."""
    edited = [p for p in flat if type(p) is ToolCall]
    derived_calls = [p for p in derived if type(p) is ToolCall]
    if edited == derived_calls:
        return parts
    calls = [p for p in parts if type(p) is ToolCall]
    if len(calls) != len(derived_calls):  # a role whose flat keys hold no calls
        return parts
    by_form = {(form.id, form.name, form.raw): (form, old) for old, form in zip(calls, derived_calls, strict=True)}
    rest = [p for p in parts if type(p) is not ToolCall]
    out: list[Part] = [*rest]
    for call in edited:
        form, old = by_form.get((call.id, call.name, call.raw), (None, call))
        out.append(old if form == call else call)
    return out
