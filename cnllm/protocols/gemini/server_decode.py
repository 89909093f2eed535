"""Decode requests of Gemini generateContent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any

import msgspec

from cnllm.protocols import Recall, Stamp
from cnllm.protocols.fields import require_one_reply, require_types
from cnllm.protocols.gemini.fields import FIELDS
from cnllm.registry.flags import LEVELS
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Request, Text, ToolCall, ToolResult
from cnllm.types.checks import short_text
from cnllm.types.convert import result_of
from cnllm.types.tools import WebSearch
from cnllm.types.wire_parts import unwrap_response

__all__ = ["read_request", "read_search"]

_PATH = re.compile(r"(?:.*?/)?models/(?P<model>.+?):(?P<verb>\w+)")
_STREAM_VERB = "streamGenerateContent"
_BASE64 = str.maketrans("-_", "+/")
"""JSON of protocol buffers has either alphabet of base64, and the vendor's own SDK sends the one for URLs."""
_PARAMS = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
}
_NUMBERS = (
    *("temperature", "topP", "topK", "maxOutputTokens", "candidateCount", "seed", "logprobs", "presencePenalty"),
    *("frequencyPenalty", "thinkingBudget"),
)
_SEARCHES = ("googleSearch", "googleSearchRetrieval")
"""The tools that search the web."""
_CHOICES = {"AUTO": "auto", "NONE": "none", "ANY": "required"}


def read_request(body: dict[str, Any], path: str, stamp: Stamp, recall: Recall) -> Request:
    """Return the messages and options of a body. Raises `ValueError` with the key that is wrong."""
    body = _camel(body)
    require_types(body, FIELDS)
    contents = body.pop("contents", None)
    if isinstance(contents, Mapping) and contents:
        contents = [contents]
    if not isinstance(contents, list):
        raise ValueError("contents is not a list")
    system = body.pop("systemInstruction", None)
    messages = [Message("system", parts)] if (parts := _system(system, stamp)) else []
    messages += _Turns(stamp).read(contents)
    options: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    _tools(body.pop("tools", None), options)
    _choice(body.pop("toolConfig", None), options, extra)
    _generation(body.pop("generationConfig", None), options, extra)
    extra |= FIELDS.rest(body)
    if extra:
        options["extra_body"] = extra
    path_match = _PATH.fullmatch(path)
    return Request(
        model=path_match["model"] if path_match else None,
        messages=messages,
        stream=path_match is not None and path_match["verb"] == _STREAM_VERB,
        options=options,
    )


# ── spelling ──────────────────────────────────────────────────────────────────


def _camel(data: Any) -> dict[str, Any]:
    """Return an object with camel-case keys and without nulls; its values do not change."""
    if not isinstance(data, Mapping):
        return {}
    return {re.sub(r"_([a-z])", lambda m: m[1].upper(), str(k)): v for k, v in data.items() if v is not None}


def _with_numbers(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config whose numbers are numbers: JSON of protocol buffers may have them as texts."""
    for key in _NUMBERS:
        if isinstance(text := config.get(key), str):
            with suppress(msgspec.DecodeError):
                number = msgspec.json.decode(text)
                config[key] = number if type(number) in (int, float) else text
    return config


def _object(data: Any, path: str) -> dict[str, Any]:
    """Return an object with camel-case keys. Raises `ValueError` for anything else."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{path} is not an object")
    return _camel(data)


def _list(data: Any, path: str) -> list[Any]:
    """Return a list, empty for None, of one object for an object alone. Raises `ValueError` for anything else."""
    if data is None:
        return []
    if isinstance(data, Mapping) and data:
        return [data]  # JSON of protocol buffers may leave the brackets out
    if not isinstance(data, list):
        raise ValueError(f"{path} is not a list")
    return data


# ── turns ─────────────────────────────────────────────────────────────────────


def _system(data: Any, stamp: Stamp) -> list[Part]:
    """Decode the system instruction."""
    if data is None:
        return []
    if isinstance(data, str):
        return [Text(data)]
    path = "systemInstruction.parts"
    parts = _list(_object(data, "systemInstruction").get("parts"), path)
    return [_part(_object(p, f"{path}[{i}]"), stamp) for i, p in enumerate(parts)]


