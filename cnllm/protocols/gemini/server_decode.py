"""Requests of generateContent → neutral types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cnllm.protocols import Stamp
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Request, Text, ToolCall, ToolResult

__all__ = ["read_request"]

_PLACE = re.compile(r"(?:.*/)?models/(?P<model>.+?):(?P<verb>\w+)")
_STREAMS = "streamGenerateContent"
_PARAMS = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
}
_CHOICES = {"AUTO": "auto", "NONE": "none", "ANY": "required"}


def read_request(body: dict[str, Any], path: str, stamp: Stamp) -> Request:
    """Raises `ValueError` naming the key that is not as it must be."""
    body = _camel(body)
    contents = body.pop("contents", None)
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
    extra |= {key: value for key, value in body.items() if value is not None}
    if extra:
        options["extra_body"] = extra
    place = _PLACE.fullmatch(path)
    return Request(
        model=place["model"] if place else None,
        messages=messages,
        stream=place is not None and place["verb"] == _STREAMS,
        options=options,
    )


# ── spelling ─────────────────────────────────────────────────────────────────


def _camel(data: Any) -> dict[str, Any]:
    """A table with its keys in camel case and without its nulls; what is inside stays as it is."""
    if not isinstance(data, Mapping):
        return {}
    return {re.sub(r"_([a-z])", lambda m: m[1].upper(), str(k)): v for k, v in data.items() if v is not None}


def _object(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} is not an object")
    return _camel(data)


def _listed(data: Any, where: str) -> list[Any]:
    if data is None:
        return []
    if not isinstance(data, list):
        raise ValueError(f"{where} is not a list")
    return data


# ── turns ────────────────────────────────────────────────────────────────────


def _system(data: Any, stamp: Stamp) -> list[Part]:
    if data is None:
        return []
    if isinstance(data, str):
        return [Text(data)]
    where = "systemInstruction.parts"
    parts = _listed(_object(data, "systemInstruction").get("parts"), where)
    return [_part(_object(p, f"{where}[{i}]"), False, stamp) for i, p in enumerate(parts)]


class _Turns:
    """Reads the turns one after the other; `waiting` are the calls that have no result yet, as (id, name)."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp
        self._made = 0
        self._waiting: list[tuple[str, str]] = []

    def read(self, contents: list[Any]) -> Iterator[Message]:
        for index, content in enumerate(contents):
            where = f"contents[{index}]"
            turn = _object(content, where)
            role = turn.get("role", "user")
            if role not in ("user", "model", "function"):
                raise ValueError(f"{where}.role: {role!r} is none of user, model")
            parts = _listed(turn.get("parts"), f"{where}.parts")
            read = [_object(part, f"{where}.parts[{i}]") for i, part in enumerate(parts)]
            yield from self._model(read, where) if role == "model" else self._user(read, where)

    def _model(self, parts: list[dict[str, Any]], where: str) -> Iterator[Message]:
        self._waiting = []
        out: list[Part] = []
        for index, part in enumerate(parts):
            if "functionCall" in part:
                out.append(self._call(part, f"{where}.parts[{index}].functionCall"))
            else:
                out.append(_part(part, True, self._stamp))
        yield Message("assistant", out)

    def _user(self, parts: list[dict[str, Any]], where: str) -> Iterator[Message]:
        """Results as one message, what stands before or after them as others."""
        run: list[Part] = []
        told = False
        for index, part in enumerate(parts):
            is_result = "functionResponse" in part
            if run and is_result is not told:
                yield Message("tool" if told else "user", run)
                run = []
            told = is_result
            if is_result:
                run.append(self._result(part, f"{where}.parts[{index}].functionResponse"))
            else:
                run.append(_part(part, False, self._stamp))
        if run or not parts:
            yield Message("tool" if told else "user", run)

    def _call(self, part: dict[str, Any], where: str) -> ToolCall:
        call = _object(part.pop("functionCall"), where)
        name, args, id = call.pop("name", None), call.pop("args", {}), call.pop("id", None)
        if not isinstance(name, str) or not name:
            raise ValueError(f"{where}.name is missing")
        if not isinstance(args, Mapping):
            raise ValueError(f"{where}.args is not an object")
        if not isinstance(id, str) or not id:  # the wire may do without: they are told apart by their order
            id = f"call_{self._made}"
        self._made += 1
        self._waiting.append((id, name))
        seal = _seal(part, "functionCall", call, self._stamp)
        return ToolCall(id, name, dict(args), msgspec.json.encode(args).decode(), seal=seal)

    def _result(self, part: dict[str, Any], where: str) -> ToolResult:
        said = _object(part.pop("functionResponse"), where)
        name, id, response = said.pop("name", None), said.pop("id", None), said.pop("response", {})
        if not isinstance(response, Mapping):
            raise ValueError(f"{where}.response is not an object")
        media = [_object(p, f"{where}.parts") for p in _listed(said.pop("parts", None), f"{where}.parts")]
        text, error = _told(response)
        pictures = [p for p in (_part(m, False, self._stamp) for m in media) if type(p) is Media]
        return ToolResult(
            self._answered(id, name),
            text,
            name if isinstance(name, str) else None,
            error,
            tuple(pictures),
            _seal(part, "functionResponse", said, self._stamp),
        )

    def _answered(self, id: Any, name: Any) -> str:
        """The call a result answers: by its id, or the first of its name that waits."""
        places = enumerate(self._waiting)
        if isinstance(id, str) and id:
            found = next((i for i, (own, _) in places if own == id), None)
        else:
            found = next((i for i, (_, called) in places if called == name), 0 if self._waiting else None)
        if found is None:
            return id if isinstance(id, str) else ""
        return self._waiting.pop(found)[0]


