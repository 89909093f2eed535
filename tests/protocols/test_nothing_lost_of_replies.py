"""Each documented field of a reply arrives in `Reply` and at every client, or a note names it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from cnllm import Event, Note, Reply, engine
from cnllm.gateway.thoughts import kept_turn
from cnllm.protocols import PROTOCOLS

from .clients import CHAT, GEMINI, MESSAGES, RESPONSES, endpoint, tools
from .documented_replies import FIELDS, NUMBER
from .replies import BODIES, frames, read, streamed, whole, written
from .requests import MARK, Json, Path, put
from .test_nothing_lost import words

ALIASES = {"logprobsResult": "logprobs"}
"""Names of fields, and the one that notes have."""
GENERAL = {"answer", "content", "parts", "type", "status", "usage"}
"""Names that say nothing of one field."""
MARKS = (MARK, "MARKED_REASON", str(NUMBER), "0.0987")
"""The texts by which the values of the table are found again."""
PAIRS = [(target, client) for target in PROTOCOLS for client in PROTOCOLS]


def body_with(protocol: str, path: Path, value: Any) -> Json:
    """The reply of a wire with one more field."""
    body = put(BODIES[protocol], path, value)
    return {**body, "status": "incomplete"} if path == ("incomplete_details",) else body


class Case(msgspec.Struct, frozen=True):
    """A field of a reply: the body with it, and what is read of the body and of the stream."""

    protocol: str
    path: Path
    value: Any
    mark: str | None
    whole: Reply
    stream: Reply
    events: list[Event]

    @property
    def replies(self) -> list[tuple[str, Reply]]:
        """The whole reply, and the one of the stream."""
        return [("whole", self.whole), ("stream", self.stream)]


@cache
def cases(protocol: str) -> list[Case]:
    """The cases of a wire."""
    out: list[Case] = []
    for path, value in FIELDS[protocol]:
        body = body_with(protocol, path, value)
        events, stream = read(protocol, b"".join(frames(protocol, streamed(protocol, body))))
        mark = next((mark for mark in MARKS if mark in json.dumps(value)), None)
        out.append(Case(protocol, path, value, mark, whole(protocol, body), stream, events))
    return out


def as_text(value: Any) -> str:
    """A value as JSON, whatever is in it."""
    return msgspec.json.encode(value).decode()


def names_of(case: Case) -> set[str]:
    """The names by which a note may mean the field."""
    keys = [key for key in case.path if isinstance(key, str)]
    names = {name for name in (keys[-1], *words(case.value)) if len(name) > 3 and name not in GENERAL}
    return {*names, *(ALIASES[name] for name in names & ALIASES.keys())}


def is_named(case: Case, notes: list[Note]) -> bool:
    """Whether a note names the field, or the part that holds it."""
    said = {word for note in notes if note.code != "unknown-model" for word in re.findall(r"[\w-]+", note.said)}
    return not said.isdisjoint(names_of(case)) or any(note.code == "choice-dropped" for note in notes)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_field_arrives_in_the_reply_or_a_note_names_it(protocol: str) -> None:
    lost = [
        (form, case.path, case.value)
        for case in cases(protocol)
        for form, reply in case.replies
        if case.mark is not None and case.mark not in as_text(reply.to_dict()) and not is_named(case, reply.notes)
    ]
    assert not lost, lost


def told(reply: Reply) -> Json:
    """What a reply says, without the ids that readers make."""
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "calls": [(call.name, call.arguments) for call in reply.tool_calls],
        "incomplete": [(call.name, call.raw) for call in reply.incomplete],
        "finish": reply.finish,
        "usage": reply.usage,
        "sources": [(source.url, source.title, source.start, source.end) for source in reply.citations],
    }


def parts_of(reply: Reply) -> list[tuple[type, str]]:
    """The types of the parts and their texts. Neighbours are joined: on one wire a signature begins a new part."""
    groups = itertools.groupby(reply.message.parts, type)
    return [(kind, "".join(getattr(part, "text", "") for part in parts)) for kind, parts in groups]


def is_unproven(case: Case) -> bool:
    """Whether the end of a stream is not proven by the last word, and that of a body needs no proof."""
    return case.protocol == "gemini" and case.value == "MARKED_REASON"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stream_says_what_the_whole_reply_says(protocol: str) -> None:
    for case in cases(protocol):
        if is_unproven(case):
            continue
        about = (case.path, case.value)
        assert told(case.stream) == told(case.whole), about
        assert case.stream.extra == case.whole.extra, about
        assert case.stream.raw_finish == case.whole.raw_finish, about
        assert [note.code for note in case.stream.notes] == [note.code for note in case.whole.notes], about
        assert parts_of(case.stream) == parts_of(case.whole), about


def forms(case: Case, client: str) -> Iterator[tuple[str, Reply, str, Reply]]:
    """What a client gets, whole and as a stream: the reply, the bytes, and what a reader of its wire makes of them."""
    body = engine.encode_reply(client, case.whole)
    yield "whole", case.whole, as_text(body), whole(client, body)
    content = written(client, case.events)
    yield "stream", case.stream, content.decode(), read(client, content)[1]


@pytest.mark.parametrize(("target", "client"), PAIRS)
def test_each_field_reaches_the_client_or_a_note_names_it(target: str, client: str) -> None:
    lost = []
    for case in cases(target):
        for form, reply, content, seen in forms(case, client):
            if case.mark is None or case.mark in content or case.mark in as_text(seen.to_dict()):
                continue
            if reply.incomplete:  # the gateway answers with an error
                continue
            kept = kept_turn(reply.message, endpoint(target))  # goes back to the endpoint with the next request
            if kept is not None and case.mark in as_text(kept):
                continue
            if not is_named(case, [*reply.notes, *engine.reply_notes(client, reply)]):
                lost.append((form, case.path, case.value))
    assert not lost, lost


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_on_its_own_wire_nothing_but_other_candidates_is_left_out(protocol: str) -> None:
    for case in cases(protocol):
        for form, reply, content, seen in forms(case, protocol):
            about = (form, case.path, case.value)
            is_dropped = "choice-dropped" in [note.code for note in reply.notes] or reply.incomplete
            if case.mark is not None and not is_dropped and not engine.reply_notes(protocol, reply):
                is_there = case.mark in content or case.mark in as_text(seen.to_dict())
                assert is_there or is_named(case, reply.notes), about


def shown(reply: Reply) -> Json:
    """What a client's reader says. A source that comes late in a stream has no place in the text on every wire."""
    return {**told(reply), "sources": sorted(f"{source.url} {source.title}" for source in reply.citations)}


