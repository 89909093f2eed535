"""Decode bodies and chunks of OpenAI chat completions.

One decoder reads both: a message is read like a delta with everything in it. The flags tell the endpoint's dialect:
the fields of the reasoning, the places of usage and errors.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeGuard

from cnllm.jsonpath import get_first
from cnllm.protocols.chat.client_paths import chunk_reader
from cnllm.protocols.pieces import (
    ANSWERED,
    ENDED,
    FINISH_RANKS,
    REFUSAL,
    WORDS,
    CallEnd,
    CallPieces,
    CitationPiece,
    Decoder,
    Details,
    ExtraPiece,
    Fault,
    Head,
    MediaPiece,
    OpaquePiece,
    Piece,
    ReasoningPiece,
    TextPiece,
    WholeText,
)
from cnllm.protocols.reported import (
    Candidates,
    add_counts,
    as_index,
    find_fault,
    is_error,
    number_text,
    read_finish,
    sentence_of,
)
from cnllm.registry.flags import Flags
from cnllm.types import Media, Note
from cnllm.types.checks import short_text
from cnllm.types.media import as_media
from cnllm.types.tools import custom_arguments

__all__ = ["EXTRA_KEYS", "ChatDecoder", "is_chunk"]

EXTRA_KEYS = ("service_tier", "system_fingerprint", "moderation", "metadata")
"""Keys beside the choices that `Reply.extra` has."""

_ANSWER_KEYS = frozenset({"id", "object", "created", "model", "choices"})
_SOUNDS = {
    "UklGR": "audio/wav",
    "SUQz": "audio/mpeg",
    "//": "audio/mpeg",
    "T2dnUw": "audio/ogg",
    "ZkxhQw": "audio/flac",
}
"""Types of sounds by the beginning of their data in base64."""


class ChatDecoder(Decoder):
    """The decoder of one reply."""

    def __init__(self, flags: Flags) -> None:
        self._flags = flags
        self._read = chunk_reader(flags)  # a translation of the endpoint's own paths
        self._plain_keys, self._known_keys, self._choice_keys = _answer_keys(flags)
        self._fields = tuple(flags.reasoning.fields or ())
        self._head: tuple[Any, Any, Any] | None = None  # the id, the model and the time in the newest chunk
        self._candidates = Candidates("choice")
        self._is_answered = False  # a choice came
        self._has_answer = False  # text or a call came
        self._has_calls = self._has_reasoning = False  # a call came, reasoning in a field came
        self._has_content = False  # the content of a message came
        self._call_choices: dict[Any, bool] = {}  # indexes of other choices, and whether each holds calls of the reply
        self._legacy_texts: list[str] = []  # texts of the older field, which the content of the next chunk may repeat
        self._audio: dict[str, Any] | None = None  # the spoken answer so far
        self._counts: dict[str, Any] = {}  # of tokens, so far
        self._open_inputs: set[Any] = set()  # of custom tools, by the index of their call

    def decode(self, data: dict[str, Any], *, whole: bool = False) -> list[Piece]:
        """Return the pieces of one chunk, or with `whole` of one body."""
        out: list[Piece] = []
        flags = self._flags
        if self._read is not None:
            data = self._read(data, whole)
        head = data.get("id"), data.get("model"), data.get("created")
        if head != self._head:  # once, and not with each chunk
            self._head = head
            out.append(Head(*head))
        choices = data.get("choices")
        # Keys beside the answer may hold a failure, counts or sources.
        is_longer = not self._plain_keys.issuperset(data)
        has_more = not (
            type(choices) is list
            and choices
            and type(choices[0]) is dict
            and self._choice_keys.isdisjoint(choices[0])
            and not (is_longer and [key for key in data.keys() - self._known_keys if data[key] is not None])
        )
        if has_more:
            if (fault := find_fault(data, flags, choices)) is not None:
                out.append(Fault(fault))
            elif not (choices or whole) and (sentence := sentence_of(data)):
                did = "skipped: it holds nothing of a reply"
                out += (WORDS, Note("odd-chunk", "stream", short_text(sentence), did))
        if is_longer:
            for key in EXTRA_KEYS:
                if type(value := data.get(key)) in (str, dict) and value:
                    out.append(ExtraPiece(key, value))
        if has_more:
            out += add_counts(self._counts, data, flags)
        others: list[dict[str, Any]] = []
        if self._candidates.is_found and _is_only_choice(choices):
            found = choices
        else:
            found, others = self._candidates.pick(choices, _is_empty, whole=whole)
        self._choices(found, others, out, whole=whole)
        if has_more and flags.citations.at:
            out += _sources(data, flags)
        return out

    def end(self) -> list[Piece]:
        """Return the only choice, if its index is another one, and the spoken answer, as far as it came."""
        out: list[Piece] = []
        if self._candidates.waiting:
            self._choices(*self._candidates.rest(), out, whole=False)
        self._end_audio(out)
        return out

    def _choices(
        self, found: list[dict[str, Any]], others: list[dict[str, Any]], out: list[Piece], *, whole: bool
    ) -> None:
        """Decode the choices that are the reply, and of the others those that hold its calls."""
        for choice in found:
            self._choice(choice, out, whole=whole)
        for choice in others:
            if self._has_only_calls(choice):
                self._choice(choice, out, whole=whole)
            else:
                out.append(self._candidates.note(choice))

    def _has_only_calls(self, choice: dict[str, Any]) -> bool:
        """Whether another choice holds the calls of the reply, which has none: some endpoints write its text and its
        calls into choices of their own, although nobody asked for a second reply.
        """
        index = as_index(choice.get("index"))
        if _is_empty(choice):
            return self._call_choices.get(index, False)
        message = choice.get("message") or choice.get("delta")
        may_add = not self._has_calls or True in self._call_choices.values()
        is_one = may_add and type(message) is dict and bool(message.get("tool_calls")) and not message.get("content")
        self._call_choices[index] = is_one and self._call_choices.get(index, True)
        return self._call_choices[index]

    def _choice(self, choice: dict[str, Any], out: list[Piece], *, whole: bool) -> None:
        """Decode one choice."""
        if not self._is_answered:
            self._is_answered = True
            out.append(ANSWERED)
        for key in ("delta", "message") if not whole else ("message", "delta"):
            message = choice.get(key)
            if type(message) is dict:
                # Some endpoints repeat the whole message beside the last delta.
                is_repeat = key == "message" and not whole
                if is_repeat and self._has_answer:
                    self._repeat(message, out, is_last=choice.get("finish_reason") is not None)
                    continue
                self._delta(message, out, whole=whole or is_repeat, is_repeat=is_repeat)
                if whole:
                    break
        if type(choice.get("text")) is str and choice["text"]:
            self._legacy(choice, out)
        logprobs = choice.get("logprobs")
        if type(logprobs) is dict:
            for tokens in (logprobs.get("content"), logprobs.get("refusal")):
                if type(tokens) is list:
                    out.append(ExtraPiece("logprobs", tokens))
        if "error" in choice:
            out += _faults(choice)
        word = choice.get("finish_reason")
        if word is not None and (finish := read_finish(word, self._flags)) is not None:
            if self._open_inputs:
                out.append(CallPieces(_end_inputs(self._open_inputs), False))
            out.append(finish)
            if finish.kind in FINISH_RANKS:
                out.append(ENDED)
                self._end_audio(out)
            elif finish.kind is None:
                out.append(ExtraPiece("finish_reason", finish.word))

    def _repeat(self, message: dict[str, Any], out: list[Piece], *, is_last: bool) -> None:
        """Decode what the deltas before lack of a message beside the last one."""
        keys = ["annotations", "error", "images"]
        if not self._has_reasoning:
            keys += self._fields
        if not self._has_calls:
            keys += ["tool_calls", "function_call"]
        self._delta({key: message[key] for key in keys if key in message}, out, whole=True, is_repeat=True)
        if is_last and type(content := message.get("content")) is str:
            out.append(WholeText(content))

    def _text(self, text: str, out: list[Piece]) -> None:
        """Give text of the answer, if there is any."""
        if text:
            self._has_answer = True
            out.append(TextPiece(text))

    def _legacy(self, choice: dict[str, Any], out: list[Piece]) -> None:
        """Decode the text field of the older API. It counts only while no message has content: hosts send both."""
        if self._has_content:
            return
        text: str = choice["text"]
        for key in ("delta", "message"):
            message = choice.get(key)
            if type(message) is dict and any(message.get(field) == text for field in self._fields):
                return  # it repeats the reasoning
        self._legacy_texts.append(text)
        self.reads_all = True
        self._text(text, out)

    def _content(self, text: str, out: list[Piece]) -> None:
        """Decode content of a message, without the text that the older field has already given."""
        self._has_content = True
        if self._legacy_texts:
            legacy = "".join(self._legacy_texts)
            is_ahead = len(legacy) > len(text) and legacy.startswith(text)
            self._legacy_texts = [legacy[len(text) :]] if is_ahead else []
            self.reads_all = is_ahead
            text = text.removeprefix(legacy) if len(text) >= len(legacy) else "" if is_ahead else text
        self._text(text, out)

    def _delta(self, message: dict[str, Any], out: list[Piece], *, whole: bool, is_repeat: bool) -> None:
        """Decode a delta or a message; `is_repeat`: a message beside a delta, which may repeat it."""
        if "error" in message:
            out += _faults(message)
        has_reasoning = False
        for field in self._fields:
            value = message.get(field)
            if not value:
                continue
            if type(value) is list:
                out.append(Details(value))
                value = "".join(_detail_text(item) for item in value)
            elif type(value) is dict:
                value = _detail_text(value)
            if type(value) is not str:
                value = number_text(value)
            if not has_reasoning and type(value) is str and value:  # equal fields count once
                has_reasoning = self._has_reasoning = True
                out.append(ReasoningPiece(value, f"message.{field}" if is_repeat else field))
        content = message.get("content")
        if content is not None and type(content) is not str:
            content = number_text(content)
        if type(content) is str:
            if content:
                self._content(content, out)
        elif type(content) is list:
            self._parts(content, out)
        elif type(content) is dict:
            out.append(OpaquePiece(content))
        if annotations := message.get("annotations"):
            out += _annotations(annotations)
        if (images := message.get("images")) and type(images) is list:
            out += [_medium(image) for image in images if image]
        if type(audio := message.get("audio")) is dict:
            self._add_audio(audio)
            if whole:
                self._end_audio(out)
        refusal = message.get("refusal")
        if type(refusal) is str and refusal:
            out += REFUSAL
            self._content(refusal, out)
        calls, old = message.get("tool_calls"), message.get("function_call")
        if not calls and type(old) is dict and (old.get("name") or old.get("arguments")):
            calls = [{"index": 0, "function": old}]
        if calls:
            self._has_answer = self._has_calls = True
            for group in _until_unknown(calls if type(calls) is list else [calls]):
                out.append(CallPieces([_as_function(item, self._open_inputs, whole=whole) for item in group], whole))
                if _kind(group[-1]) is not None:
                    out.append(CallEnd(group[-1].get("index"), False))

    def _parts(self, parts: list[Any], out: list[Piece]) -> None:
        """Decode content that is a list: text parts, parts with reasoning, and others, which are stored whole."""
        part_type = self._flags.reasoning.part
        for part in map(number_text, parts):
            if type(part) is str:
                if part:
                    self._content(part, out)
            elif type(part) is not dict:
                continue
            elif part_type is not None and part.get("type") == part_type:
                inner = part.get(part_type, part.get("text"))
                inner = [inner] if type(inner) is not list else inner
                out.append(Details([part]))
                if text := "".join(_detail_text(p) for p in inner):
                    out.append(ReasoningPiece(text, "content"))
            elif type(text := number_text(part.get("text"))) is str:
                if text:
                    self._content(text, out)
            else:
                out.append(_medium(part))

    def _add_audio(self, audio: dict[str, Any]) -> None:
        """Collect the spoken answer: a stream has its data and its transcript in pieces."""
        if self._audio is None:
            self._audio = {"data": [], "transcript": []}
        for key in ("data", "transcript"):
            if type(audio.get(key)) is str:
                self._audio[key].append(audio[key])
        for key in ("id", "expires_at"):
            if audio.get(key) is not None:
                self._audio[key] = audio[key]

    def _end_audio(self, out: list[Piece]) -> None:
        """Give the spoken answer, if there is one."""
        audio, self._audio = self._audio, None
        if audio is None:
            return
        pieces = [piece for piece in audio.pop("data") if piece]
        extra = {**audio, "transcript": "".join(audio["transcript"])}
        if not pieces:
            out.append(OpaquePiece({"audio": extra}))
            return
        data = pieces[0] if len(pieces) == 1 else _join_base64(pieces)
        seal = {"audio": {"id": audio["id"]}} if type(audio.get("id")) is str else None
        out.append(MediaPiece(Media(_sound_type(data), data, extra=extra), seal))


def _is_only_choice(choices: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Whether a chunk has the choice with index 0 and no other one, as most chunks."""
    return type(choices) is list and len(choices) == 1 and type(choices[0]) is dict and choices[0].get("index") == 0