def _told(response: Mapping[str, Any]) -> tuple[str, bool]:
    """(text, is it a failure?): what is wrapped as output or as error, or the object as text."""
    match response:
        case {"output": str(text)} if len(response) == 1:
            return text, False
        case {"error": str(text)} if len(response) == 1:
            return text, True
    return msgspec.json.encode(response).decode(), False


def _part(part: dict[str, Any], by_model: bool, stamp: Stamp) -> Part:
    """A part that is neither call nor result. `thought: false` says nothing."""
    thought = part.get("thought") is True
    beside = {key: value for key, value in part.items() if key != "thought"}
    text = beside.pop("text", None)
    if isinstance(text, str) or (text is None and beside.keys() <= {"thoughtSignature"} and part):
        if thought and by_model:
            return Reasoning(text or "", stamp(beside) if beside else None)
        return Text(text or "", stamp(beside) if beside else None)
    if not thought:
        for key, place in (("inlineData", "data"), ("fileData", "fileUri")):
            said = _camel(beside.get(key))
            if isinstance(where := said.pop(place, None), str):
                kind = str(said.pop("mimeType", "file"))
                del beside[key]
                seal = _seal(beside, key, said, stamp)
                return Media(kind, where, None, seal) if place == "data" else Media(kind, None, where, seal)
    return Opaque(part, stamp(None))


def _seal(beside: dict[str, Any], key: str, inside: dict[str, Any], stamp: Stamp) -> Any:
    """What came with a part, and with what is in it under a key, and has no place of its own."""
    kept = {k: v for k, v in beside.items() if k != "thought"} | ({key: inside} if inside else {})
    return stamp(kept) if kept else None


# ── options ──────────────────────────────────────────────────────────────────


def _tools(data: Any, options: dict[str, Any]) -> None:
    """Functions in OpenAI's shape; a table may hold them and the endpoint's own tools side by side."""
    tools: list[dict[str, Any]] = []
    for index, table in enumerate(_listed(data, "tools")):
        kinds = _object(table, f"tools[{index}]")
        where = f"tools[{index}].functionDeclarations"
        for place, function in enumerate(_listed(kinds.pop("functionDeclarations", None), where)):
            tools.append(_function(_object(function, f"{where}[{place}]"), f"{where}[{place}]"))
        if kinds:
            tools.append(kinds)
    if tools:
        options["tools"] = tools


def _function(function: dict[str, Any], where: str) -> dict[str, Any]:
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}.name is missing")
    out: dict[str, Any] = {"name": name}
    if isinstance(function.get("description"), str):
        out["description"] = function["description"]
    if isinstance(schema := function.get("parametersJsonSchema"), Mapping):
        out["parameters"] = schema
    elif (schema := function.get("parameters")) is not None:
        out["parameters"] = _json_schema(schema)
    return {"type": "function", "function": out}


