"""Decode bodies and chunks of OpenAI chat completions.

One function reads both: a message is read like a delta with everything in it. The flags tell the endpoint's dialect:
the fields of the reasoning, the places of usage and errors.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from cnllm.jsonpath import get, get_first
from cnllm.protocols import FastDecoder
from cnllm.protocols.chat.client_paths import chunk_reader
from cnllm.protocols.decode_sink import REPEATABLE, EventSink
from cnllm.protocols.fast_decode import chat_chunk_decoder as decoder
from cnllm.protocols.reported import find_error, has_error_status, is_error
from cnllm.protocols.usage import add_counts
from cnllm.registry.flags import Flags
from cnllm.types import Event
from cnllm.types.media import as_media

__all__ = ["EXTRA_KEYS", "decode_chunk", "fast_decoder", "find_fault", "make_decoder"]


def make_decoder(flags: Flags) -> Callable[..., list[Event]]:
    """Return the decoder of an endpoint's chunks: `decode_chunk`, behind a translation of the endpoint's own paths."""
    read = chunk_reader(flags)
    if read is None:
        return decode_chunk

    def decode(data: dict[str, Any], flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
        """Decode one chunk, or with `whole` one body."""
        return decode_chunk(read(data, whole), flags, sink, whole=whole)

    return decode


EXTRA_KEYS = ("service_tier", "system_fingerprint")
"""Keys beside the choices that `Reply.extra` has."""


def decode_chunk(data: dict[str, Any], flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
    """Decode one chunk, or with `whole` one body. Return its events; the rest is stored in `sink`."""
    if sink.id is None and type(data.get("id")) is str:
        sink.id = data["id"] or None
    if sink.model is None and type(data.get("model")) is str:
        sink.model = data["model"] or None
    if sink.created is None and type(data.get("created")) in (int, float):
        sink.created = data["created"] or None
    fault = find_fault(data, flags)
    if fault is not None and sink.fault is None:
        sink.fault = fault
    out: list[Event] = []
    for key in EXTRA_KEYS:
        if type(value := data.get(key)) is str and value:
            out += sink.add_extra(key, value)
    usage = get_first(data, flags.usage.at if flags.usage else None)
    if type(usage) is dict:
        out += add_counts(usage, flags, sink)
    choices = data.get("choices")
    if type(choices) is not list:
        return out + _sources(data, flags, sink)
    for position, choice in enumerate(choices):
        if type(choice) is dict and choice.get("index") in ((None, 0) if position == 0 else (0,)):
            out += _choice(choice, flags, sink, whole)
        elif type(choice) is dict:
            dropped = f"choice {choice.get('index', position)!r}"
            out += sink.note("choice-dropped", "n", dropped, "left out: the first choice is the reply")
    return out + _sources(data, flags, sink)


def _sources(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Report the sources that stand beside the choices."""
    paths = flags.citations
    if paths is None:
        return []
    items = get_first(data, paths.at)
    out: list[Event] = []
    for item in items if type(items) is list else ():
        if type(item) is str:
            out += sink.add_citation(item, item, None)
        elif type(item) is dict:
            out += sink.add_citation(item, get_first(item, paths.url), get_first(item, paths.title))
    return out


def _annotations(annotations: Any, sink: EventSink) -> list[Event]:
    """Report the sources in a message or a delta."""
    out: list[Event] = []
    for annotation in annotations if type(annotations) is list else ():
        kind = annotation.get("type") if type(annotation) is dict else None
        source = annotation.get(kind) if type(kind) is str else None
        if type(source) is dict:
            title = source.get("title") or source.get("filename") or source.get("name") or source.get("file_id")
            start, end = source.get("start_index"), source.get("end_index")
            out += sink.add_citation(annotation, source.get("url"), title, start, end)
    return out


