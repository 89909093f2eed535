"""Arguments of an earlier call as every endpoint takes them: the text of one JSON object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.tools.encoded import decode_values, unwrap_object
from cnllm.types import ToolCall
from cnllm.types.arguments import decode_arguments
from cnllm.types.lenient_json import replace_surrogates

__all__ = ["repair_arguments"]

_shallow = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BAD = (msgspec.DecodeError, RecursionError)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # of a tool, as every endpoint takes it
_ODD = re.compile(r"[^A-Za-z0-9_-]")


def repair_arguments(call: ToolCall, index: int, schema: Mapping[str, Any] | None, ledger: Ledger) -> ToolCall:
    """A call with legal arguments; `index` is its message's, `schema` its tool's parameters where they are known."""
    told = f"messages[{index}]: the arguments of {call.name}"
    mended = _mended(call)
    if mended is not call:
        ledger.note("text-mended", "messages", f"{told} hold half of a character", "replaced by U+FFFD")
        call = mended
    if call.excluded:  # nobody executes it, and what the model wrote goes back as it came
        call = _renamed(replace(call, arguments=decode_arguments(call.raw)[0]), index, schema, ledger)
    if call.arguments is None:
        inner = unwrap_object(call.raw)
        if inner is None:
            ledger.note("arguments-emptied", "messages", f"{told} are no JSON object: {call.raw[:80]}", "{}")
            return replace(call, arguments={}, raw="{}", problem=None)
        ledger.note("arguments-decoded", "messages", f"{told} are JSON inside a JSON string", "decoded")
        call = replace(call, arguments=inner, raw="", problem=None)
    elif call.raw and not _is_object(call.raw):
        call = replace(call, raw="")  # what is decoded counts
    assert call.arguments is not None
    made = decode_values(call.arguments, schema)
    if made is call.arguments:
        return call
    names = [name for name, value in call.arguments.items() if made[name] is not value]
    did = "decoded, as its schema wants arrays or objects there"
    ledger.note("arguments-decoded", "tools", f"{told}: {', '.join(names)} is JSON inside a JSON string", did)
    return replace(call, arguments=made, raw="")


def _renamed(call: ToolCall, index: int, schema: Mapping[str, Any] | None, ledger: Ledger) -> ToolCall:
    """Return the excluded call with a name that an endpoint takes: the model may have made it of anything."""
    if schema is not None or _NAME.fullmatch(call.name):
        return call
    name = _ODD.sub("_", call.name)[:60]
    name = name if _NAME.fullmatch(name) else f"_{name}"
    ledger.note("call-renamed", "messages", f"messages[{index}]: an excluded call of {call.name[:80]!a}", name)
    return replace(call, name=name)


def _mended(call: ToolCall) -> ToolCall:
    """The call without halves of surrogate pairs: they are in no UTF-8, so nothing could read or write it."""
    raw = str(replace_surrogates(call.raw))
    if raw != call.raw:
        return replace(call, raw=raw, arguments=decode_arguments(raw)[0])
    if call.arguments is None or (raw and _is_object(raw)):
        return call
    arguments = replace_surrogates(call.arguments)
    return replace(call, arguments=arguments) if type(arguments) is dict and arguments != call.arguments else call


def _is_object(raw: str) -> bool:
    try:
        _shallow(raw)
    except _BAD:
        return raw.strip() == "null"
    return True
