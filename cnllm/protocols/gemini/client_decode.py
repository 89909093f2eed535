"""Gemini generateContent, reading: bodies and chunks → what they mean.

A chunk of a stream is shaped like a whole body. Of several candidates the first is the reply. Parts come in order; what
has to go back with one (its signature) is sealed to it, and a part that brings a seal is a part of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from cnllm.jsonpath import get, get_first
from cnllm.protocols import Quick
from cnllm.protocols.decode_sink import EventSink
from cnllm.protocols.gemini.partial_args import append_member, append_value, begin_arguments, end_arguments
from cnllm.protocols.reported import find_error
from cnllm.protocols.usage import read_counts
from cnllm.registry.flags import Flags
from cnllm.types import Event

__all__ = ["decode_chunk", "fast_decoder"]

_THOUGHT = "thought"
_CALL = ("id", "name", "args", "partialArgs", "willContinue")
# What of a candidate is about the exchange and not about what was said.
_OWN = (
    *("content", "finishReason", "finishMessage", "index", "tokenCount", "avgLogprobs", "logprobsResult"),
    "safetyRatings",
)
_UNSPOKEN = "FINISH_REASON_UNSPECIFIED"


def decode_chunk(data: Any, flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
    """One decoded chunk, or with `whole` one body: its events, and what it leaves in `sink`."""
    if type(data) is not dict:
        return []
    if sink.id is None and type(data.get("responseId")) is str:
        sink.id = data["responseId"] or None
    if sink.model is None and type(data.get("modelVersion")) is str:
        sink.model = data["modelVersion"] or None
    if sink.fault is None:
        sink.fault = _fault(data, flags)
    out: list[Event] = []
    usage = get_first(data, flags.usage.at if flags.usage else None)
    if type(usage) is dict:
        out += sink.add_usage(read_counts(_counted(usage, sink), flags))
    candidates = data.get("candidates")
    for place, candidate in enumerate(candidates if type(candidates) is list else ()):
        if type(candidate) is dict and candidate.get("index") in ((None, 0) if place == 0 else (0,)):
            out += _candidate(candidate, flags, sink, whole)
        elif type(candidate) is dict:
            said = f"candidate {candidate.get('index', place)!r}"
            out += sink.note("choice-dropped", "n", said, "left out: the first candidate is the reply")
    return out + _blocked(data.get("promptFeedback"), sink)


def _candidate(candidate: dict[str, Any], flags: Flags, sink: EventSink, whole: bool) -> list[Event]:
    out: list[Event] = []
    sink.answered = True
    content = candidate.get("content")
    parts = content.get("parts") if type(content) is dict else None
    for part in parts if type(parts) is list else ():
        out += _part(part, sink, whole)
    if beside := {k: v for k, v in candidate.items() if k not in _OWN and v is not None}:
        sink.annotate(beside)  # what an answer rests on: citations, searches
    reason = candidate.get("finishReason")
    if type(reason) is str and reason and reason != _UNSPOKEN:
        sink.raw_finish = reason
        sink.finished = True
        said = candidate.get("finishMessage")
        if type(said) is str and said and (flags.finish or {}).get(reason) == "error" and sink.fault is None:
            sink.fault = {"message": said, "status": reason}
    return out


def _blocked(feedback: Any, sink: EventSink) -> list[Event]:
    """A prompt that was not let through: there are no candidates then, but a reason."""
    reason = feedback.get("blockReason") if type(feedback) is dict else None
    if type(reason) is not str or not reason:
        return []
    sink.answered = sink.finished = sink.refused = True
    sink.raw_finish = sink.raw_finish or reason
    said = feedback.get("blockReasonMessage")
    return sink.note("prompt-blocked", "finish", said if type(said) is str and said else reason, "content_filter")


# ── parts ────────────────────────────────────────────────────────────────────


def _part(part: Any, sink: EventSink, whole: bool) -> list[Event]:
    if type(part) is not dict:
        return sink.add_opaque(part) if part else []
    part = {key: value for key, value in part.items() if value is not None}
    if type(call := part.get("functionCall")) is dict:
        return _call(call, part, sink)
    text = part.get("text", "")
    thought = part.get(_THOUGHT) is True
    beside = {key: value for key, value in part.items() if key not in ("text", _THOUGHT)}
    if type(text) is not str or ("text" not in part and not part.keys() <= {_THOUGHT, "thoughtSignature"}):
        return _other(part, thought, sink)
    if not text and not beside:
        return []
    out = sink.begin_block("thought" if thought else "text") if whole or beside else []
    if text:
        out += sink.add_reasoning(text, _THOUGHT) if thought else sink.add_text(text)
    if beside:
        sink.add_seal(beside)
        out += sink.end_block()
    return out


def _other(part: dict[str, Any], thought: bool, sink: EventSink) -> list[Event]:
    """A picture or a sound of the answer; anything else is kept whole."""
    if not thought:
        for key, place in (("inlineData", "data"), ("fileData", "fileUri")):
            said = part.get(key)
            kind = said.get("mimeType") if type(said) is dict else None
            if type(said) is dict and type(kind) is str and type(said.get(place)) is str:
                seal = {k: v for k, v in part.items() if k not in (key, _THOUGHT)}
                if rest := {k: v for k, v in said.items() if k not in ("mimeType", place)}:
                    seal[key] = rest
                out = sink.add_media(kind, **{"data" if place == "data" else "url": said[place]})
                if seal:
                    sink.add_seal(seal)
                return out
    return sink.add_opaque(part) if part.keys() - {_THOUGHT} else []


def _call(call: dict[str, Any], part: dict[str, Any], sink: EventSink) -> list[Event]:
    """A call, whole or in pieces: one that goes on says so, and is over with the first piece that does not."""
    name = call["name"] if type(call.get("name")) is str else ""
    pieces = call.get("partialArgs")
    goes_on = call.get("willContinue") is True
    beside = {k: v for k, v in part.items() if k not in ("functionCall", _THOUGHT)}
    if rest := {k: v for k, v in call.items() if k not in _CALL and v is not None}:
        beside["functionCall"] = rest
    open_call: Any = sink.state.get("call")
    if not name and open_call is None:
        return sink.add_opaque(part) if beside or call else []
    if name:
        place = sink.state["calls"] = sink.state.get("calls", -1) + 1
        function: dict[str, Any] = {"name": name}
        item = {**beside, "index": place, "id": call.get("id"), "function": function}
        args = call.get("args")
        if not goes_on and not pieces:
            function["arguments"] = {} if args is None else args
            sink.state["call"] = None
            return sink.add_call_pieces([item], True)
        state, first_text = begin_arguments()
        open_call = sink.state["call"] = (place, state)
    else:
        item = {**beside, "index": open_call[0], "id": call.get("id"), "function": (function := {})}
        state, first_text = open_call[1], ""
    args = call.get("args")
    texts = [first_text]
    texts += [append_member(state, key, value) for key, value in (args.items() if type(args) is dict else ())]
    texts += [append_value(state, piece) for piece in (pieces if type(pieces) is list else ())]
    if not goes_on:
        texts.append(end_arguments(state))
        sink.state["call"] = None
    function["arguments"] = "".join(texts)
    return sink.add_call_pieces([item], False)


# ── beside the answer ────────────────────────────────────────────────────────


def _counted(usage: dict[str, Any], sink: EventSink) -> dict[str, Any]:
    """All counts that have come. A later one replaces; a later nothing does not. Nought is left out on this wire, so
    what is missing of the total is what the answer took."""
    known: dict[str, Any] = sink.state.setdefault("usage", {})
    if sink.state.pop("derived", False):
        del known["candidatesTokenCount"]
    known.update({k: v for k, v in usage.items() if v or (v is not None and k not in known)})
    if "candidatesTokenCount" in known:
        return known
    given = [known.get(k) for k in ("totalTokenCount", "promptTokenCount")]
    if not all(type(v) is int for v in given):
        return known
    others = [known.get(k, 0) for k in ("promptTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")]
    rest = known["totalTokenCount"] - sum(v for v in others if type(v) is int)
    if rest >= 0:
        known["candidatesTokenCount"] = rest
        sink.state["derived"] = True  # until the next counts come
    return known


def _fault(data: dict[str, Any], flags: Flags) -> Any:
    """The error in a body or chunk, or None."""
    for path in (flags.error.at if flags.error else None) or ():
        found = get(data, path)
        if type(found) is dict and found:
            return found
        if type(found) is str and found and not data.get("candidates"):
            return data
    return None if data.get("candidates") else find_error(data)


# ── the fast way ─────────────────────────────────────────────────────────────


class _Part(Struct, forbid_unknown_fields=True, gc=False):
    text: str = ""
    thought: bool | None = None


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    parts: list[_Part]
    role: str | None = None


class _Candidate(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    content: _Content
    index: Literal[0] | None = None
    safety_ratings: Raw | None = None
    avg_logprobs: Raw | None = None
    token_count: Raw | None = None


def fast_decoder(flags: Flags) -> Quick:
    """The fast way: one candidate with one part of text or thinking and nothing else. Counts are left to the chunk that
    says why the reply ended."""
    return _quick(tuple(sorted({path.split(".")[0] for path in (flags.error.at if flags.error else None) or ()})))


@lru_cache(maxsize=16)
def _quick(rare: tuple[str, ...]) -> Callable[[bytes], tuple[str, str | None] | None]:
    names = {f"r{place}": name for place, name in enumerate(dict.fromkeys((*rare, "promptFeedback")))}
    fields: list[Any] = [("candidates", list[_Candidate], []), *((name, None, None) for name in names)]
    decode = msgspec.json.Decoder(msgspec.defstruct("_Chunk", fields, rename=names, gc=False)).decode

    def read(text: bytes) -> tuple[str, str | None] | None:
        try:
            candidates: list[_Candidate] = decode(text).candidates  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if len(candidates) != 1 or len(parts := candidates[0].content.parts) != 1 or not parts[0].text:
            return None
        return parts[0].text, _THOUGHT if parts[0].thought else None

    return read