class _Turns:
    """A decoder of contents in order; `waiting` are the calls without a result so far, as (id, name)."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp
        self._generated_ids = 0
        self._waiting: list[tuple[str, str]] = []

    def read(self, contents: list[Any]) -> Iterator[Message]:
        """Yield the messages of the contents. A model's contents in a row are one message.

        Programs that read streams keep a content for each chunk: only together do they hold the turn, and its texts.
        """
        model_parts: list[list[Any]] = []  # the pieces of each
        is_model = False
        for index, content in enumerate(contents):
            path = f"contents[{index}]"
            turn = _object(content, path)
            role = turn.get("role", "user")
            if role not in ("user", "model", "function"):
                raise ValueError(f"{path}.role: {short_text(role)} is neither user nor model")
            parts = _list(turn.get("parts"), f"{path}.parts")
            part_objects = [_object(part, f"{path}.parts[{i}]") for i, part in enumerate(parts)]
            if role == "model":
                if not is_model:
                    self._waiting = []
                is_model = True
                new_parts = self._model(part_objects, path)
                if model_parts and new_parts and _continues(model_parts[-1][-1], new_parts[0]):
                    model_parts[-1].append(new_parts.pop(0))
                model_parts += [[part] for part in new_parts]
                continue
            if is_model:
                yield Message("assistant", [*map(_join, model_parts)])
                model_parts, is_model = [], False
            yield from self._user(part_objects, path)
        if is_model:
            yield Message("assistant", [*map(_join, model_parts)])

    def _model(self, parts: list[dict[str, Any]], path: str) -> list[Part]:
        """Return the parts of a model's content."""
        return [
            self._call(part, f"{path}.parts[{index}].functionCall")
            if "functionCall" in part
            else _part(part, self._stamp, by_model=True)
            for index, part in enumerate(parts)
        ]

    def _user(self, parts: list[dict[str, Any]], path: str) -> Iterator[Message]:
        """Yield the messages of a user's content: results are one message, parts before or after them another."""
        for is_result, group in groupby(enumerate(parts), lambda pair: "functionResponse" in pair[1]):
            if is_result:
                yield Message("tool", [self._result(p, f"{path}.parts[{i}].functionResponse") for i, p in group])
            else:
                yield Message("user", [_part(part, self._stamp) for _, part in group])
        if not parts:
            yield Message("user", [])

    def _call(self, part: dict[str, Any], path: str) -> ToolCall:
        """Decode a call."""
        call = _object(part.pop("functionCall"), path)
        name, args, id = call.pop("name", None), call.pop("args", {}), call.pop("id", None)
        if not isinstance(name, str) or not name:
            raise ValueError(f"{path}.name is missing")
        if not isinstance(args, Mapping):
            raise ValueError(f"{path}.args is not an object")
        if not isinstance(id, str) or not id:  # ids are optional: without them calls and results are paired by order
            id = f"call_{self._generated_ids}"
        self._generated_ids += 1
        self._waiting.append((id, name))
        seal = _seal(part, "functionCall", call, self._stamp)
        return ToolCall(id, name, dict(args), msgspec.json.encode(args).decode(), seal=seal)

    def _result(self, part: dict[str, Any], path: str) -> ToolResult:
        """Decode a tool result."""
        fields = _object(part.pop("functionResponse"), path)
        name, id, response = fields.pop("name", None), fields.pop("id", None), fields.pop("response", {})
        if not isinstance(response, Mapping):
            raise ValueError(f"{path}.response is not an object")
        media = _list(fields.pop("parts", None), f"{path}.parts")
        own = [_part(_object(part, f"{path}.parts"), self._stamp) for part in media]
        inner, error = unwrap_response(response)
        text = inner if isinstance(inner, str) else msgspec.json.encode(inner).decode()
        read = [msgspec.structs.replace(p, seal=None) if type(p) is Media else p for p in own]
        name = name if isinstance(name, str) else None
        result = result_of(self._call_id(id, name), [Text(text), *read], name, error=error)
        return msgspec.structs.replace(result, seal=_seal(part, "functionResponse", fields, self._stamp))

    def _call_id(self, id: Any, name: Any) -> str:
        """Return the id of the call that a result answers: by its id, or the first waiting call of its name."""
        waiting = enumerate(self._waiting)
        if isinstance(id, str) and id:
            index = next((i for i, (call_id, _) in waiting if call_id == id), None)
        else:
            index = next((i for i, (_, call_name) in waiting if call_name == name), 0 if self._waiting else None)
        if index is None:
            return id if isinstance(id, str) else ""
        return self._waiting.pop(index)[0]


def _continues(last: Part, part: Part) -> bool:
    """Whether a part continues the text, or the thoughts, of the one before it: neither has a signature."""
    return type(part) is type(last) and type(part) in (Text, Reasoning) and last.seal is part.seal is None


def _join(pieces: list[Any]) -> Part:
    """Return the part of which these are the pieces."""
    first: Part = pieces[0]
    if len(pieces) == 1:
        return first
    whole: Part = msgspec.structs.replace(first, text="".join([piece.text for piece in pieces]))
    return whole


