"""Read the usual forms of a chat completion, without the decoder that reads all.

A usual body has one choice with text, reasoning in a field, and complete calls. The most common chunk has one choice
with one piece of one kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import msgspec

from cnllm.jsonpath import get_first
from cnllm.protocols import FastDecoder, UsualMessage, UsualReader
from cnllm.protocols.chat.client_decode import EXTRA_KEYS
from cnllm.protocols.chat.client_paths import chunk_reader
from cnllm.protocols.reported import InvalidCounts, counts_reader, find_fault, known_keys, other_counts
from cnllm.registry.flags import Flags
from cnllm.types import Usage

__all__ = ["fast_decoder", "usual_reader"]

_CALL_KEYS = frozenset({"id", "index", "type", "function"})
_RARE_KEYS = ("refusal", "function_call", "annotations", "images", "audio", "error")
_USUAL_KEYS = ("service_tier", "system_fingerprint")
"""Keys beside the choices that many endpoints repeat in each chunk."""
_NO_USAGE = Usage()
_FIELDS = 2  # of reasoning: no known endpoint uses more of them for text
_BEGINNINGS = ("", "{")  # of arguments; a piece of white space alone is as rare as one that begins an object


def usual_reader(flags: Flags) -> UsualReader | None:
    """Return the reader of usual bodies for these flags; None where the endpoint has paths of its own."""
    if chunk_reader(flags) is not None:
        return None
    fields = tuple(flags.reasoning.fields or ())
    usage_at = flags.usage.at or ()
    read_usage = counts_reader(flags)
    citations_at = flags.citations.at or ()
    known = known_keys(flags)
    plain_keys = frozenset(["role", "content", "tool_calls", *fields])
    fault_keys = tuple({path.partition(".")[0] for path in flags.error.at or ()})

    def read(data: dict[str, Any]) -> UsualMessage | None:
        choices = data.get("choices")
        if type(choices) is not list or len(choices) != 1 or type(choice := choices[0]) is not dict:
            return None
        message, finish = choice.get("message"), choice.get("finish_reason")
        if type(message) is not dict or type(finish) is not str or not finish:
            return None
        if "text" in choice or choice.get("error") or choice.get("logprobs"):
            return None
        content = message.get("content")
        if type(content) is not str:
            if content is not None:
                return None
            content = ""
        if not plain_keys.issuperset(message) and any(map(message.get, _RARE_KEYS)):
            return None
        if citations_at and get_first(data, citations_at):
            return None
        reasoning = ""
        for field in fields:
            if value := message.get(field):
                if type(value) is not str:
                    return None
                reasoning = reasoning or value
        items = message.get("tool_calls")
        calls = [] if not items else _calls(items)
        if calls is None:
            return None
        for key in fault_keys:
            if (not key or data.get(key)) and find_fault(data, flags, data.get("choices")) is not None:
                return None
        usage = get_first(data, usage_at)
        invalid: InvalidCounts = {}
        counts = read_usage(usage, invalid) if type(usage) is dict else _NO_USAGE
        if invalid:
            return None
        extra: dict[str, Any] = {}
        for key in EXTRA_KEYS:
            if key in data and type(value := data[key]) in (str, dict) and value:
                extra[key] = value
        if type(usage) is dict and (rest := other_counts(usage, known)):
            extra["usage"] = rest
        created = data.get("created")
        return UsualMessage(
            content,
            reasoning,
            calls,
            finish,
            counts,
            (id or None) if type(id := data.get("id")) is str else None,
            (model or None) if type(model := data.get("model")) is str else None,
            (created or None) if type(created) in (int, float) else None,
            extra,
        )

    return read


def _calls(items: Any) -> list[tuple[str, str, str]] | None:
    """Return the calls of a message; None where one is not complete, or has more keys than usual."""
    if type(items) is not list:
        return None
    calls: list[tuple[str, str, str]] = []
    for item in items:
        if type(item) is not dict or not _CALL_KEYS.issuperset(item) or type(item.get("index")) in (list, dict):
            return None
        id, function = item.get("id"), item.get("function")
        if type(id) is not str or not id or type(function) is not dict:
            return None
        name, arguments = function.get("name"), function.get("arguments")
        if type(name) is not str or not name or type(arguments) is not str or not arguments:
            return None
        calls.append((id, name, arguments))
    return calls


# ── chunks ────────────────────────────────────────────────────────────────────


def fast_decoder(flags: Flags) -> FastDecoder | None:
    """Return the fast decoder of one stream; None where the endpoint has paths of its own.

    It reads the reasoning fields, and falls back for rare fields of a delta, a choice or a chunk.
    """
    return None if (make := _make_decoder(flags)) is None else make()


@lru_cache(maxsize=256)
def _make_decoder(flags: Flags) -> Callable[[], FastDecoder] | None:
    """Return a function that makes fast decoders; None where the endpoint has paths or names of its own."""
    reasoning_fields = tuple(flags.reasoning.fields or ())
    paths = [*(flags.usage.at or ()), *(flags.error.at or ()), *(flags.citations.at or ())]
    paths += (flags.web_search.uses if flags.web_search else None) or ()
    if "." in paths or chunk_reader(flags) is not None:
        return None
    keys = [path.split(".") for path in paths]
    choice_fields = {path[2] for path in keys if path[0] == "choices" and len(path) > 2}
    delta_fields = {path[3] for path in keys if path[0] == "choices" and path[2:3] == ["delta"] and len(path) > 3}
    top_fields = {path[0] for path in keys} - {"choices"} | {*EXTRA_KEYS} - {*_USUAL_KEYS}
    rare_choice = {"error", "finish_reason", "logprobs", "message", "text"} | choice_fields
    rare_delta = ("annotations", "audio", "error", "function_call", "images", "refusal", *sorted(delta_fields))
    try:
        return _chunk_decoder(reasoning_fields, rare_delta, tuple(sorted(rare_choice)), tuple(sorted(top_fields)))
    except ValueError:  # msgspec takes no quote, backslash or control character in a name
        return None


class _Arguments(msgspec.Struct, gc=False):
    """A piece of a call's arguments, without a name."""

    arguments: str
    name: Literal[""] | None = None


