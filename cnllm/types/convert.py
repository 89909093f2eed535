"""Messages in and out of dicts: OpenAI's shape, and ours beside it where that would lose something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult, checks
from cnllm.types.arguments import decode_arguments
from cnllm.types.media import as_media, data_url, is_file_part, media_kind

__all__ = ["as_messages", "from_dict", "message_fault", "result_text", "struct_fault", "to_dict"]

_ROLES = ("system", "developer", "user", "assistant", "tool")
_KNOWN = {
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "reasoning",
    "reasoning_content",
    "by",
    "parts",
}
_KNOWN |= {"refusal", "error"}
_PLAIN = ("user", "assistant", "system")
_PARTS = frozenset([Text, Reasoning, Media, ToolCall, ToolResult, Opaque])
_EXPECTED = "a string, a cnllm.Message, a dict, or a list of these"


def as_messages(given: str | Message | Mapping[str, Any] | Iterable[Any]) -> list[Message]:
    """A string, messages, dicts, or a mixture → messages. Raises `TypeError` or `ValueError` naming the message."""
    if isinstance(given, str):
        return [Message("user", (Text(given),))]
    if isinstance(given, Message | Mapping):
        given = [given]
    elif type(given) is not list:
        given = checks.as_list("messages", given, _EXPECTED)
    out: list[Message] = []
    for index, item in enumerate(given):
        if type(item) is Message:
            out.append(item)
        elif isinstance(item, str):
            out.append(Message("user", (Text(item),)))
        elif type(item) is dict or isinstance(item, Mapping):
            try:
                out.append(from_dict(item))
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"messages[{index}]: {error}") from error
        else:
            raise checks.wrong_type(f"messages[{index}]", item, "a string, a cnllm.Message or a dict")
    return out


def from_dict(data: Mapping[str, Any]) -> Message:
    """See `Message.from_dict`."""
    if type(data) is not dict:
        data = checks.as_dict("data", data, "a dict with the keys of a message")
    role = data.get("role")
    if type(role) is not str:
        role = _role(role)
    if len(data) == 2 and role in _PLAIN and type(content := data.get("content")) is str and content:
        return Message(role, (Text(content),))  # most messages of most histories
    if len(data) == 3 and role == "tool" and type(data.get("content")) is type(data.get("tool_call_id")) is str:
        return Message(role, (ToolResult(data["tool_call_id"], data["content"]),))
    if role not in _ROLES:
        raise ValueError(f"role {checks.short_text(role)} is none of {', '.join(_ROLES)}")
    by, name = data.get("by"), data.get("name")
    for key, value in (("by", by), ("name", name)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{key} is {type(value).__name__}, a string is meant")
    extra = None if data.keys() <= _KNOWN else {k: v for k, v in data.items() if k not in _KNOWN}
    parts = _flat_parts(role, data)
    if data.get("parts") is not None:
        parts = _edited(role, _converted(data["parts"]), parts, data)
    return Message(role, tuple(parts), by, name, extra)


def _role(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"role {checks.short_text(given)} is none of {', '.join(_ROLES)}")
    return str.__str__(given)


def to_dict(message: Message) -> dict[str, Any]:
    """See `Message.to_dict`."""
    try:
        return _to_dict(message)
    except checks.FAILURES as error:
        if (named := message_fault("", message)) is not None:
            raise named from error
        raise


def _to_dict(message: Message) -> dict[str, Any]:
    out = _flat(message)
    if _flat_parts(message.role, out) != list(message.parts):
        out["parts"] = msgspec.to_builtins(message.parts, enc_hook=_json_value)
    if message.name is not None:
        out["name"] = message.name
    return out


def _json_value(value: Any) -> Any:
    """A caller's subclass or look-alike of a type of JSON's as that type."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"JSON cannot hold {checks.kind_of(value)}")


def _flat(message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role}
    if message.role == "tool":
        results = [p for p in message.parts if type(p) is ToolResult]
        if results:
            out["tool_call_id"] = results[0].id
            if results[0].name:
                out["name"] = results[0].name
            out["content"] = _content([Text(results[0].text), *results[0].media])
            if results[0].error:
                out["error"] = True
        return {**out, **_tail(message)}
    if message.name is not None:
        out["name"] = message.name
    if reasoning := message.reasoning:
        out["reasoning"] = reasoning
    calls = message.tool_calls
    content = _content([p for p in message.parts if type(p) in (Text, Media)])
    out["content"] = content if content or not calls else None
    if calls:
        out["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.raw or _dumps(c)}}
            for c in calls
        ]
    return {**out, **_tail(message)}


def _tail(message: Message) -> dict[str, Any]:
    return {**({"by": message.by} if message.by is not None else {}), **(message.extra or {})}


def _dumps(call: ToolCall) -> str:
    return _json(call.arguments or {})


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        import json

        return json.dumps(value)  # half of a character, as an escape


def _content(parts: list[Any]) -> str | list[dict[str, Any]]:
    """A string where all is plain text, else a list of content parts."""
    if all(type(p) is Text and p.extra is None for p in parts) and len(parts) < 2:
        return "".join(p.text for p in parts)
    return [content_part(p) for p in parts]