def is_chunk(data: dict[str, Any]) -> bool:
    """Whether an object is a chunk of a stream: its choices have deltas, and no message."""
    choices = data.get("choices")
    first = choices[0] if type(choices) is list and choices else None
    return type(first) is dict and type(first.get("delta")) is dict and first.get("message") is None


def _is_empty(choice: dict[str, Any]) -> bool:
    """Whether a choice holds nothing of an answer; it may hold a finish reason."""
    delta = choice.get("delta")
    has_delta = type(delta) is dict and any(value for key, value in delta.items() if key != "role")
    return not (has_delta or choice.get("message") or choice.get("text"))


def _faults(data: dict[str, Any]) -> Iterator[Piece]:
    """Give the error in a choice, a delta or a message."""
    if (broken := data.get("error")) and is_error(broken):
        yield Fault(broken if type(broken) is dict else data)


def _sources(data: dict[str, Any], flags: Flags) -> Iterator[Piece]:
    """Give the sources that stand beside the choices."""
    paths = flags.citations
    items = get_first(data, paths.at)
    for item in items if type(items) is list else ():
        if type(item) is str:
            yield CitationPiece(item, item, None)
        elif type(item) is dict:
            yield CitationPiece(item, get_first(item, paths.url), get_first(item, paths.title))