class _CallPiece(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A piece of a call that has begun: it has no id and no other data."""

    index: int
    function: _Arguments
    id: Literal[""] | None = None
    type: Any = None


@lru_cache(maxsize=64)
def _chunk_decoder(
    reasoning_fields: tuple[str, ...],
    rare_delta: tuple[str, ...],
    rare_choice: tuple[str, ...],
    rare_top: tuple[str, ...],
) -> Callable[[], FastDecoder]:
    """Return a function that makes decoders for the most common chunks of a chat stream.

    Such a chunk has one choice, with one piece of one kind. The decoder returns the piece and its kind: the field of
    the reasoning, None for the answer, or the index of the call whose arguments go on. It returns None for a chunk with
    anything else in it, with a piece that may begin another call, or with a usual key whose value is new; the full
    decoder reads that then. The rare names are those that a full decoding would use: they may only be null, which the
    decoder itself checks while it skips all other undeclared fields.
    """
    reasoning_fields = tuple(dict.fromkeys(reasoning_fields))
    fields = (*reasoning_fields[:_FIELDS], *[f"(none {i})" for i in range(_FIELDS - len(reasoning_fields))])
    first, second = fields
    delta = _optional_struct(
        [
            ("content", str | None),
            ("calls", list[_CallPiece] | None),
            *[(f"f{i}", str | None) for i in range(_FIELDS)],
        ],
        {"calls": "tool_calls", **{f"f{i}": name for i, name in enumerate(fields)}},
        (*rare_delta, *reasoning_fields[_FIELDS:]),
    )
    choice = _optional_struct([("delta", delta | None), ("index", Literal[0] | None)], {}, rare_choice)
    usual: list[tuple[str, Any]] = [(key, None if key in rare_top else str | None) for key in _USUAL_KEYS]
    chunk = _optional_struct([("choices", list[choice]), *usual], {}, rare_top)  # type: ignore[valid-type]
    decode = msgspec.json.Decoder(chunk).decode

    def make() -> FastDecoder:
        """Return the decoder of one stream."""
        tier: str | None = None
        fingerprint: str | None = None

        def read(text: bytes) -> tuple[str, str | int | None] | None:
            """Decode one chunk."""
            nonlocal tier, fingerprint
            try:
                data = decode(text)
                [choice] = data.choices
            except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: no choice, several, or no UTF-8
                return None
            if data.service_tier != tier or data.system_fingerprint != fingerprint:
                pair = data.service_tier or tier, data.system_fingerprint or fingerprint
                if pair != (tier, fingerprint):
                    tier, fingerprint = pair
                    return None
            delta_data = choice.delta
            if delta_data is None:
                return None
            if delta_data.calls:
                [call, *others] = delta_data.calls
                piece = call.function.arguments
                if others or delta_data.content or delta_data.f0 or delta_data.f1 or piece.lstrip()[:1] in _BEGINNINGS:
                    return None
                return piece, call.index
            if delta_data.content:
                return None if delta_data.f0 or delta_data.f1 else (delta_data.content, None)
            if delta_data.f0:
                return None if delta_data.f1 else (delta_data.f0, first)
            return (delta_data.f1, second) if delta_data.f1 else None

        return read

    return make


def _optional_struct(fields: list[tuple[str, Any]], rename: dict[str, str], rare: tuple[str, ...]) -> Any:
    """Return a Struct with these optional fields, and with rare ones that may only be null."""
    declared = {*rename.values(), *(name for name, _ in fields if name not in rename)}
    names = {f"r{i}": name for i, name in enumerate(dict.fromkeys(rare)) if name not in declared}
    return msgspec.defstruct(
        "FastChunk",
        [*[(n, t, [] if n == "choices" else None) for n, t in fields], *[(n, None, None) for n in names]],
        rename={**rename, **names},
        gc=False,
    )