def content_part(part: Text | Media) -> dict[str, Any]:
    """An OpenAI content part."""
    if type(part) is Text:
        return {"type": "text", "text": part.text} | _beside(part.extra, "type", "text")
    media = cast(Media, part)
    extra = media.extra or {}
    kind = media_kind(media)
    if kind == "audio" and media.data is not None:
        sound = {"data": media.data, "format": media.type.partition("/")[2]}
        return {"type": "input_audio", "input_audio": sound | _beside(extra, *sound)}
    if kind == "file" and media.data is not None:
        return {"type": "file", "file": {"file_data": data_url(media)} | _beside(extra, "file_data")}
    form = f"{kind}_url"
    return {"type": form, form: {"url": data_url(media)} | _beside(extra, "url")}


def result_text(texts: Iterable[str]) -> str:
    """The text parts of a tool's result as one text, a blank line between them."""
    return "\n\n".join(filter(None, texts))


def _beside(extra: dict[str, Any] | None, *own: str) -> dict[str, Any]:
    """Further keys of a part, those aside that it has itself."""
    return {k: v for k, v in (extra or {}).items() if k not in own}


def _flat_parts(role: str, data: Mapping[str, Any]) -> list[Part]:
    """What the flat keys say, as parts."""
    content = data.get("content")
    if type(content) is str and role in ("user", "system"):
        return [Text(content)] if content else []
    if role == "tool":
        texts = _parts_of(content)
        return [
            ToolResult(
                _string(data, "tool_call_id"),
                result_text([p.text for p in texts if type(p) is Text]),
                data.get("name"),
                data.get("error") is True or bool(_flag(data.get("error"))),
                tuple(p for p in texts if type(p) is Media),
            )
        ]
    parts: list[Part] = []
    reasoning = data.get("reasoning") or data.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        parts.append(Reasoning(reasoning))
    parts += _parts_of(content)
    if isinstance(data.get("refusal"), str) and data["refusal"] and not parts:
        parts.append(Text(data["refusal"]))
    calls = data.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise TypeError(f"tool_calls is {type(calls).__name__}, a list is meant")
    if calls:
        parts += [_call(call, index) for index, call in enumerate(calls)]
    return parts


def _parts_of(content: Any) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(str.__str__(content))] if content else []
    if isinstance(content, tuple):
        content = list(content)
    if not isinstance(content, list):
        raise TypeError(f"content is {type(content).__name__}; a string, None or a list of parts is meant")
    return [_part(item) for item in content]


def _part(item: Any) -> Part:
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
        inner = item.get(kind)
        if type(inner) is not dict and isinstance(inner, Mapping):
            inner = checks.as_dict(kind, inner)
        where = inner if isinstance(inner, str) else inner.get("url") if isinstance(inner, Mapping) else None
        if isinstance(where, str):
            extra = {k: v for k, v in inner.items() if k != "url"} if isinstance(inner, Mapping) else {}
            return _media(where, kind.removesuffix("_url"), extra or None)
    sound = item.get("input_audio")
    if type(sound) is not dict and isinstance(sound, Mapping):
        sound = checks.as_dict("input_audio", sound)
    if (
        kind == "input_audio"
        and isinstance(sound, Mapping)
        and isinstance(sound.get("data"), str)
        and ":" not in sound["data"][:12]
    ):
        extra = {k: v for k, v in sound.items() if k not in ("data", "format")}
        return Media(
            f"audio/{checks.as_text('format', sound.get('format', 'wav'))}", sound["data"], None, None, extra or None
        )
    if is_file_part(item) and (found := as_media(item)) is not None:
        return found
    return Opaque(dict(item))


def _media(url: str, kind: str, extra: dict[str, Any] | None) -> Media:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return Media(head[5:-7], data, None, None, extra)
    return Media(kind, None, url, None, extra)


def _call(data: Any, index: int) -> ToolCall:
    if type(data) is not dict and not isinstance(data, Mapping):
        raise TypeError(f"tool_calls[{index}] is {type(data).__name__}, a dict is meant")
    if type(data) is not dict:
        data = checks.as_dict(f"tool_calls[{index}]", data)
    function = data.get("function", data)
    if type(function) is not dict and isinstance(function, Mapping):
        function = checks.as_dict(f"tool_calls[{index}].function", function)
    if not (type(function) is dict or isinstance(function, Mapping)) or type(function.get("name")) is not str:
        raise ValueError(f"tool_calls[{index}] has no function name")
    arguments = function.get("arguments")
    if type(arguments) is not str and isinstance(arguments, Mapping):
        table = checks.as_dict(f"tool_calls[{index}].function.arguments", arguments)
        return ToolCall(_string(data, "id"), function["name"], table, "")
    if arguments is not None and not isinstance(arguments, str):
        checks.check_json_value(f"tool_calls[{index}].function.arguments", arguments)
    raw = arguments if isinstance(arguments, str) else "" if arguments is None else _json(arguments)
    decoded, problem = decode_arguments(raw)
    return ToolCall(_string(data, "id"), function["name"], decoded, raw, "wire", problem)


