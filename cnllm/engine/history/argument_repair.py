"""Repair the arguments of an earlier call, so that they are the text of one JSON object."""

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
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError)
_VALID_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # a tool's name that every endpoint accepts
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def repair_arguments(call: ToolCall, index: int, schema: Mapping[str, Any] | None, ledger: Ledger) -> ToolCall:
    """Return a call with valid arguments.

    `index` is that of its message, `schema` the parameters of its tool where they are known.
    """
    subject = f"messages[{index}]: the arguments of {call.name}"
    clean = _without_half_characters(call)
    if clean is not call:
        ledger.note("text-mended", "messages", f"{subject} hold half of a character", "replaced by U+FFFD")
        call = clean
    if call.excluded:  # nobody executes it, and the model's text goes back unchanged
        call = _with_valid_name(replace(call, arguments=decode_arguments(call.raw)[0]), index, schema, ledger)
    if call.arguments is None:
        inner = unwrap_object(call.raw)
        if inner is None:
            ledger.note("arguments-emptied", "messages", f"{subject} are no JSON object: {call.raw[:80]}", "{}")
            return replace(call, arguments={}, raw="{}", problem=None)
        ledger.note("arguments-decoded", "messages", f"{subject} are JSON inside a JSON string", "decoded")
        call = replace(call, arguments=inner, raw="", problem=None)
    elif call.raw and not _is_object(call.raw):
        call = replace(call, raw="")  # the decoded arguments count
    assert call.arguments is not None
    decoded = decode_values(call.arguments, schema)
    if decoded is call.arguments:
        return call
    names = [name for name, value in call.arguments.items() if decoded[name] is not value]
    did = "decoded, because its schema requires arrays or objects"
    ledger.note("arguments-decoded", "tools", f"{subject}: {', '.join(names)} is JSON inside a JSON string", did)
    return replace(call, arguments=decoded, raw="")


def _with_valid_name(call: ToolCall, index: int, schema: Mapping[str, Any] | None, ledger: Ledger) -> ToolCall:
    """Return an excluded call with a valid name: the model may have used any text."""
    if schema is not None or _VALID_NAME.fullmatch(call.name):
        return call
    name = _INVALID_CHARACTER.sub("_", call.name)[:60]
    name = name if _VALID_NAME.fullmatch(name) else f"_{name}"
    ledger.note("call-renamed", "messages", f"messages[{index}]: an excluded call of {call.name[:80]!a}", name)
    return replace(call, name=name)


def _without_half_characters(call: ToolCall) -> ToolCall:
    """Return the call without halves of surrogate pairs, which UTF-8 cannot hold."""
    raw = str(replace_surrogates(call.raw))
    if raw != call.raw:
        return replace(call, raw=raw, arguments=decode_arguments(raw)[0])
    if call.arguments is None or (raw and _is_object(raw)):
        return call
    arguments = replace_surrogates(call.arguments)
    return replace(call, arguments=arguments) if type(arguments) is dict and arguments != call.arguments else call


def _is_object(raw: str) -> bool:
    """Whether a text is a JSON object, or null."""
    try:
        _shallow(raw)
    except _DECODE_ERRORS:
        return raw.strip() == "null"
    return True