def _part(part: dict[str, Any], stamp: Stamp, *, by_model: bool = False) -> Part:
    """Decode a part that is neither call nor result. `thought: false` has no meaning."""
    is_thought = part.get("thought") is True
    other_keys = {key: value for key, value in part.items() if key != "thought"}
    text = other_keys.pop("text", None)
    if isinstance(text, str) or (text is None and other_keys.keys() <= {"thoughtSignature"} and part):
        if is_thought and by_model:
            return Reasoning(text or "", stamp(other_keys) if other_keys else None)
        return Text(text or "", stamp(other_keys) if other_keys else None)
    if not is_thought:
        for key, value_key in (("inlineData", "data"), ("fileData", "fileUri")):
            fields = _camel(other_keys.get(key))
            if isinstance(value := fields.pop(value_key, None), str):
                mime_type = str(fields.pop("mimeType", "file"))
                del other_keys[key]
                seal = _seal(other_keys, key, fields, stamp)
                name = fields.get("displayName")
                extra = {"filename": name} if isinstance(name, str) and name else None
                data, url = (value.translate(_BASE64), None) if value_key == "data" else (None, value)
                return Media(mime_type, data, url, seal, extra)
    return Opaque(part, stamp(None))


def _seal(other_keys: dict[str, Any], key: str, inner_keys: dict[str, Any], stamp: Stamp) -> Any:
    """Return the seal of the keys beside a part, and of those inside its value under a key, that have no field."""
    data = {k: v for k, v in other_keys.items() if k != "thought"} | ({key: inner_keys} if inner_keys else {})
    return stamp(data) if data else None


# ── options ───────────────────────────────────────────────────────────────────


def _tools(data: Any, options: dict[str, Any]) -> None:
    """Decode functions in OpenAI's form. One object may hold functions and the endpoint's own tools."""
    tools: list[dict[str, Any]] = []
    for index, table in enumerate(_list(data, "tools")):
        fields = _object(table, f"tools[{index}]")
        path = f"tools[{index}].functionDeclarations"
        for position, function in enumerate(_list(fields.pop("functionDeclarations", None), path)):
            tools.append(_function(_object(function, f"{path}[{position}]"), f"{path}[{position}]"))
        tools += [{key: fields.pop(key)} for key in _SEARCHES if key in fields]
        if fields:
            tools.append(fields)
    if tools:
        options["tools"] = tools


def read_search(tool: Mapping[str, Any]) -> WebSearch | None:
    """Return the web search that a tool asks for."""
    settings = next((tool[key] for key in _SEARCHES if key in tool), None)
    return None if settings is None else WebSearch.of_client(settings if isinstance(settings, Mapping) else {})


def _function(function: dict[str, Any], path: str) -> dict[str, Any]:
    """Decode the declaration of a function."""
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{path}.name is missing")
    out: dict[str, Any] = {"name": name}
    if isinstance(function.get("description"), str):
        out["description"] = function["description"]
    if isinstance(schema := function.get("parametersJsonSchema"), Mapping):
        out["parameters"] = _json_schema(schema) if _is_own_kind(schema) else schema
    elif (schema := function.get("parameters")) is not None:
        out["parameters"] = _json_schema(schema)
    names = ("response", "responseJsonSchema", "behavior")
    other_keys: dict[str, Any] = {key: function[key] for key in names if key in function}
    return {"type": "function", "function": out, **other_keys}


def _is_own_kind(schema: Any) -> bool:
    """Whether a schema that should be JSON Schema has types of the protocol's own kind, as some clients send it."""
    return re.search(rb'"type":"[A-Z]', msgspec.json.encode(schema)) is not None


def _json_schema(schema: Any) -> Any:
    """Return the protocol's own kind of schema as JSON Schema: lower-case types, null as a type, counts as numbers."""
    if not isinstance(schema, Mapping):
        return schema
    schema = {k: v for k, v in schema.items() if v is not None}
    out: dict[str, Any] = {}
    for key, value in schema.items():
        match key:
            case "type" if isinstance(value, str):
                value = value.lower()
            case "type" if isinstance(value, list):
                value = [name.lower() if isinstance(name, str) else name for name in value]
            case "properties" | "$defs" | "definitions" if isinstance(value, Mapping):
                value = {name: _json_schema(inner) for name, inner in value.items()}
            case "items" | "additionalProperties" | "not":
                value = _json_schema(value)
            case "anyOf" | "any_of" | "oneOf" | "allOf" | "prefixItems" if isinstance(value, list):
                key = "anyOf" if key == "any_of" else key
                value = [_json_schema(inner) for inner in value]
            case "property_ordering":
                key = "propertyOrdering"
            case "minItems" | "maxItems" | "minLength" | "maxLength" if isinstance(value, str) and value.isdigit():
                value = int(value)
        if key != "nullable":
            out[key] = value
    return _with_null(out) if schema.get("nullable") is True else out