def _string(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else "" if value is None else checks.as_text(key, value)


def _flag(value: Any) -> bool:
    """Whether `error` marks a failure, as Python reads any value."""
    try:
        return bool(value)
    except Exception as error:
        raise checks.unreadable("error", error) from error


def _converted(parts: Any) -> list[Part]:
    """The key `parts` as parts. Raises `ValueError` naming the place."""
    try:
        return msgspec.convert(parts, list[Part])
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$")
        raise ValueError(f"parts{place.rstrip('`')}: {said.lower()}") from None
    except Exception as error:  # a caller's object that raises while it is read, or one that holds itself
        raise checks.unreadable("parts", error) from error


def message_fault(place: str, message: Message) -> Exception | None:
    """Return what is wrong with a message that cannot be written; None for one that can. `place` ends with a dot."""
    for name in ("role", "by", "name"):
        value = getattr(message, name)
        if not isinstance(value, str) and (value is not None or name == "role"):
            return checks.wrong_type(f"{place}{name}", value, "a string")
    for index, part in enumerate(message.parts):
        if type(part) not in _PARTS:
            return checks.wrong_type(
                f"{place}parts[{index}]", part, "a Text, Media, ToolCall or another part of cnllm's"
            )
        if (found := struct_fault(f"{place}parts[{index}]", part)) is not None:
            return found
    return _json_fault(f"{place}extra", message.extra)


def struct_fault(place: str, value: msgspec.Struct) -> Exception | None:
    """Return the error for a field of another type, or one that JSON cannot hold; None where all is well."""
    config = value.__struct_config__
    tag: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    try:
        msgspec.convert({**fields, **tag}, type(value))
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$")
        return TypeError(f"{place}{where.rstrip('`')}: {said[:1].lower()}{said[1:]}")
    except Exception as error:  # noqa: BLE001  a caller's object that raises while it is read
        return checks.unreadable(place, error)
    for name, inner in fields.items():
        if isinstance(inner, msgspec.Struct):
            found = struct_fault(f"{place}.{name}", inner)
        elif name == "media":
            faults = (struct_fault(f"{place}.media[{at}]", one) for at, one in enumerate(inner))
            found = next(filter(None, faults), None)
        else:
            found = _json_fault(f"{place}.{name}", inner)
        if found is not None:
            return found
    return None


def _json_fault(place: str, value: Any) -> Exception | None:
    try:
        checks.check_json_value(place, value)
    except (TypeError, ValueError) as error:
        return error
    return None


def _edited(role: str, kept: list[Part], flat: list[Part], data: Mapping[str, Any]) -> list[Part]:
    """`kept`, except that what a flat key says differently was edited and is as the key says, without a seal."""
    now = _flat_parts(role, _flat(Message(role, tuple(kept))))
    if role == "tool":  # the flat keys tell of the first result alone
        first = next((i for i, p in enumerate(kept) if type(p) is ToolResult), None)
        if first is None or flat == now:
            return kept if flat == now else [*flat, *kept]
        return [*kept[:first], *flat, *kept[first + 1 :]]
    out = _swapped(kept, flat, now, (Reasoning,), ("reasoning", "reasoning_content"), data)
    out = _swapped(out, flat, now, (Text, Media), ("content",), data)
    return _calls_swapped(out, flat, now) if "tool_calls" in data else out


def _swapped(
    kept: list[Part],
    flat: list[Part],
    now: list[Part],
    kinds: tuple[type, ...],
    keys: tuple[str, ...],
    data: Mapping[str, Any],
) -> list[Part]:
    """The parts of some kinds replaced together, if one of their flat keys is there and says something else."""
    said = [p for p in flat if type(p) in kinds]
    if not any(key in data for key in keys) or said == [p for p in now if type(p) in kinds]:
        return kept
    place = next((i for i, p in enumerate(kept) if type(p) in kinds), None)
    if place is None:
        calls = (i for i, p in enumerate(kept) if type(p) is ToolCall)
        place = 0 if Reasoning in kinds else next(calls, len(kept))
    before = [p for p in kept[:place] if type(p) not in kinds]
    return [*before, *said, *(p for p in kept[place:] if type(p) not in kinds)]


def _calls_swapped(kept: list[Part], flat: list[Part], now: list[Part]) -> list[Part]:
    """Each call as its flat form says; one that was not edited stays as it is."""
    said = [p for p in flat if type(p) is ToolCall]
    derived = [p for p in now if type(p) is ToolCall]
    if said == derived:
        return kept
    whole = [p for p in kept if type(p) is ToolCall]
    if len(whole) != len(derived):  # a role whose flat keys tell of no calls
        return kept
    same = {(form.id, form.name, form.raw): (form, old) for old, form in zip(whole, derived, strict=True)}
    rest = [p for p in kept if type(p) is not ToolCall]
    out: list[Part] = [*rest]
    for call in said:
        form, old = same.get((call.id, call.name, call.raw), (None, call))
        out.append(old if form == call else call)
    return out
