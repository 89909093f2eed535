"""Arguments of an earlier call as every endpoint takes them: the text of one JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.engine.decode import whole
from cnllm.engine.ledger import Ledger
from cnllm.types import ToolCall
from cnllm.wires.calls import decode_arguments

__all__ = ["repaired"]

_shallow = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BAD = (msgspec.DecodeError, RecursionError)
_DEPTH = 8  # how far a schema is followed; one that goes deeper refers to itself


def repaired(call: ToolCall, index: int, schema: Mapping[str, Any] | None, ledger: Ledger) -> ToolCall:
    """A call with legal arguments; `index` is its message's, `schema` its tool's parameters where they are known."""
    told = f"messages[{index}]: the arguments of {call.name}"
    mended = _mended(call)
    if mended is not call:
        ledger.note("text-mended", "messages", f"{told} hold half of a character", "replaced by U+FFFD")
        call = mended
    if call.arguments is None:
        inner = _inside(call.raw)
        if inner is None:
            ledger.note("arguments-emptied", "messages", f"{told} are no JSON object: {call.raw[:80]}", "{}")
            return replace(call, arguments={}, raw="{}", problem=None)
        ledger.note("arguments-decoded", "messages", f"{told} are JSON inside a JSON string", "decoded")
        call = replace(call, arguments=inner, raw="", problem=None)
    elif call.raw and not _is_object(call.raw):
        call = replace(call, raw="")  # what is decoded counts
    assert call.arguments is not None
    if schema is None or not any(type(v) is str and v.lstrip()[:1] in ("[", "{") for v in call.arguments.values()):
        return call
    decoded = {name: _decoded(value, name, schema) for name, value in call.arguments.items()}
    names = [name for name, value in call.arguments.items() if decoded[name] is not value]
    if not names:
        return call
    did = "decoded, as its schema wants arrays or objects there"
    ledger.note("arguments-decoded", "tools", f"{told}: {', '.join(names)} is JSON inside a JSON string", did)
    return replace(call, arguments=decoded, raw="")


def _mended(call: ToolCall) -> ToolCall:
    """The call without halves of surrogate pairs: they are in no UTF-8, so nothing could read or write it."""
    raw = str(whole(call.raw))
    if raw != call.raw:
        return replace(call, raw=raw, arguments=decode_arguments(raw)[0])
    if raw or call.arguments is None:
        return call
    arguments = whole(call.arguments)
    return replace(call, arguments=arguments) if type(arguments) is dict and arguments != call.arguments else call


def _is_object(raw: str) -> bool:
    try:
        _shallow(raw)
    except _BAD:
        return raw.strip() == "null"
    return True


def _inside(raw: str) -> dict[str, Any] | None:
    """The object in a JSON string, for arguments that were encoded twice."""
    try:
        text = msgspec.json.decode(raw)
        value = msgspec.json.decode(text) if type(text) is str else None
    except _BAD:
        return None
    return value if type(value) is dict else None


def _decoded(value: Any, name: str, schema: Mapping[str, Any]) -> Any:
    """A value, decoded if it is text where only an array or an object may stand."""
    if type(value) is not str or value.lstrip()[:1] not in ("[", "{"):
        return value
    properties = schema.get("properties")
    wanted = _types(properties.get(name), schema, _DEPTH) if isinstance(properties, Mapping) else set()
    if "string" in wanted or not wanted & {"array", "object"}:
        return value
    try:
        inner = msgspec.json.decode(value)
    except _BAD:
        return value
    return inner if ("array" if type(inner) is list else "object") in wanted else value


def _types(said: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    """The JSON types that a schema lets through, as far as it names them; one that names none lets text through."""
    if not isinstance(said, Mapping) or not depth:
        return {"string"}
    if isinstance(reference := said.get("$ref"), str):
        found: Any = root
        for key in reference.removeprefix("#/").split("/"):
            found = found.get(key) if isinstance(found, Mapping) else None
        return _types(found, root, depth - 1)
    branches = [b for word in ("anyOf", "oneOf") if isinstance(said.get(word), list) for b in said[word]]
    if branches:
        return set().union(*(_types(b, root, depth - 1) for b in branches))
    kind = said.get("type")
    if isinstance(kind, str):
        return {kind}
    return {k for k in kind if isinstance(k, str)} if isinstance(kind, list) else {"string"}
