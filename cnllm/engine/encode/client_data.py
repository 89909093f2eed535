"""Send what a client's own protocol means to endpoints of that protocol only.

`ClientData` in the options names its protocol. On an endpoint of another protocol, a key that has an equal there
becomes an option; each other one is left out, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cnllm.engine.options import EXTRA_PARAMS
from cnllm.errors import CannotSend
from cnllm.registry.model import Model
from cnllm.types import Note
from cnllm.types.client_data import ClientData

__all__ = ["resolve_client_data"]

_CONTAINERS = ("generationConfig", "output_config", "reasoning", "text", "thinking", "toolConfig")
"""Keys whose value is an object of settings. A note names each setting."""
_JSON_OBJECT = (
    ("response_format", {"type": "json_object"}),
    ("text.format", {"type": "json_object"}),
    ("generationConfig.responseMimeType", "application/json"),
)
"""Paths and values with which the protocols request a JSON object without a schema."""
_HINT = "leave it out, or allow adjustments (on_unsupported='adjust')"
_MODES = {"ANY": "required", "AUTO": "auto", "VALIDATED": "auto"}


def resolve_client_data(options: dict[str, Any], model: Model) -> tuple[dict[str, Any], list[Note]]:
    """Return the options for a model, and notes on what was left out of them."""
    body, headers, tools = options.get("extra_body"), options.get("extra_headers"), options.get("tools")
    foreign_tools = type(tools) is list and any(type(t) is ClientData and t.protocol != model.protocol for t in tools)
    foreign = [data for data in (body, headers) if type(data) is ClientData and data.protocol != model.protocol]
    if not foreign and not foreign_tools:
        return options, []
    out = dict(options)
    notes: list[Note] = []
    if type(headers) is ClientData and headers.protocol != model.protocol:
        del out["extra_headers"]
        notes += [_left_out("extra_headers", f"the header {name}", headers.protocol) for name in headers]
    if type(body) is ClientData and body.protocol != model.protocol:
        del out["extra_body"]
        for path, value in _settings(body):
            if not _map_setting(path, value, out, model):
                notes.append(_left_out("extra_body", path, body.protocol))
    if foreign_tools:
        _drop_tools(out, model, notes)
    if notes and options.get("on_unsupported") == "error":
        note = notes[0]
        raise CannotSend(f"{model.name}: {note.flag}: {note.said}: {note.did}", note=note, hint=_HINT)
    return out, notes


def _left_out(flag: str, subject: str, protocol: str) -> Note:
    """Return the note on a key that was left out. It does not contain the value, which may be personal."""
    return Note("key-foreign", flag, subject, f"left out: only endpoints of {protocol} know it")


def _settings(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each setting in a body."""
    for key, value in body.items():
        if key in _CONTAINERS and isinstance(value, Mapping) and value:
            yield from ((f"{key}.{inner}", inner_value) for inner, inner_value in value.items())
        else:
            yield key, value


def _map_setting(path: str, value: Any, options: dict[str, Any], model: Model) -> bool:
    """Add the option that is equal to a setting. Return False if there is none."""
    if (path, value) in _JSON_OBJECT:
        options.setdefault("schema", {"type": "object"})
        return True
    if path == "toolConfig.functionCallingConfig":
        return _allow_functions(value, options)
    name = re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", path.removeprefix("generationConfig."))
    if name in EXTRA_PARAMS and name in (model.flags.params or {}):
        options.setdefault(name, value)
        return True
    return False


def _allow_functions(config: Any, options: dict[str, Any]) -> bool:
    """Offer only the functions that a config of calls allows, in its mode."""
    match config:
        case {"mode": str(mode), "allowedFunctionNames": list(names)} if mode in _MODES and options.get("tools"):
            options["tools"] = [t for t in options["tools"] if t.get("function", {}).get("name") in names]
            options["tool_choice"] = _MODES[mode]
            return True
    return False


def _drop_tools(options: dict[str, Any], model: Model, notes: list[Note]) -> None:
    """Leave out the tools of another protocol, and a choice that needs one of them."""
    kept: list[Any] = []
    dropped: set[Any] = set()
    for index, tool in enumerate(options["tools"]):
        if type(tool) is not ClientData or tool.protocol == model.protocol:
            kept.append(tool)
            continue
        kind = tool.get("type") or next(iter(tool), "")
        dropped |= {kind, tool.get("name")}
        did = f"left out: only endpoints of {tool.protocol} execute it"
        notes.append(Note("tool-foreign", "tools", f"tools[{index}]: {kind}", did))
    choice = options.get("tool_choice")
    name = _chosen(choice)
    if not kept:
        for key in ("tools", "tool_choice", "parallel_tool_calls"):
            options.pop(key, None)
    else:
        options["tools"] = kept
        if name in dropped and name is not None:
            options["tool_choice"] = "auto"
    if choice is not None and options.get("tool_choice") != choice and (name is not None or choice == "required"):
        did = "auto: the tool is not offered" if kept else "left out: no tool is offered"
        notes.append(Note("tool-choice", "tool_choice", str(name or choice), did))


def _chosen(choice: Any) -> str | None:
    """Return the name of the tool that a choice names, or None."""
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
        return name if isinstance(name, str) else None
    return choice if isinstance(choice, str) and choice not in ("auto", "none", "required", "any") else None
