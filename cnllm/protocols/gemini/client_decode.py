"""Decode bodies and chunks of Gemini generateContent.

A chunk of a stream has the form of a whole body. Of several candidates the first is the reply. Parts come in order.
Data that must go back with a part (its signature) is its seal, and a part with a seal is a part of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from cnllm.jsonpath import get_first
from cnllm.protocols import FastDecoder
from cnllm.protocols.gemini.partial_args import append_member, append_value, begin_arguments, end_arguments
from cnllm.protocols.pieces import (
    ANSWERED,
    ENDED,
    FINISH_RANKS,
    REFUSED,
    Annotations,
    CallEnd,
    CallPieces,
    CitationPiece,
    Decoder,
    ExtraPiece,
    Fault,
    Head,
    MediaPiece,
    OpaquePiece,
    PartEnd,
    PartSeal,
    PartStart,
    Piece,
    ReasoningPiece,
    TextPiece,
)
from cnllm.protocols.reported import (
    Candidates,
    as_count,
    count_pieces,
    find_fault,
    merge_with_notes,
    read_finish,
)
from cnllm.registry.flags import Flags
from cnllm.types import Media, Note

__all__ = ["GeminiDecoder", "fast_decoder"]

_THOUGHT = "thought"
_CALL_KEYS = ("id", "name", "args", "partialArgs", "willContinue")
_NUMBERED = ("groundingChunks", "groundingSupports")
_ABOUT = ("tokenCount", "avgLogprobs", "safetyRatings", "finishMessage")
"""Keys of a candidate about the exchange, not about the answer."""
_READ = ("content", "finishReason", "index", "logprobsResult", *_ABOUT)


class GeminiDecoder(Decoder):
    """The decoder of one reply."""

    __slots__ = (
        *("_about", "_call_count", "_candidates", "_counts", "_flags", "_has_finish", "_is_derived"),
        *("_lists", "_open_call"),
    )

    def __init__(self, flags: Flags) -> None:
        self._flags = flags
        self._candidates = Candidates("candidate")
        self._has_finish = False
        self._about: dict[str, Any] = {}  # keys of the candidate that are not decoded, so far
        self._lists: dict[tuple[str, str], dict[str, Any]] = {}  # the items of lists in these, so far, by their content
        self._counts: dict[str, Any] = {}  # so far
        self._is_derived = False  # the count of the answer is the rest of the total, until the next counts come
        self._call_count = 0
        self._open_call: tuple[int, Any] | None = None  # its index, and the state of its arguments

    def decode(self, data: dict[str, Any], *, whole: bool = False) -> Iterator[Piece]:
        """Yield the pieces of one chunk, or with `whole` of one body."""
        yield Head(data.get("responseId"), data.get("modelVersion"))
        candidates = data.get("candidates")
        if (fault := find_fault(data, self._flags, candidates)) is not None:
            yield Fault(fault)
        usage = get_first(data, self._flags.usage.at)
        if type(usage) is dict:
            yield from self._merge_usage(usage)
        for key in ("modelStatus", "promptFeedback"):
            if value := data.get(key):
                yield ExtraPiece(key, value)
        found, left_out = self._candidates.pick(candidates, _is_empty, whole=whole)
        for candidate in found:
            yield from self._candidate(candidate, whole=whole)
        yield from map(self._candidates.note, left_out)
        yield from self._prompt_blocked(data.get("promptFeedback"))

    def end(self) -> list[Piece]:
        """Return the only candidate, if its index is another one, and the lists of data about the answer.

        Of the lists each chunk has its own items, or all so far: here they have the items of all chunks.
        """
        found, left_out = self._candidates.rest()
        out = [piece for candidate in found for piece in self._candidate(candidate, whole=False)]
        out += map(self._candidates.note, left_out)
        whole: dict[str, Any] = {}
        for (key, name), items in self._lists.items():
            known = whole.get(key, self._about[key])
            if type(known) is dict and (every := [*items.values()]) != known.get(name):
                whole[key] = {**known, name: every}
        return [*out, Annotations(whole)] if whole else out

    def _candidate(self, candidate: dict[str, Any], *, whole: bool) -> Iterator[Piece]:
        """Decode one candidate."""
        yield ANSWERED
        content = candidate.get("content")
        parts = content.get("parts") if type(content) is dict else None
        for part in parts if type(parts) is list else ():
            yield from self._part(part, whole=whole)
        if other_keys := {k: v for k, v in candidate.items() if k not in _READ and v is not None}:
            for key, value in other_keys.items():  # the searches may come in one chunk, and what they found in another
                if type(value) is dict:
                    self._collect_items(key, value)
                    known = self._about.get(key)
                    value = {**known, **value} if type(known) is dict else value
                self._about[key] = other_keys[key] = value
            yield Annotations(other_keys)  # the sources of an answer: citations, searches
            yield from _citations(candidate.get("groundingMetadata"), other_keys.get("groundingMetadata"))
            yield from _recitations(candidate.get("citationMetadata"))
        yield from (ExtraPiece(key, value) for key in _ABOUT if (value := candidate.get(key)))
        yield from _logprobs(candidate.get("logprobsResult"))
        reason = candidate.get("finishReason")
        if (finish := read_finish(reason, self._flags)) is None:
            return
        self._has_finish = True
        yield finish
        if finish.kind in FINISH_RANKS:
            yield ENDED
            message = candidate.get("finishMessage")
            if type(message) is str and message and finish.kind == "error":
                yield Fault({"message": message, "status": reason})

    def _collect_items(self, key: str, data: dict[str, Any]) -> None:
        """Collect the items of lists, except for those that are named by their places."""
        for name, items in data.items():
            if name not in _NUMBERED and type(items) is list:
                self._lists.setdefault((key, name), {}).update((repr(item), item) for item in items)

    def _prompt_blocked(self, feedback: Any) -> Iterator[Piece]:
        """Give the reason why a prompt was blocked: then there are no candidates."""
        reason = feedback.get("blockReason") if type(feedback) is dict else None
        if type(reason) is not str or not reason:
            return
        yield ANSWERED
        yield ENDED
        yield REFUSED
        if not self._has_finish and (finish := read_finish(reason, self._flags)) is not None:
            self._has_finish = True
            yield finish
        message = feedback.get("blockReasonMessage")
        subject = message if type(message) is str and message else reason
        yield Note("prompt-blocked", "finish", subject, "content_filter")

    # ── parts ─────────────────────────────────────────────────────────────────

    def _part(self, part: Any, *, whole: bool) -> Iterator[Piece]:
        """Decode one part."""
        if type(part) is not dict:
            if part:
                yield OpaquePiece(part)
            return
        part = {key: value for key, value in part.items() if value is not None}
        if type(call := part.get("functionCall")) is dict:
            yield from self._call(call, part)
            return
        text = part.get("text", "")
        is_thought = part.get(_THOUGHT) is True
        other_keys = {key: value for key, value in part.items() if key not in ("text", _THOUGHT)}
        if type(text) is not str or ("text" not in part and not part.keys() <= {_THOUGHT, "thoughtSignature"}):
            yield from _media_or_opaque(part, is_thought=is_thought)
            return
        if not text and not other_keys:
            return
        if whole or other_keys:
            yield PartStart("thought" if is_thought else "text")
        if text:
            yield ReasoningPiece(text, _THOUGHT) if is_thought else TextPiece(text)
        if other_keys:
            yield PartSeal(other_keys)
            yield PartEnd()

    def _call(self, call: dict[str, Any], part: dict[str, Any]) -> Iterator[Piece]:
        """Decode a call, whole or in pieces. A piece that continues says so; the first other one ends the call."""
        name = call["name"] if type(call.get("name")) is str else ""
        pieces = call.get("partialArgs")
        continues = call.get("willContinue") is True
        other_keys = {k: v for k, v in part.items() if k not in ("functionCall", _THOUGHT)}
        if rest := {k: v for k, v in call.items() if k not in _CALL_KEYS and v is not None}:
            other_keys["functionCall"] = rest
        args = call.get("args")
        function: dict[str, Any] = {}
        first_text = ""
        if name:
            index, function["name"] = self._call_count, name
            self._call_count += 1
            if not continues and not pieces:
                function["arguments"] = "" if args is None else args
                self._open_call = None
                yield CallPieces([{**other_keys, "index": index, "id": call.get("id"), "function": function}], True)
                return
            state, first_text = begin_arguments()
            self._open_call = (index, state)
        elif self._open_call is None:
            if other_keys or call:
                yield OpaquePiece(part)
            return
        index, state = self._open_call
        texts = [first_text]
        texts += [append_member(state, key, value) for key, value in (args.items() if type(args) is dict else ())]
        texts += [append_value(state, piece) for piece in (pieces if type(pieces) is list else ())]
        if not continues:
            texts.append(end_arguments(state))
            self._open_call = None
        function["arguments"] = "".join(texts)
        yield CallPieces([{**other_keys, "index": index, "id": call.get("id"), "function": function}], False)
        yield CallEnd(index, not continues)

    def _merge_usage(self, usage: dict[str, Any]) -> Iterator[Piece]:
        """Yield all counts so far. A later count replaces an earlier one; a later zero or null does not.

        This wire leaves out a zero, so the rest of the total is the count of the answer. An object with another total
        counts anew: the count of the answer in an earlier one is no part of it.
        """
        counts = self._counts
        total = usage.get("totalTokenCount")
        is_anew = usage.get("candidatesTokenCount") is None and total and total != counts.get("totalTokenCount")
        if self._is_derived or is_anew:
            self._is_derived = False
            counts.pop("candidatesTokenCount", None)
        notes = merge_with_notes(counts, {key: value for key, value in usage.items() if value is not None})
        totals = [as_count(counts.get(key)) for key in ("totalTokenCount", "promptTokenCount")]
        if "candidatesTokenCount" not in counts and None not in totals:
            names = ("promptTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
            parts = [as_count(value) for key in names if (value := counts.get(key)) is not None]
            rest = (totals[0] or 0) - sum(part or 0 for part in parts)
            if rest >= 0 and None not in parts:
                counts["candidatesTokenCount"] = rest
                self._is_derived = True
        yield from notes
        yield from count_pieces(counts, self._flags, usage)


def _is_empty(candidate: dict[str, Any]) -> bool:
    """Whether a candidate holds nothing of an answer; it may hold a finish reason."""
    return not candidate.get("content")


def _media_or_opaque(part: dict[str, Any], *, is_thought: bool) -> Iterator[Piece]:
    """Decode a picture or a sound of the answer; any other part is stored whole."""
    for key, value_key in () if is_thought else (("inlineData", "data"), ("fileData", "fileUri")):
        value = part.get(key)
        mime_type = value.get("mimeType") if type(value) is dict else None
        if type(value) is dict and type(mime_type) is str and type(value.get(value_key)) is str:
            seal = {k: v for k, v in part.items() if k not in (key, _THOUGHT)}
            if rest := {k: v for k, v in value.items() if k not in ("mimeType", value_key)}:
                seal[key] = rest
            content = value[value_key]
            is_data = value_key == "data"
            yield MediaPiece(Media(mime_type, content) if is_data else Media(mime_type, url=content))
            if seal:
                yield PartSeal(seal)
            return
    if part.keys() - {_THOUGHT}:
        yield OpaquePiece(part)


def _recitations(metadata: Any) -> Iterator[Piece]:
    """Give the sources of pieces of an answer that repeat them. Their places are counted in bytes."""
    for key in ("citations", "citationSources"):
        items = metadata.get(key) if type(metadata) is dict else None
        for item in items if type(items) is list else ():
            if type(item) is dict:
                start, end = item.get("startIndex") or 0, item.get("endIndex")
                yield CitationPiece(item, item.get("uri"), item.get("title"), start, end, quote="")


def _citations(metadata: Any, merged: Any) -> Iterator[Piece]:
    """Give the sources of an answer: those of a piece of it with the piece, then those without one.

    The pages may have come with an earlier chunk: `merged` has all data so far.
    """
    chunks = merged.get("groundingChunks") if type(metadata) is dict else None
    if type(chunks) is not list:
        return
    supports = metadata.get("groundingSupports")
    places: set[int] = set()
    for support in supports if type(supports) is list else ():
        if type(support) is not dict or type(segment := support.get("segment")) is not dict:
            continue
        indexes = support.get("groundingChunkIndices")
        for index in indexes if type(indexes) is list else ():
            if type(index) is int and 0 <= index < len(chunks) and type(chunks[index]) is dict:
                places.add(index)
                quote = segment["text"] if type(segment.get("text")) is str else ""
                start, end = segment.get("startIndex") or 0, segment.get("endIndex")
                yield CitationPiece(chunks[index], *_page(chunks[index]), start, end, quote=quote)
    for index, chunk in enumerate(chunks if "groundingChunks" in metadata else ()):
        if index not in places and type(chunk) is dict:
            yield CitationPiece(chunk, *_page(chunk))


def _page(chunk: dict[str, Any]) -> tuple[Any, Any]:
    """Return the address and the title of a source."""
    page = next((value for value in chunk.values() if type(value) is dict), {})
    return page.get("uri"), page.get("title")


def _logprobs(result: Any) -> Iterator[Piece]:
    """Give the log probabilities of tokens in the form of chat completions, and what else stands beside them."""
    if type(result) is not dict:
        return
    chosen, others = result.get("chosenCandidates"), result.get("topCandidates")
    out: list[dict[str, Any]] = []
    for index, candidate in enumerate(chosen if type(chosen) is list else ()):
        top = others[index] if type(others) is list and index < len(others) else None
        top = top.get("candidates") if type(top) is dict else None
        tops = [_token(other) for other in top if type(other) is dict] if type(top) is list else []
        if type(candidate) is dict:
            out.append({**_token(candidate), "top_logprobs": tops})
    if out:
        yield ExtraPiece("logprobs", out)
    if rest := {key: value for key, value in result.items() if key not in _TOKENS}:
        yield ExtraPiece("logprobsResult", rest)


def _token(candidate: dict[str, Any]) -> dict[str, Any]:
    """Return one token with its log probability."""
    token = candidate.get("token")
    token = token if type(token) is str else ""
    logprob, id = candidate.get("logProbability"), candidate.get("tokenId")
    out = {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "surrogatepass"))}
    return out if id is None else {**out, "token_id": id}


_TOKENS = ("chosenCandidates", "topCandidates")


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
    places = flags.error.at or ()
    if "." in places:
        return None
    try:
        return _build_fast_decoder(tuple(sorted({path.split(".")[0] for path in places})))
    except ValueError:  # msgspec takes no quote, backslash or control character in a name
        return None


@lru_cache(maxsize=16)
def _build_fast_decoder(rare: tuple[str, ...]) -> Callable[[bytes], tuple[str, str | None] | None]:
    """Return the fast decoder for these rare fields."""
    names = {f"r{index}": name for index, name in enumerate(dict.fromkeys((*rare, "promptFeedback", "modelStatus")))}
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