_ALONE = frozenset(["$ref", "allOf", "const", "not"])
"""Keywords that cannot name null beside what they hold."""
_DEFINITIONS = ("$defs", "definitions")


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema that takes null, too: each keyword that would exclude it names it."""
    if _ALONE & schema.keys():
        outer = {key: value for key, value in schema.items() if key in _DEFINITIONS}
        inner = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
        return {**outer, "anyOf": [inner, {"type": "null"}]}
    out = dict(schema)
    if (kind := schema.get("type")) is not None and not _names_null(kind):
        out["type"] = [*(kind if isinstance(kind, list) else [kind]), "null"]
    if isinstance(values := schema.get("enum"), list) and None not in values:
        out["enum"] = [*values, None]
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        if isinstance(branches, list) and not any(
            isinstance(branch, Mapping) and _names_null(branch.get("type")) for branch in branches
        ):
            out[key] = [*branches, {"type": "null"}]
    return out


def _names_null(kind: Any) -> bool:
    """Whether a type is null, or a list of types holds it."""
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _choice(data: Any, options: dict[str, Any], extra: dict[str, Any]) -> None:
    """Decode the tool choice as an option; the parts without an option stay in the body."""
    config = _camel(data)
    calling = _camel(config.get("functionCallingConfig"))
    mode, names = calling.get("mode"), calling.get("allowedFunctionNames")
    keys: set[str] = set()
    if mode == "ANY" and isinstance(names, list) and len(names) == 1 and isinstance(names[0], str):
        options["tool_choice"] = {"type": "function", "function": {"name": names[0]}}
        keys = {"mode", "allowedFunctionNames"}
    elif mode == "VALIDATED" and not names:
        functions = _functions(options)
        for function in functions:
            function["strict"] = True
        keys = {"mode"} if functions else set()
    elif isinstance(mode, str) and mode in _CHOICES and not names and (mode != "ANY" or _functions(options)):
        options["tool_choice"] = _CHOICES[mode]
        keys = {"mode"}
    if rest := {k: v for k, v in calling.items() if k not in keys}:
        config["functionCallingConfig"] = rest
    else:
        config.pop("functionCallingConfig", None)
    if config:
        extra["toolConfig"] = config


def _functions(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the functions that are offered. A mode of calls is about them alone, and about no tool of the vendor."""
    return [tool["function"] for tool in options.get("tools", ()) if "function" in tool]


def _generation(data: Any, options: dict[str, Any], extra: dict[str, Any]) -> None:
    """Decode the generation config; the parts without an option stay in the body."""
    config = _with_numbers(_camel(data))
    require_one_reply(config.get("candidateCount"), "generationConfig.candidateCount")
    for wire_name, option_name in _PARAMS.items():
        if wire_name in config:
            options[option_name] = config.pop(wire_name)
    if "thinkingConfig" in config:
        rest = _thinking(_with_numbers(_camel(config.pop("thinkingConfig"))), options)
        if rest:
            config["thinkingConfig"] = rest
    schema = config.get("responseJsonSchema")
    if schema is None or _is_own_kind(schema):
        schema = _json_schema(schema or config.get("responseSchema"))
    if config.get("responseMimeType") == "application/json" and isinstance(schema, Mapping):
        options["schema"] = {"json_schema": {"name": _name(schema.get("title")), "schema": schema}}
        for key in ("responseMimeType", "responseJsonSchema", "responseSchema"):
            config.pop(key, None)
    if config:
        extra["generationConfig"] = config


def _name(title: Any) -> str:
    """Return a schema's title as a name."""
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", title)[:64] if isinstance(title, str) else ""
    return cleaned or "answer"


def _thinking(config: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Decode the reasoning option. Return the rest of the config, which stays in the body."""
    includes_thoughts = config.get("includeThoughts")
    level, budget = config.get("thinkingLevel"), config.get("thinkingBudget")
    level = level.lower() if isinstance(level, str) else level
    keys = {"includeThoughts"}
    reasoning: Any = None
    if type(budget) is int:
        reasoning = "off" if budget == 0 else budget if budget > 0 else "on"
        keys.add("thinkingBudget")
    elif level in LEVELS:  # another word stays in the body
        reasoning = level
        keys.add("thinkingLevel")
    elif includes_thoughts is True:
        reasoning = "on"
    if reasoning is None:
        return config
    options["reasoning"] = reasoning
    rest = {key: value for key, value in config.items() if key not in keys}
    if reasoning != "off" and includes_thoughts is not True:
        rest["includeThoughts"] = False  # on this wire thinking does not include showing the thoughts
    return rest