@pytest.mark.parametrize(("target", "client"), PAIRS)
def test_a_client_reads_the_same_of_a_stream_as_of_a_whole_reply(target: str, client: str) -> None:
    for case in cases(target):
        if is_unproven(case) or case.whole.incomplete:
            continue
        (_, _, _, of_body), (_, _, _, of_stream) = forms(case, client)
        assert shown(of_body) == shown(of_stream), (case.path, case.value)


OPEN = {"finish-unknown", "finish-pending"}


@pytest.mark.parametrize(("target", "client"), PAIRS)
def test_an_end_that_is_no_usual_one_is_none_for_the_client(target: str, client: str) -> None:
    count = 0
    for case in cases(target):
        for form, reply, _, seen in forms(case, client):
            is_usual = reply.finish in ("stop", "tool_calls") and OPEN.isdisjoint(note.code for note in reply.notes)
            count += not is_usual
            if is_usual and not reply.incomplete:
                assert seen.finish == reply.finish, (form, case.path, case.value)
            elif not reply.tool_calls:
                assert seen.finish not in ("stop", "tool_calls"), (form, case.path, case.value)
    assert count > 3


@pytest.mark.parametrize("protocol", [CHAT, GEMINI])
def test_what_a_chunk_in_the_middle_says_of_the_reply_is_not_lost(protocol: str) -> None:
    chunks = streamed(protocol, BODIES[protocol])
    place = "choices" if protocol == CHAT else "candidates"
    count = 0
    for case in cases(protocol):
        is_about = len(case.path) == 1 or (case.path[:2] == (place, 0) and len(case.path) == 3)
        if case.mark is None or not is_about or case.path[-1] in ("message", "finishReason", "finish_reason"):
            continue
        for number in range(1, len(chunks) - 2):
            content = frames(
                protocol, [put(c, case.path, case.value) if n == number else c for n, c in enumerate(chunks)]
            )
            _, reply = read(protocol, b"".join(content))
            assert case.mark in as_text(reply.to_dict()), (number, case.path, case.value)
            count += 1
    assert count > 30


def test_a_whole_body_says_the_same_where_its_request_is_known() -> None:
    plan = engine.build_request(endpoint(CHAT), "Hi", tools=tools(CHAT))
    for case in cases(CHAT):
        if case.whole.incomplete:
            continue
        body = as_text(body_with(CHAT, case.path, case.value)).encode()
        reply = engine.parse_response(endpoint(CHAT), 200, {}, body, plan=plan)
        names = [call.name for call in reply.tool_calls]  # some are not offered
        assert names == [call.name for call in case.whole.tool_calls], case.path
        assert {**told(reply), "calls": names} == {**told(case.whole), "calls": names}, case.path
        assert reply.extra == case.whole.extra, case.path


@pytest.mark.parametrize("client", [CHAT, RESPONSES])
def test_tokens_of_an_answer_in_several_parts_reach_the_client(client: str) -> None:
    body = put(BODIES[GEMINI], ("candidates", 0, "content", "parts", 3), {"text": "Take a coat."})
    chosen = [{"token": "It", "logProbability": -0.25}, {"token": "coat", "logProbability": -0.5}]
    reply = whole(GEMINI, put(body, ("candidates", 0, "logprobsResult"), {"chosenCandidates": chosen}))
    text = as_text(engine.encode_reply(client, reply))
    assert ['"token":"It"' in text, '"token":"coat"' in text] == [True, True]


