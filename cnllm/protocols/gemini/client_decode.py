"""Decode bodies and chunks of Gemini generateContent.

A chunk of a stream has the form of a whole body. Of several candidates the first is the reply. Parts come in order.
Data that must go back with a part (its signature) is its seal, and a part with a seal is a part of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from cnllm.jsonpath import get, get_first
from cnllm.protocols import FastDecoder
from cnllm.protocols.decode_sink import EventSink
from cnllm.protocols.gemini.partial_args import append_member, append_value, begin_arguments, end_arguments
from cnllm.protocols.reported import find_error, finish_kind, finish_word
from cnllm.protocols.usage import add_counts, as_count
from cnllm.registry.flags import Flags
from cnllm.types import Event

__all__ = ["decode_chunk", "fast_decoder"]

_THOUGHT = "thought"
_CALL_KEYS = ("id", "name", "args", "partialArgs", "willContinue")
# The keys of a candidate about the exchange, not about the answer.
_EXCHANGE_KEYS = (
    *("content", "finishReason", "finishMessage", "index", "tokenCount", "avgLogprobs", "logprobsResult"),
    "safetyRatings",
)


def decode_chunk(data: Any, flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
    """Decode one chunk, or with `whole` one body. Return its events; the rest is stored in `sink`."""
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
        out += add_counts(_merge_usage(usage, sink), flags, sink)
    candidates = data.get("candidates")
    for position, candidate in enumerate(candidates if type(candidates) is list else ()):
        if type(candidate) is dict and candidate.get("index") in ((None, 0) if position == 0 else (0,)):
            out += _candidate(candidate, flags, sink, whole)
        elif type(candidate) is dict:
            dropped = f"candidate {candidate.get('index', position)!r}"
            out += sink.note("choice-dropped", "n", dropped, "left out: the first candidate is the reply")
    return out + _prompt_blocked(data.get("promptFeedback"), sink)


def _candidate(candidate: dict[str, Any], flags: Flags, sink: EventSink, whole: bool) -> list[Event]:
    """Decode one candidate."""
    out: list[Event] = []
    sink.answered = True
    content = candidate.get("content")
    parts = content.get("parts") if type(content) is dict else None
    for part in parts if type(parts) is list else ():
        out += _part(part, sink, whole)
    if other_keys := {k: v for k, v in candidate.items() if k not in _EXCHANGE_KEYS and v is not None}:
        sink.annotate(other_keys)  # the sources of an answer: citations, searches
        out += _citations(candidate.get("groundingMetadata"), sink)
    out += sink.add_extra("logprobs", _logprobs(candidate.get("logprobsResult")))
    reason = candidate.get("finishReason")
    if sink.report_finish(reason):
        sink.finished = True
        message = candidate.get("finishMessage")
        if type(message) is str and message and finish_kind(finish_word(reason), flags) == "error" and not sink.fault:
            sink.fault = {"message": message, "status": reason}
    return out


def _logprobs(result: Any) -> list[dict[str, Any]]:
    """Return the log probabilities of tokens in the form of chat completions."""
    chosen = result.get("chosenCandidates") if type(result) is dict else None
    others = result.get("topCandidates") if type(result) is dict else None
    out: list[dict[str, Any]] = []
    for index, candidate in enumerate(chosen if type(chosen) is list else ()):
        top = others[index] if type(others) is list and index < len(others) else None
        top = top.get("candidates") if type(top) is dict else None
        tops = [_token(other) for other in top if type(other) is dict] if type(top) is list else []
        if type(candidate) is dict:
            out.append({**_token(candidate), "top_logprobs": tops})
    return out


def _token(candidate: dict[str, Any]) -> dict[str, Any]:
    """Return one token with its log probability."""
    token = candidate.get("token")
    token = token if type(token) is str else ""
    logprob = candidate.get("logProbability")
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "surrogatepass"))}


def _citations(metadata: Any, sink: EventSink) -> list[Event]:
    """Report the sources of an answer: those of a piece of it with the piece, then those without one."""
    chunks = metadata.get("groundingChunks") if type(metadata) is dict else None
    if type(chunks) is not list:
        return []
    out: list[Event] = []
    supports = metadata.get("groundingSupports")
    used: set[int] = set()
    for support in supports if type(supports) is list else ():
        if type(support) is not dict or type(segment := support.get("segment")) is not dict:
            continue
        indexes = support.get("groundingChunkIndices")
        for index in indexes if type(indexes) is list else ():
            if type(index) is int and 0 <= index < len(chunks) and type(chunks[index]) is dict:
                used.add(index)
                quote = segment["text"] if type(segment.get("text")) is str else ""
                start, end = segment.get("startIndex") or 0, segment.get("endIndex")
                out += sink.add_citation(chunks[index], *_page(chunks[index]), start, end, quote=quote)
    for index, chunk in enumerate(chunks):
        if index not in used and type(chunk) is dict:
            out += sink.add_citation(chunk, *_page(chunk))
    return out


def _page(chunk: dict[str, Any]) -> tuple[Any, Any]:
    """Return the address and the title of a source."""
    page = next((value for value in chunk.values() if type(value) is dict), {})
    return page.get("uri"), page.get("title")


def _prompt_blocked(feedback: Any, sink: EventSink) -> list[Event]:
    """Report a prompt that was blocked: then there are no candidates, but a reason."""
    reason = feedback.get("blockReason") if type(feedback) is dict else None
    if type(reason) is not str or not reason:
        return []
    sink.answered = sink.finished = sink.refused = True
    if sink.raw_finish is None:
        sink.report_finish(reason)
    message = feedback.get("blockReasonMessage")
    return sink.note(
        "prompt-blocked", "finish", message if type(message) is str and message else reason, "content_filter"
    )


# ── parts ─────────────────────────────────────────────────────────────────────


def _part(part: Any, sink: EventSink, whole: bool) -> list[Event]:
    """Decode one part."""
    if type(part) is not dict:
        return sink.add_opaque(part) if part else []
    part = {key: value for key, value in part.items() if value is not None}
    if type(call := part.get("functionCall")) is dict:
        return _call(call, part, sink)
    text = part.get("text", "")
    is_thought = part.get(_THOUGHT) is True
    other_keys = {key: value for key, value in part.items() if key not in ("text", _THOUGHT)}
    if type(text) is not str or ("text" not in part and not part.keys() <= {_THOUGHT, "thoughtSignature"}):
        return _media_or_opaque(part, is_thought, sink)
    if not text and not other_keys:
        return []
    out = sink.begin_block("thought" if is_thought else "text") if whole or other_keys else []
    if text:
        out += sink.add_reasoning(text, _THOUGHT) if is_thought else sink.add_text(text)
    if other_keys:
        sink.add_seal(other_keys)
        out += sink.end_block()
    return out


def _media_or_opaque(part: dict[str, Any], is_thought: bool, sink: EventSink) -> list[Event]:
    """Decode a picture or a sound of the answer; any other part is stored whole."""
    if not is_thought:
        for key, value_key in (("inlineData", "data"), ("fileData", "fileUri")):
            value = part.get(key)
            mime_type = value.get("mimeType") if type(value) is dict else None
            if type(value) is dict and type(mime_type) is str and type(value.get(value_key)) is str:
                seal = {k: v for k, v in part.items() if k not in (key, _THOUGHT)}
                if rest := {k: v for k, v in value.items() if k not in ("mimeType", value_key)}:
                    seal[key] = rest
                out = sink.add_media(mime_type, **{"data" if value_key == "data" else "url": value[value_key]})
                if seal:
                    sink.add_seal(seal)
                return out
    return sink.add_opaque(part) if part.keys() - {_THOUGHT} else []


def _call(call: dict[str, Any], part: dict[str, Any], sink: EventSink) -> list[Event]:
    """Decode a call, whole or in pieces. A piece that continues says so; the first one that does not ends the call."""
    name = call["name"] if type(call.get("name")) is str else ""
    pieces = call.get("partialArgs")
    continues = call.get("willContinue") is True
    other_keys = {k: v for k, v in part.items() if k not in ("functionCall", _THOUGHT)}
    if rest := {k: v for k, v in call.items() if k not in _CALL_KEYS and v is not None}:
        other_keys["functionCall"] = rest
    open_call: Any = sink.state.get("call")
    if not name and open_call is None:
        return sink.add_opaque(part) if other_keys or call else []
    if name:
        index = sink.state["calls"] = sink.state.get("calls", -1) + 1
        function: dict[str, Any] = {"name": name}
        item = {**other_keys, "index": index, "id": call.get("id"), "function": function}
        args = call.get("args")
        if not continues and not pieces:
            function["arguments"] = {} if args is None else args
            sink.state["call"] = None
            return sink.add_call_pieces([item], True)
        state, first_text = begin_arguments()
        open_call = sink.state["call"] = (index, state)
    else:
        item = {**other_keys, "index": open_call[0], "id": call.get("id"), "function": (function := {})}
        state, first_text = open_call[1], ""
    args = call.get("args")
    texts = [first_text]
    texts += [append_member(state, key, value) for key, value in (args.items() if type(args) is dict else ())]
    texts += [append_value(state, piece) for piece in (pieces if type(pieces) is list else ())]
    if not continues:
        texts.append(end_arguments(state))
        sink.state["call"] = None
    function["arguments"] = "".join(texts)
    out = sink.add_call_pieces([item], False)
    sink.end_call(open_call[0], not continues)
    return out


# ── usage and errors ──────────────────────────────────────────────────────────


def _merge_usage(usage: dict[str, Any], sink: EventSink) -> dict[str, Any]:
    """Return all counts so far. A later count replaces an earlier one; a later zero or null does not.

    This wire leaves out a zero, so the rest of the total is the count of the answer.
    """
    counts: dict[str, Any] = sink.state.setdefault("usage", {})
    if sink.state.pop("derived", False):
        del counts["candidatesTokenCount"]
    counts.update({k: v for k, v in usage.items() if v or (v is not None and k not in counts)})
    if "candidatesTokenCount" in counts:
        return counts
    totals = [counts.get(k) for k in ("totalTokenCount", "promptTokenCount")]
    if any(as_count(v) is None for v in totals):
        return counts
    prompt_and_thoughts = [
        as_count(counts.get(k)) or 0 for k in ("promptTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
    ]
    rest = counts["totalTokenCount"] - sum(prompt_and_thoughts)
    if rest >= 0:
        counts["candidatesTokenCount"] = rest
        sink.state["derived"] = True  # until the next counts come
    return counts


def _fault(data: dict[str, Any], flags: Flags) -> Any:
    """Return the error in a body or chunk, or None."""
    for path in (flags.error.at if flags.error else None) or ():
        error = get(data, path)
        if type(error) is dict and error:
            return error
        if type(error) is str and error and not data.get("candidates"):
            return data
    return None if data.get("candidates") else find_error(data)


# ── the fast decoder ──────────────────────────────────────────────────────────


class _Part(Struct, forbid_unknown_fields=True, gc=False):
    """A part with text only."""

    text: str = ""
    thought: bool | None = None


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    """A content with such parts only."""

    parts: list[_Part]
    role: str | None = None


class _Candidate(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    """A candidate with such a content."""

    content: _Content
    index: Literal[0] | None = None
    safety_ratings: Raw | None = None
    avg_logprobs: Raw | None = None
    token_count: Raw | None = None


def fast_decoder(flags: Flags) -> FastDecoder | None:
    """Return the fast decoder: one candidate with one part of text or reasoning and nothing else.

    Counts are left to the last chunk, which has the finish reason. None where an error may be the chunk itself.
    """
    places = (flags.error.at if flags.error else None) or ()
    return None if "." in places else _build_fast_decoder(tuple(sorted({path.split(".")[0] for path in places})))


@lru_cache(maxsize=16)
def _build_fast_decoder(rare: tuple[str, ...]) -> Callable[[bytes], tuple[str, str | None] | None]:
    """Return the fast decoder for these rare fields."""
    names = {f"r{index}": name for index, name in enumerate(dict.fromkeys((*rare, "promptFeedback")))}
    fields: list[Any] = [("candidates", list[_Candidate], []), *((name, None, None) for name in names)]
    decode = msgspec.json.Decoder(msgspec.defstruct("_Chunk", fields, rename=names, gc=False)).decode

    def read(text: bytes) -> tuple[str, str | None] | None:
        """Decode one chunk."""
        try:
            candidates: list[_Candidate] = decode(text).candidates  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if len(candidates) != 1 or len(parts := candidates[0].content.parts) != 1 or not parts[0].text:
            return None
        return parts[0].text, _THOUGHT if parts[0].thought else None

    return read