def _json_schema(schema: Any) -> Any:
    """The protocol's own kind of schema → JSON Schema: types in small letters, null as a type, counts as numbers."""
    if not isinstance(schema, Mapping):
        return schema
    schema = {k: v for k, v in schema.items() if v is not None}
    out: dict[str, Any] = {}
    for key, value in schema.items():
        match key:
            case "type" if isinstance(value, str):
                value = value.lower()
            case "properties" if isinstance(value, Mapping):
                value = {name: _json_schema(inner) for name, inner in value.items()}
            case "items" | "additionalProperties":
                value = _json_schema(value)
            case "anyOf" | "any_of" if isinstance(value, list):
                key, value = "anyOf", [_json_schema(inner) for inner in value]
            case "property_ordering":
                key = "propertyOrdering"
            case "minItems" | "maxItems" | "minLength" | "maxLength" if isinstance(value, str) and value.isdigit():
                value = int(value)
        if key != "nullable":
            out[key] = value
    if schema.get("nullable") is True and isinstance(out.get("type"), str):
        out["type"] = [out["type"], "null"]
    return out


def _choice(data: Any, options: dict[str, Any], extra: dict[str, Any]) -> None:
    """The choice in the words of the options; what they have no word for stays in the body."""
    config = _camel(data)
    calling = _camel(config.get("functionCallingConfig"))
    mode, names = calling.get("mode"), calling.get("allowedFunctionNames")
    taken: set[str] = set()
    if mode == "ANY" and isinstance(names, list) and len(names) == 1 and isinstance(names[0], str):
        options["tool_choice"] = {"type": "function", "function": {"name": names[0]}}
        taken = {"mode", "allowedFunctionNames"}
    elif mode == "VALIDATED" and not names:
        functions = [tool["function"] for tool in options.get("tools", ()) if "function" in tool]
        for function in functions:
            function["strict"] = True
        taken = {"mode"} if functions else set()
    elif isinstance(mode, str) and mode in _CHOICES and not names:
        options["tool_choice"] = _CHOICES[mode]
        taken = {"mode"}
    if rest := {k: v for k, v in calling.items() if k not in taken}:
        config["functionCallingConfig"] = rest
    else:
        config.pop("functionCallingConfig", None)
    if config:
        extra["toolConfig"] = config


def _generation(data: Any, options: dict[str, Any], extra: dict[str, Any]) -> None:
    config = _camel(data)
    for theirs, ours in _PARAMS.items():
        if theirs in config:
            options[ours] = config.pop(theirs)
    if "thinkingConfig" in config:
        rest = _thinking(_camel(config.pop("thinkingConfig")), options)
        if rest:
            config["thinkingConfig"] = rest
    schema = config.get("responseJsonSchema")
    if schema is None:
        schema = _json_schema(config.get("responseSchema"))
    if config.get("responseMimeType") == "application/json" and isinstance(schema, Mapping):
        options["schema"] = {"json_schema": {"name": _name(schema.get("title")), "schema": schema}}
        for key in ("responseMimeType", "responseJsonSchema", "responseSchema"):
            config.pop(key, None)
    if config:
        extra["generationConfig"] = config


def _name(title: Any) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", title)[:64] if isinstance(title, str) else ""
    return cleaned or "answer"


def _thinking(config: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """How much to think, as the option has it; and what is left to say in the body."""
    shown = config.get("includeThoughts")
    level, budget = config.get("thinkingLevel"), config.get("thinkingBudget")
    asked: Any = None
    if type(budget) is int:
        asked = "off" if budget == 0 else budget if budget > 0 else "on"
    elif isinstance(level, str):
        asked = level.lower()
    elif shown is True:
        asked = "on"
    if asked is None:
        return config
    options["reasoning"] = asked
    taken = {"includeThoughts", "thinkingBudget" if type(budget) is int else "thinkingLevel"}
    rest = {key: value for key, value in config.items() if key not in taken}
    if asked != "off" and shown is not True:
        rest["includeThoughts"] = False  # to think does not mean to show it, here
    return rest