def test_what_chunks_say_of_the_sources_is_put_together() -> None:
    chunks = streamed(GEMINI, BODIES[GEMINI])
    place = ("candidates", 0, "groundingMetadata")
    page = {"web": {"uri": "https://a.example", "title": "A"}}
    support = {"segment": {"endIndex": 8, "text": "It rains"}, "groundingChunkIndices": [0]}
    said = {"webSearchQueries": ["rain"], "groundingChunks": [page], "groundingSupports": [support]}
    for number, (key, value) in enumerate(said.items(), 5):
        chunks[number] = put(chunks[number], place, {key: value})
    events, reply = read(GEMINI, b"".join(frames(GEMINI, chunks)))
    assert reply.extra["groundingMetadata"] == said
    assert [source.url for source in reply.citations if source.end == 8] == ["https://a.example"]
    assert as_text(said)[1:-1] in written(GEMINI, events).decode()


COUNTS: dict[str, tuple[Path, Json]] = {
    CHAT: (("usage",), {"prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5}}),
    MESSAGES: (("usage",), {"cache_read_input_tokens": 4, "cache_creation_input_tokens": 5}),
    GEMINI: (("usageMetadata",), {"cachedContentTokenCount": 4}),
    RESPONSES: (("usage",), {"input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5}}),
}


@pytest.mark.parametrize(("target", "client"), PAIRS)
def test_each_known_count_reaches_the_client_or_a_note_names_it(target: str, client: str) -> None:
    reply = whole(target, put(BODIES[target], *COUNTS[target]))
    assert (reply.usage.cached, reply.usage.cache_write) == (4, None if target == GEMINI else 5)
    seen = whole(client, engine.encode_reply(client, reply)).usage
    named = " ".join(note.said for note in engine.reply_notes(client, reply))
    for name in reply.usage.__struct_fields__:
        count = getattr(reply.usage, name)
        assert getattr(seen, name) == count or f"usage.{name}" in named, name


SOURCE = {"type": "url_citation", "url_citation": {"title": "t", "url": f"https://a.example/{MARK}"}}
TOKENS = [{"token": f"{MARK}-token", "logprob": -0.25, "bytes": None, "top_logprobs": []}]


@pytest.mark.parametrize("client", PROTOCOLS)
@pytest.mark.parametrize("message", [{"content": None}, {"content": None, "refusal": "No.", "tool_calls": None}])
def test_what_stands_on_texts_is_written_or_named_where_a_reply_has_none(message: Json, client: str) -> None:
    field = "refusal" if "refusal" in message else "content"
    body = put(BODIES[CHAT], ("choices", 0, "message"), {**message, "annotations": [SOURCE]})
    body = put(body, ("choices", 0, "logprobs"), {"content": None, "refusal": None, field: TOKENS})
    events, stream = read(CHAT, b"".join(frames(CHAT, streamed(CHAT, body))))
    reply = whole(CHAT, body)
    for found, content in (
        (reply, as_text(engine.encode_reply(client, reply))),
        (stream, written(client, events).decode()),
    ):
        said = " ".join(note.said for note in engine.reply_notes(client, found))
        assert f"https://a.example/{MARK}" in content or "citations" in said
        assert f"{MARK}-token" in content or "logprobs" in said


def test_a_call_behind_one_of_an_unknown_kind_is_the_one_that_is_whole() -> None:
    calls = [
        {"id": "call_1", "type": "new_kind", "new_kind": {"name": "n"}},
        {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
    ]
    body = put(BODIES[CHAT], ("choices", 0, "message"), {"tool_calls": calls})
    _, stream = read(CHAT, b"".join(frames(CHAT, streamed(CHAT, body))))
    for reply in (whole(CHAT, body), stream):
        assert [call.name for call in reply.tool_calls] == ["weather"]
        assert [call.name for call in reply.incomplete] == ["new_kind"]


@pytest.mark.parametrize(
    ("target", "path", "value"),
    [
        (CHAT, ("choices", 0, "message", "refusal"), "No."),
        (RESPONSES, ("output", 1, "content", 1), {"type": "refusal", "refusal": "No."}),
    ],
)
def test_a_text_that_has_begun_is_no_refusal_when_one_follows(target: str, path: Path, value: Any) -> None:
    body = put(BODIES[target], path, value)
    events, _ = read(target, b"".join(frames(target, streamed(target, body))))
    lines = written(RESPONSES, events).decode().splitlines()
    sent = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    kinds: dict[str, set[str]] = {}
    for event in sent:
        for kind in ("output_text", "refusal"):
            is_of_kind = event["type"].startswith(f"response.{kind}.") or event.get("part", {}).get("type") == kind
            if is_of_kind:
                kinds.setdefault(event["item_id"], set()).add(kind)
    assert kinds
    assert [kind for kind in kinds.values() if len(kind) > 1] == []
    texts = [event["delta"] for event in sent if event["type"].endswith(("output_text.delta", "refusal.delta"))]
    assert "".join(texts).endswith("today.No.")