def _annotations(annotations: Any) -> Iterator[Piece]:
    """Give the sources in a message or a delta."""
    for annotation in annotations if type(annotations) is list else ():
        kind = annotation.get("type") if type(annotation) is dict else None
        source = annotation.get(kind) if type(kind) is str else None
        if type(source) is dict:
            title = source.get("title") or source.get("filename") or source.get("name") or source.get("file_id")
            start, end = source.get("start_index"), source.get("end_index")
            yield CitationPiece(annotation, source.get("url"), title, start, end)
        elif annotation:
            yield ExtraPiece("annotations", [annotation])


def _medium(part: Any) -> Piece:
    """Return a part as a medium; one that is none is stored whole."""
    media = as_media(part) if type(part) is dict else None
    return OpaquePiece(part) if media is None else MediaPiece(media)


def _join_base64(pieces: list[str]) -> str:
    """Return the bytes of several pieces in base64 as one."""
    try:
        return base64.b64encode(b"".join([base64.b64decode(piece) for piece in pieces])).decode()
    except ValueError:
        return "".join(pieces)


def _sound_type(data: str) -> str:
    """Return the MIME type of a sound by its first bytes, which are PCM where nothing else is known of them."""
    return next((kind for head, kind in _SOUNDS.items() if data.startswith(head)), "audio/pcm")