def _choice(choice: dict[str, Any], flags: Flags, sink: EventSink, whole: bool) -> list[Event]:
    """Decode one choice."""
    out: list[Event] = []
    sink.answered = True
    for key in ("delta", "message") if not whole else ("message", "delta"):
        message = choice.get(key)
        if type(message) is dict:
            # Some endpoints repeat the whole message beside the last delta.
            if key == "message" and not whole and (sink.has_text or sink.has_calls):
                continue
            is_repeat = key == "message" and not whole
            out += _delta(message, flags, sink, whole or is_repeat, is_repeat)
            if whole:
                break
    if type(choice.get("text")) is str and choice["text"]:
        out += _legacy(choice, flags, sink)
    logprobs = choice.get("logprobs")
    if type(logprobs) is dict and type(tokens := logprobs.get("content")) is list:
        out += sink.add_extra("logprobs", tokens)
    if sink.fault is None and is_error(broken := choice.get("error")):
        sink.fault = broken if type(broken) is dict else choice
    if sink.report_finish(choice.get("finish_reason")):
        sink.finished = True
        out += _end_audio(sink)
    return out


def _legacy(choice: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode the text field of the older API. It counts only while no message has content: hosts send both."""
    if _CONTENT in sink.state:
        return []
    text: str = choice["text"]
    for key in ("delta", "message"):
        message = choice.get(key)
        fields = (flags.reasoning.fields if flags.reasoning else None) or ()
        if type(message) is dict and any(message.get(field) == text for field in fields):
            return []  # it repeats the reasoning
    sink.state.setdefault(REPEATABLE, []).append(text)
    return sink.add_text(text)


def _answer(text: str, sink: EventSink) -> list[Event]:
    """Add content of a message, without the text that the older field has already given."""
    sink.state[_CONTENT] = True
    if REPEATABLE in sink.state:
        legacy = "".join(sink.state.pop(REPEATABLE))
        if len(legacy) > len(text) and legacy.startswith(text):
            sink.state[REPEATABLE] = [legacy[len(text) :]]
        text = text.removeprefix(legacy) if len(text) >= len(legacy) else "" if legacy.startswith(text) else text
    return sink.add_text(text) if text else []


_CONTENT = "content"
"""The key in the state for: a message had content."""


def _delta(message: dict[str, Any], flags: Flags, sink: EventSink, whole: bool, is_repeat: bool = False) -> list[Event]:
    """Decode a delta or a message; `is_repeat`: a message beside a delta, which may repeat it."""
    out: list[Event] = []
    reasoning = flags.reasoning
    reasoning_text = ""
    for field in (reasoning.fields if reasoning else None) or ():
        value = message.get(field)
        if not value:
            continue
        if type(value) is list:
            sink.add_details(value)
            value = "".join(_detail_text(item) for item in value)
        if not reasoning_text and type(value) is str and value:  # equal fields count once
            reasoning_text = value
            out += sink.add_reasoning(value, f"message.{field}" if is_repeat else field)
    content = message.get("content")
    if type(content) is str:
        if content:
            out += _answer(content, sink)
    elif type(content) is list:
        out += _parts(content, flags, sink)
    elif type(content) is dict:
        out += sink.add_opaque(content)
    if annotations := message.get("annotations"):
        out += _annotations(annotations, sink)
    if images := message.get("images"):
        out += _images(images, sink)
    if type(audio := message.get("audio")) is dict:
        _audio(audio, sink)
        out += _end_audio(sink) if whole else []
    refusal = message.get("refusal")
    if type(refusal) is str and refusal:
        sink.refused = True
        out += _answer(refusal, sink)
    if calls := message.get("tool_calls"):
        out += sink.add_call_pieces(calls, whole)
    elif type(old := message.get("function_call")) is dict and (old.get("name") or old.get("arguments")):
        out += sink.add_call_pieces([{"index": 0, "function": old}], whole)
    return out


def _parts(parts: list[Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode content that is a list: text parts, parts with reasoning, and others, which are stored whole."""
    out: list[Event] = []
    part_type = flags.reasoning.part if flags.reasoning else None
    for part in parts:
        if type(part) is str:
            out += _answer(part, sink) if part else []
        elif type(part) is not dict:
            continue
        elif part_type is not None and part.get("type") == part_type:
            inner = part.get(part_type, part.get("text"))
            inner = [inner] if type(inner) is not list else inner
            text = "".join(_detail_text(p) for p in inner)
            sink.add_details([part])
            out += sink.add_reasoning(text, "content") if text else []
        elif type(part.get("text")) is str:
            out += _answer(part["text"], sink) if part["text"] else []
        elif (media := as_media(part)) is not None:
            out += sink.add_media(media.type, data=media.data, url=media.url, extra=media.extra)
        else:
            out += sink.add_opaque(part)
    return out


def _images(images: Any, sink: EventSink) -> list[Event]:
    """Report the images beside the content of a message."""
    out: list[Event] = []
    for image in images if type(images) is list else ():
        media = as_media(image) if type(image) is dict else None
        if media is not None:
            out += sink.add_media(media.type, data=media.data, url=media.url, extra=media.extra)
        elif image:
            out += sink.add_opaque(image)
    return out


def _audio(audio: dict[str, Any], sink: EventSink) -> None:
    """Collect the spoken answer: a stream has its data and its transcript in pieces."""
    state = sink.state.setdefault(_AUDIO, {"data": [], "transcript": []})
    for key in ("data", "transcript"):
        if type(audio.get(key)) is str:
            state[key].append(audio[key])
    for key in ("id", "expires_at"):
        if audio.get(key) is not None:
            state[key] = audio[key]


def _end_audio(sink: EventSink) -> list[Event]:
    """Report the spoken answer, if there is one."""
    state = sink.state.pop(_AUDIO, None)
    if state is None or not (pieces := [piece for piece in state.pop("data") if piece]):
        return []
    data = pieces[0] if len(pieces) == 1 else _join_base64(pieces)
    extra = {**state, "transcript": "".join(state["transcript"])}
    seal = {"audio": {"id": state["id"]}} if type(state.get("id")) is str else None
    return sink.add_media(_sound_type(data), data=data, extra=extra, seal=seal)


def _join_base64(pieces: list[str]) -> str:
    """Return the bytes of several pieces in base64 as one."""
    try:
        return base64.b64encode(b"".join([base64.b64decode(piece) for piece in pieces])).decode()
    except ValueError:
        return "".join(pieces)


def _sound_type(data: str) -> str:
    """Return the MIME type of a sound by its first bytes, which are PCM where nothing else is known of them."""
    return next((kind for head, kind in _SOUNDS.items() if data.startswith(head)), "audio/pcm")


_AUDIO = "audio"
"""The key in the state for the spoken answer."""
_SOUNDS = {
    "UklGR": "audio/wav",
    "SUQz": "audio/mpeg",
    "//": "audio/mpeg",
    "T2dnUw": "audio/ogg",
    "ZkxhQw": "audio/flac",
}
"""Types of sounds by the beginning of their data in base64."""


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


def find_fault(data: dict[str, Any], flags: Flags) -> Any:
    """Return the error in a body or chunk, or None. An object with 0 as its code reports success."""
    paths = flags.error
    for path in (paths.at if paths else None) or ():
        error = get(data, path)
        if not error:
            continue
        if type(error) is dict:
            code = get_first(error, paths.code if paths else None)
            message = get_first(error, paths.message if paths else None)
            if code not in (0, "0") and (message or code or has_error_status(error)):
                return error
        elif not data.get("choices"):  # a plain sentence; beside a choice it is no failure
            return data
    if not data.get("choices") and paths is not None:  # the error object may be the body itself
        code = get_first(data, paths.code)
        if code not in (None, 0, "0") and type(get_first(data, paths.message)) is str:
            return data
    return None if data.get("choices") else find_error(data)


def fast_decoder(flags: Flags) -> FastDecoder | None:
    """Return the fast decoder; None where the endpoint has paths of its own.

    It reads the reasoning fields, and falls back for rare fields of a delta, a choice or a chunk.
    """
    reasoning_fields = tuple((flags.reasoning.fields if flags.reasoning else None) or ())
    paths = [
        *((flags.usage.at if flags.usage else None) or ()),
        *((flags.error.at if flags.error else None) or ()),
        *((flags.citations.at if flags.citations else None) or ()),
        *((flags.web_search.uses if flags.web_search else None) or ()),
    ]
    if "." in paths or chunk_reader(flags) is not None:
        return None
    keys = [path.split(".") for path in paths]
    choice_fields = {path[2] for path in keys if path[0] == "choices" and len(path) > 2}
    delta_fields = {path[3] for path in keys if path[0] == "choices" and path[2:3] == ["delta"] and len(path) > 3}
    top_fields = {path[0] for path in keys} - {"choices"}
    rare_choice = {"finish_reason", "logprobs", "message", "text"} | choice_fields
    return decoder(
        reasoning_fields,
        ("annotations", "audio", "function_call", "images", "refusal", *sorted(delta_fields)),
        tuple(sorted(rare_choice)),
        tuple(sorted(top_fields)),
    )
