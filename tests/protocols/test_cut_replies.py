"""A stream that was cut, at any event or inside of one, is no whole reply for the reader of any wire."""

from __future__ import annotations

import copy
import itertools
import re
from typing import Any

import pytest

from cnllm import Media, engine
from cnllm.protocols import PROTOCOLS

from .clients import CHAT, GEMINI, MESSAGES, RESPONSES
from .documented_replies import FIELDS
from .replies import BODIES, frames, read, streamed, whole, written
from .requests import Json, Path, put
from .test_nothing_lost_of_replies import shown, told

PAIRS = list(itertools.product(PROTOCOLS, PROTOCOLS))
LISTS: dict[str, tuple[Path, int]] = {
    MESSAGES: (("content",), 3),
    GEMINI: (("candidates", 0, "content", "parts"), 3),
    RESPONSES: (("output",), 3),
}
"""The list of the parts of a reply, and the place in it where the table adds one."""
BESIDE = ("reasoning_details", "annotations", "audio", "images")
"""The keys of a message of chat completions that hold something of an answer."""
LINE = re.compile(r"\s*(\[[^\]]*: this client's protocol has no place for it\](\n\n)?|Hi\.)")
"""The line in the place of a picture, and the words in the place of a sound."""
END_MARKS = (
    b"[DONE]",
    b'"message_stop"',
    b'"finishReason"',
    b'"response.completed"',
    b'"response.incomplete"',
    b'"finish_reason":"',
    b'"stop_reason":"',
)


def full_body(protocol: str) -> Json:
    """A reply with each kind of part that a wire has; the call stands at the end."""
    body = copy.deepcopy(BODIES[protocol])
    if protocol == CHAT:
        message = body["choices"][0]["message"]
        fields = [(path[-1], value) for path, value in FIELDS[CHAT] if len(path) == 4 and path[-1] in BESIDE]
        call = message.pop("tool_calls")
        message |= dict(reversed(fields))
        message["tool_calls"] = [*call, {"id": "call_2b", "type": "custom", "custom": {"name": "run", "input": "x"}}]
        return body
    path, place = LISTS[protocol]
    parts: Any = body
    for key in path:
        parts = parts[key]
    call = parts.pop()
    parts += [value for where, value in FIELDS[protocol] if where == (*path, place)]
    parts.append(call)
    return body


def proven_from(protocol: str, pieces: list[bytes]) -> int:
    """The number of events after which a reply is whole: those of chat completions end with the finish reason."""
    if protocol != CHAT:
        return len(pieces)
    return next(number for number, piece in enumerate(pieces, 1) if b'"finish_reason": "' in piece)


@pytest.mark.share(4)
@pytest.mark.parametrize(("target", "client"), PAIRS)
def test_a_cut_reply_is_whole_for_no_client(target: str, client: str) -> None:
    pieces = frames(target, streamed(target, full_body(target)))
    count = proven_from(target, pieces)
    assert count > 15
    for number, half in itertools.product(range(count), (False, True)):
        content = b"".join(pieces[:number]) + (pieces[number][: len(pieces[number]) // 2] if half else b"")
        about = (number, half, pieces[number])
        events, reply = read(target, content)
        assert reply.finish == "cut" or not content, about
        writer = engine.StreamWriter(client, id="x1", model="m", request={"stream_options": {"include_usage": True}})
        sent = writer.begin() + b"".join(map(writer.feed, events))
        assert not [mark for mark in END_MARKS if mark in sent], about
        _, seen = read(client, sent)
        assert (seen.finish, seen.tool_calls) == ("cut", []) or not sent, about
        assert reply.text.startswith(LINE.sub("", seen.text)), about
        failed = sent + writer.error(502, "the reply broke off", "reply_cut")
        _, seen = read(client, failed)
        assert (seen.finish, seen.tool_calls) == ("error", []), about


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_reply_is_whole_at_its_end(protocol: str) -> None:
    pieces = frames(protocol, streamed(protocol, full_body(protocol)))
    for number in range(proven_from(protocol, pieces), len(pieces) + 1):
        _, reply = read(protocol, b"".join(pieces[:number]))
        assert reply.finish == "tool_calls"
        assert reply.tool_calls


def test_what_waits_for_its_end_is_in_a_cut_reply() -> None:
    audio = {"id": "audio_1", "data": "UklGRg==", "expires_at": 9, "transcript": "Hi."}
    body = put(BODIES[CHAT], ("choices", 0, "message"), {"tool_calls": None, "audio": audio})
    pieces = frames(CHAT, streamed(CHAT, body))
    _, reply = read(CHAT, b"".join(pieces[: proven_from(CHAT, pieces) - 1]))
    [sound] = [part for part in reply.message.parts if type(part) is Media]
    assert (reply.finish, sound.data, sound.extra) == (
        "cut",
        audio["data"],
        {k: audio[k] for k in audio if k != "data"},
    )
    cited = {"type": "char_location", "document_index": 0, "document_title": "A", "cited_text": "c"}
    pieces = frames(MESSAGES, streamed(MESSAGES, put(BODIES[MESSAGES], ("content", 1, "citations"), [cited])))
    last = max(number for number, piece in enumerate(pieces, 1) if b'"text_delta"' in piece)
    _, reply = read(MESSAGES, b"".join(pieces[:last]))
    assert (reply.finish, [source.title for source in reply.citations]) == ("cut", ["A"])


@pytest.mark.parametrize(("target", "client"), PAIRS)
def test_a_reply_with_every_part_is_the_same_whole_and_streamed(target: str, client: str) -> None:
    body = full_body(target)
    reply = whole(target, body)
    events, stream = read(target, b"".join(frames(target, streamed(target, body))))
    assert told(stream) == told(reply)
    assert stream.extra == reply.extra
    assert engine.reply_notes(client, stream) == engine.reply_notes(client, reply)
    assert shown(read(client, written(client, events))[1]) == shown(whole(client, engine.encode_reply(client, reply)))