def _detail_text(item: Any) -> str:
    """Return the text of one item of structured reasoning."""
    if type(item) is str:
        return item
    if type(item) is not dict:
        return ""
    for key in ("text", "summary"):
        if type(item.get(key)) is str:
            return str(item[key])
    return ""


@lru_cache(maxsize=256)
def _answer_keys(flags: Flags) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the keys of a chunk that say nothing beside an answer, with `EXTRA_KEYS`, and telling ones of a choice."""
    places = (flags.usage.at, flags.error.at, flags.citations.at)
    paths = [path.split(".") for at in places for path in at or ()]
    inner = [keys for keys in paths if keys[:2] == ["choices", "0"] and len(keys) > 2]
    heads = {keys[0] for keys in paths if keys not in inner}
    if "" in heads:  # "." is the whole chunk
        return frozenset(), frozenset(), frozenset(keys[2] for keys in inner)
    known = _ANSWER_KEYS.union(EXTRA_KEYS)
    return _ANSWER_KEYS - heads, known - heads, frozenset(keys[2] for keys in inner)


# ── custom tools ──────────────────────────────────────────────────────────────

# The input of a custom tool, a plain text, is one argument of a function. A stream has an input in pieces, and no mark
# of its end: the indexes of calls whose input may go on are kept.


def _kind(item: Any) -> str | None:
    """Return the kind of a call that is none of a function or a custom tool; None for any other, and for a piece."""
    kind = item.get("type") if type(item) is dict else None
    is_known = type(kind) is not str or kind in ("function", "custom") or type(item.get("function")) is dict
    return None if is_known or not item.get(kind) else kind


def _until_unknown(items: list[Any]) -> Iterator[list[Any]]:
    """Yield items in order, in lists of which each ends with a call of an unknown kind or with the last item."""
    start = 0
    for end, item in enumerate(items, 1):
        if end == len(items) or _kind(item) is not None:
            yield items[start:end]
            start = end


def _is_blank(custom: dict[str, Any], item: dict[str, Any]) -> bool:
    """Whether the place of a custom tool is empty beside that of a function: some servers write both for each call."""
    return type(item.get("function")) is dict and not (custom.get("name") or custom.get("input"))


def _end_inputs(open_inputs: set[Any]) -> list[dict[str, Any]]:
    """Return the items that end the calls whose input is open, and close these."""
    items = [{"index": index, "function": {"arguments": '"}'}} for index in open_inputs]
    open_inputs.clear()
    return items


def _as_function(item: Any, open_inputs: set[Any], *, whole: bool) -> Any:
    """Return the item of a function for one of a custom tool, or of an unknown kind; any other one as it is."""
    custom = item.get("custom") if type(item) is dict else None
    if type(custom) is not dict or _is_blank(custom, item):
        kind = _kind(item)
        return item if kind is None else {**item, "function": {"name": kind, "arguments": item[kind]}}
    input = custom.get("input")
    index = item["index"] if type(item.get("index")) is int else None
    arguments = custom_arguments(input if type(input) is str else "")[1]
    if not whole:
        head, _, text = arguments[:-2].partition(':"')  # without the end of the text and of the object
        arguments = text if index in open_inputs else f'{head}:"{text}'
        open_inputs.add(index)
    rest = {key: value for key, value in item.items() if key not in ("type", "custom")}
    return {**rest, "function": {"name": custom.get("name"), "arguments": arguments}}
