"""The end of a reply: limits, stop texts, other choices, and calls that the caller excluded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cnllm import CannotSend, EndpointError, Model, Registry, Reply, StreamCut, engine

from .conftest import Home
from .support import delta, sse
from .support import finish as ended
from .test_counted_once import STOP, chunk, models, read, thinking

__all__ = ["models"]

CHAT, RESPONSES, MESSAGES = "openai-chat", "openai-responses", "anthropic-messages"


def codes(reply: Reply) -> set[str]:
    return {note.code for note in reply.notes}


def responses(text: str, output: int, **response: Any) -> list[Any]:
    item = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 3, "output_tokens": output}
    place = {"item_id": "m", "output_index": 0}
    return [
        {"type": "response.created", "response": {"id": "r", "model": "m", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        *[{"type": "response.output_text.delta", **place, "content_index": 0, "delta": c} for c in text],
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {"status": "completed", "output": [item], "usage": usage, **response},
        },
    ]


def messages(text: str, output: int, more: str = "") -> list[Any]:
    out: list[Any] = [{"type": "message_start", "message": {"id": "x", "model": "m", "content": []}}]
    for place, said in enumerate(filter(None, [text, more])):
        delta = {"type": "text_delta", "text": said}
        out += [
            {"type": "content_block_start", "index": place, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": place, "delta": delta},
            {"type": "content_block_stop", "index": place},
        ]
    usage = {"input_tokens": 1, "output_tokens": output}
    return [
        *out,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]


def used(output: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": output}}


def test_a_reply_that_reached_its_limit_is_not_presented_as_whole(models: dict[str, Model]) -> None:
    for output, finish in ((5, "length"), (6, "length"), (4, "stop")):
        reply = read(models[RESPONSES], responses("Hello", output), max_tokens=5)
        assert (reply.finish, reply.raw_finish) == (finish, "completed")
        assert ("limit-reached" in codes(reply)) == (finish == "length")
    assert read(models[RESPONSES], responses("Hello", 5)).finish == "stop"  # nothing was limited
    for name, chunks in (
        (RESPONSES, responses("Hello", 5)),
        (CHAT, [chunk({"content": "Hello"}), STOP, used(5)]),
    ):
        reply = read(models[name], chunks, max_tokens=-1)  # without a limit, for a server such as llama.cpp
        assert (reply.finish, "limit-reached" in codes(reply)) == ("stop", False)
    body = {"max_output_tokens": 5}
    assert read(models[RESPONSES], responses("Hello", 5), extra_body=body).finish == "length"
    for output in (4, 5):
        for name, chunks in (
            (CHAT, [chunk({"content": "Hello"}), STOP, used(output)]),
            (MESSAGES, messages("Hello", output)),
        ):
            reply = read(models[name], chunks, max_tokens=5)
            assert reply.finish == "stop"  # the wire says that it ended by itself
            assert ("limit-reached" in codes(reply)) == (output == 5), name


def test_calls_that_reached_the_limit_stay_calls_with_a_note(models: dict[str, Model]) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "get", "arguments": "{}"}}
    item = {"type": "function_call", "id": "f", "call_id": "c", "name": "get", "arguments": "{}", "status": "completed"}
    for output in (4, 5):
        response = {"status": "completed", "output": [item], "usage": {"input_tokens": 1, "output_tokens": output}}
        for name, chunks in (
            (CHAT, [chunk({"tool_calls": [call]}), chunk(finish_reason="tool_calls"), used(output)]),
            (RESPONSES, [{"type": "response.completed", "response": response}]),
        ):
            reply = read(models[name], chunks, max_tokens=5, tools=TOOLS)
            assert (reply.finish, len(reply.tool_calls)) == ("tool_calls", 1)
            assert ("limit-reached" in codes(reply)) == (output == 5), name


def test_thinking_without_an_answer_is_noted(models: dict[str, Model]) -> None:
    reply = read(models[CHAT], [thinking(reasoning_content="Hm."), STOP])
    assert (reply.text, reply.finish) == ("", "stop")
    assert "answer-missing" in codes(reply)


def test_a_budget_that_went_into_reasoning_is_named(models: dict[str, Model]) -> None:
    end = chunk(finish_reason="length")
    reply = read(models[CHAT], [thinking(reasoning_content="Hm."), end])
    assert ("budget-spent-on-reasoning", "limits.output") in {(note.code, note.flag) for note in reply.notes}
    call = {"index": 0, "id": "c", "function": {"name": "get", "arguments": "{}"}}
    for more in ({"content": "Yes"}, {"tool_calls": [call]}):
        assert "budget-spent-on-reasoning" not in codes(
            read(models[CHAT], [thinking(reasoning_content="Hm."), chunk(more), end], tools=TOOLS)
        )


def test_a_word_that_does_not_fit_the_calls_is_noted_where_the_wire_has_a_word_for_them(
    models: dict[str, Model],
) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "get", "arguments": "{}"}}
    for chunks, follows in (
        ([chunk({"tool_calls": [call]}), STOP], True),
        ([chunk({"tool_calls": [call]}), chunk(finish_reason="tool_calls")], False),
        ([chunk({"content": "Yes"}), chunk(finish_reason="tool_calls")], True),
    ):
        reply = read(models[CHAT], chunks, tools=TOOLS)
        assert reply.finish == ("tool_calls" if reply.tool_calls else "stop")
        assert ("finish-follows" in codes(reply)) is follows
    item = {"type": "function_call", "id": "f", "call_id": "c", "name": "get", "arguments": "{}", "status": "completed"}
    body = json.dumps({"id": "r", "status": "completed", "output": [item]}).encode()
    reply = engine.parse_response(models[RESPONSES], 200, {}, body)
    assert (reply.finish, "finish-follows" in codes(reply)) == ("tool_calls", False)


STOPS: list[tuple[str, Any, str]] = [
    ("Hello\nEND", "END", "Hello\n"),
    ("Hello END more", ["END"], "Hello END more"),
    ("HelloEN", ["END"], "HelloEN"),
    ("ENDEND", "END", "END"),
    ("a\n\n\n", ["\n\n"], "a\n"),
    ("x###", ["#", "###"], "x"),
    ("END", "END", ""),
    ("Hello END", None, "Hello END"),
    ("好的。结束", ["结束"], "好的。"),
]


def test_a_stop_text_is_taken_off_the_very_end_alone(models: dict[str, Model]) -> None:
    for text, stop, want in STOPS:
        for name, chunks in (
            (CHAT, [*[chunk({"content": c}) for c in text], STOP]),
            (CHAT, [chunk({"content": text}), STOP]),
            (RESPONSES, responses(text, 9)),
            (MESSAGES, messages(text, 9)),
        ):
            for size in (0, 1):
                reply = read(models[name], chunks, size, stop=stop)
                assert (reply.text, reply.finish) == (want, "stop"), (name, text, stop)
                assert ("stop-left-in" in codes(reply)) == (text != want)
                assert "".join(p.text for p in reply.message.parts) == want  # type: ignore[union-attr]
    added = read(models[CHAT], [chunk({"content": "Hello END"}), STOP], extra_body={"stop": ["END"]})
    assert added.text == "Hello "


def test_a_stop_text_that_did_not_end_the_reply_stays(models: dict[str, Model]) -> None:
    cut = read(models[CHAT], [chunk({"content": "Hello END"}), chunk(finish_reason="length")], stop="END")
    assert (cut.text, cut.finish) == ("Hello END", "length")
    call = {"index": 0, "id": "c", "function": {"name": "get", "arguments": "{}"}}
    called = read(
        models[CHAT], [chunk({"content": "END"}), chunk({"tool_calls": [call]}), STOP], stop="END", tools=TOOLS
    )
    assert (called.text, len(called.tool_calls)) == ("END", 1)
    assert read(models[MESSAGES], messages("Hello END", 9, " ok"), stop="END").text == "Hello END ok"


TOOLS = [{"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": {}}}}]
CALL = '<tool_call>{"name": "get", "arguments": {}}</tool_call>'


def test_with_tools_that_the_caller_excluded_the_note_says_so(models: dict[str, Model]) -> None:
    for text in (CALL, f"Fine. {CALL}"):
        reply = read(models[CHAT], [chunk({"content": text}), STOP], tools=TOOLS, tool_choice="none")
        [note] = [note for note in reply.notes if note.code == "text-call-stripped"]
        assert "tool_choice" in note.did
        assert "no tools" not in note.did
        assert "fallback" not in codes(reply)
        assert reply.text.strip() == text.removesuffix(CALL).strip()
        assert not reply.tool_calls


def test_an_id_that_is_in_no_list_has_the_nearest_one_beside_the_endpoints_error() -> None:
    model = Registry.load().resolve("zai/glm-4.77")
    assert model.nearest_name is not None
    for status, message, has_hint in (
        (404, "no such thing", True),
        (400, "glm-4.77 does not exist", True),
        (404, "glm-4.77", True),
        (400, "no such thing", False),
    ):
        body = f'{{"error": {{"message": "{message}"}}}}'.encode()
        with pytest.raises(EndpointError) as caught:
            engine.parse_response(model, status, {}, body)
        assert (f"did you mean {model.nearest_name}?" in (caught.value.hint or "")) is has_hint, message


def with_id(events: list[Any], id: str) -> list[Any]:
    """Return the events of a reply that begins with another id."""
    [first, *rest] = events
    key = "message" if "message" in first else "response"
    return [{**first, key: {**first[key], "id": id}}, *rest]


@pytest.mark.parametrize(("name", "events"), [(MESSAGES, messages("Hello", 9)), (RESPONSES, responses("Hello", 9))])
def test_a_reply_in_which_another_begins_is_cut_there(models: dict[str, Model], name: str, events: list[Any]) -> None:
    begun = events[: -4 if name == RESPONSES else -3]
    for size in (0, 1):
        with pytest.raises(StreamCut) as cut:
            read(models[name], [*begun, *with_id(events, "another")], size)
        assert cut.value.reply is not None
        assert cut.value.reply.text == ("Hel" if name == RESPONSES else "Hello")
        assert "second-reply" in codes(cut.value.reply)
        for again in (events, with_id(events, "another")):  # behind the end it changes nothing
            reply = read(models[name], [*events, *again], size)
            assert (reply.text, reply.finish) == ("Hello", "stop")
        [first, *rest] = events
        key = "message" if "message" in first else "response"
        unnamed = {**first, key: {name: value for name, value in first[key].items() if name != "id"}}
        reply = read(
            models[name], [*begun, unnamed, *rest[len(begun) - 1 :]], size
        )  # an id that is unknown is no other
        assert (reply.text, "second-reply" in codes(reply)) == ("Hello", False)
        for again in (events, with_id(events, "another")):  # nor before any content
            reply = read(models[name], [events[0], *again], size)
            assert (reply.text, reply.finish) == ("Hello", "stop")
            assert "second-reply" not in codes(reply)


@pytest.mark.parametrize(("name", "events"), [(MESSAGES, messages("Hello", 9)), (RESPONSES, responses("Hello", 9))])
def test_the_name_of_an_event_is_its_type_where_the_data_have_none(
    models: dict[str, Model], name: str, events: list[Any]
) -> None:
    def frame(event: dict[str, Any], end: str) -> str:
        rest = {key: value for key, value in event.items() if key != "type"}
        return f"event: {event['type']}{end}data: {json.dumps(rest)}{end}{end}"

    plan = engine.build_request(models[name], "hi", stream=True)
    for end in ("\n", "\r\n"):
        frames = [frame(event, end).encode() for event in events]
        body = b"".join(frames)
        for pieces in (frames, [body], [body[at : at + 1] for at in range(len(body))], body.splitlines(keepends=True)):
            parser = engine.StreamParser(models[name], plan=plan)
            for piece in pieces:
                parser.feed(piece)
            assert (parser.close().text, parser.close().finish) == ("Hello", "stop")


def test_other_choices_are_left_out_with_a_note(models: dict[str, Model]) -> None:
    other = {"index": 1, "delta": {"content": "B"}}
    chunks = [{"id": "a", "model": "m", "choices": [{"index": 0, "delta": {"content": "A"}}, other]}]
    reply = read(models[CHAT], [*chunks, {"choices": [other]}, chunk({"content": "C"}), STOP])
    assert reply.text == "AC"
    assert [note.said for note in reply.notes if note.code == "choice-dropped"] == ["choice 1"]
    candidates = [{"content": {"parts": [{"text": t}]}, "finishReason": "STOP", "index": i} for i, t in enumerate("AB")]
    reply = read(models["gemini"], [{"candidates": candidates}])
    assert (reply.text, "choice-dropped" in codes(reply)) == ("A", True)


def test_of_two_choices_with_one_index_the_first_is_the_reply(models: dict[str, Model]) -> None:
    first, second = ({"index": 0, "delta": {"content": text}} for text in "AB")
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    twice = {"id": "a", "model": "m", "choices": [first, second]}
    answers = [
        read(models[CHAT], [twice, STOP]),
        read(models[CHAT], [{**twice, "choices": [first, end]}]),
        read(models["gemini"], [{"candidates": [_candidate(text) for text in "AB"]}]),
    ]
    assert [(reply.text, reply.finish) for reply in answers] == [("A", "stop")] * 3
    assert ["choice-dropped" in codes(reply) for reply in answers] == [True, False, True]
    message = [{"index": 0, "message": {"content": text}, "finish_reason": "stop"} for text in "AB"]
    for name, body in ((CHAT, {"choices": message}), ("gemini", {"candidates": [_candidate(text) for text in "AB"]})):
        reply = engine.parse_response(models[name], 200, {}, json.dumps(body).encode())
        assert (reply.text, "choice-dropped" in codes(reply)) == ("A", True)


def test_calls_in_a_choice_of_their_own_belong_to_the_text_of_the_first(models: dict[str, Model]) -> None:
    """Nobody asked for a second reply: some endpoints write the text into one choice, and the calls into the next."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    text, calls = {"role": "assistant", "content": "Let me look."}, {"role": "assistant", "tool_calls": [call]}
    for word in ("stop", "tool_calls"):
        for first, second in (({}, {}), ({"index": 0}, {"index": 1}), ({"index": 0}, {"index": 0})):
            choices = [
                {**first, "finish_reason": word, "message": text},
                {**second, "finish_reason": "tool_calls", "message": {**calls, "content": None}},
            ]
            reply = engine.parse_response(models[CHAT], 200, {}, json.dumps({"id": "x", "choices": choices}).encode())
            _has_text_and_call(reply)
    beginning = {**call, "index": 0, "function": {"name": "f", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": '{"a": 1}'}}
    pieces = [{"index": 1, "delta": {"tool_calls": [item]}} for item in (beginning, rest)]
    words: list[Any] = [{"index": at, "delta": {}, "finish_reason": "tool_calls"} for at in (0, 1)]
    for order in (
        [chunk({"content": "Let me look."}), *({"choices": [c]} for c in (*pieces, words[1]))],
        [chunk({"content": "Let me look."}), *({"choices": [c]} for c in (*pieces, *words))],
        [chunk({"content": "Let me look."}), {"choices": [words[0]]}, *({"choices": [c]} for c in (*pieces, words[1]))],
        [
            {"choices": [pieces[0]]},
            chunk({"content": "Let me look."}),
            *({"choices": [c]} for c in (pieces[1], *words)),
        ],
        [{"choices": [{"index": 0, "delta": text}, *pieces[:1]]}, {"choices": [pieces[1], words[1]]}],
    ):
        for size in (0, 1):
            _has_text_and_call(read(models[CHAT], order, size))


def _has_text_and_call(reply: Reply) -> None:
    assert (reply.text, [(call.name, call.arguments) for call in reply.tool_calls]) == (
        "Let me look.",
        [("f", {"a": 1})],
    )
    assert reply.finish == "tool_calls"
    assert "choice-dropped" not in codes(reply)


def test_calls_of_another_reply_are_left_out(models: dict[str, Model]) -> None:
    """One that has a text as well, or where the reply has calls itself."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"content": "A"}, {"content": "B", "tool_calls": [call]}),
        ({"content": "A", "tool_calls": [{**call, "id": "c0"}]}, {"content": None, "tool_calls": [call]}),
    ]
    for first, second in pairs:
        for key in ("message", "delta"):
            choices = [{"index": at, key: said, "finish_reason": "stop"} for at, said in enumerate((first, second))]
            if key == "message":
                body = json.dumps({"choices": choices}).encode()
                replies = [engine.parse_response(models[CHAT], 200, {}, body)]
            else:
                replies = [
                    read(models[CHAT], stream)
                    for stream in ([{"choices": choices}], [{"choices": [c]} for c in choices])
                ]
            for reply in replies:
                assert reply.text == "A"
                assert [call.id for call in reply.tool_calls] == [c["id"] for c in first.get("tool_calls", ())]
                assert "choice-dropped" in codes(reply)
    later = [{"index": 1, "delta": {"content": "B"}}, {"index": 1, "delta": {"tool_calls": [{**call, "index": 0}]}}]
    reply = read(models[CHAT], [chunk({"content": "A"}), *({"choices": [c]} for c in later), STOP])
    assert (reply.text, reply.tool_calls, "choice-dropped" in codes(reply)) == ("A", [], True)


def _candidate(text: str) -> dict[str, Any]:
    return {"content": {"parts": [{"text": text}]}, "finishReason": "STOP", "index": 0}


def test_a_request_for_several_replies_is_an_error_before_anything_is_sent(models: dict[str, Model]) -> None:
    for name, body, path in (
        (CHAT, {"n": 2}, "n"),
        ("gemini", {"generationConfig": {"candidateCount": 3}}, "candidateCount"),
    ):
        with pytest.raises(CannotSend, match=path) as caught:
            engine.build_request(models[name], "Hi", extra_body=body)
        assert (caught.value.note.code, caught.value.note.flag) == ("choice-dropped", "n")
        plan = engine.build_request(models[name], "Hi", extra_body=body, on_unsupported="send")
        assert path in plan.content.decode()
    assert engine.build_request(models[CHAT], "Hi", extra_body={"n": 1}).body["n"] == 1


@pytest.mark.parametrize(
    ("protocol", "body", "path"),
    [
        ("openai-chat", {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 2}, "n"),
        (
            "gemini",
            {"contents": [{"parts": [{"text": "Hi"}]}], "generation_config": {"candidate_count": 2}},
            "generationConfig.candidateCount",
        ),
    ],
)
def test_a_server_names_the_field_that_asks_for_several_replies(protocol: str, body: dict[str, Any], path: str) -> None:
    with pytest.raises(ValueError, match=f"^{path}: "):
        engine.decode_request(protocol, body)


@pytest.mark.parametrize("whole", ["Sorry", "No.", "Hallo"])
def test_a_whole_text_that_is_another_than_its_pieces_is_noted(models: dict[str, Model], whole: str) -> None:
    events = responses("Hello", 2)
    content = [{"type": "output_text", "text": whole}]
    events[-2] = {**events[-2], "item": {**events[-2]["item"], "content": content}}
    events[-1]["response"]["output"] = [events[-2]["item"]]
    reply = read(models[RESPONSES], events)
    assert (reply.text, reply.finish) == ("Hello", "stop")
    assert [note.did for note in reply.notes if note.code == "text-differs"] == ["kept as in the pieces"]
    for same in ("Hello", " Hello ", "Hel", ""):
        content[0]["text"] = same
        assert "text-differs" not in codes(read(models[RESPONSES], events))


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("whole", [["One two."], ["One", " two."]])
def test_reasoning_that_only_the_whole_item_has_is_added(
    models: dict[str, Model], whole: list[str], is_last: bool
) -> None:
    summary = [{"type": "summary_text", "text": text} for text in whole]
    thought = {"type": "reasoning", "id": "rs", "summary": summary}
    created, *answer = responses("Hello", 2)
    done = {"type": "response.output_item.done", "output_index": 1, "item": thought}
    delta = {"type": "response.reasoning_summary_text.delta", "item_id": "rs", "output_index": 1, "delta": "One"}
    events = [created, delta, *([done] if is_last else []), *answer]
    events[-1]["response"]["output"].insert(0, thought)
    reply = read(models[RESPONSES], events)
    assert (reply.reasoning, reply.text, reply.finish) == ("One two." if is_last else "One", "Hello", "stop")
    assert ("text-differs" in codes(reply)) is not is_last


def test_reasoning_that_is_written_in_two_ways_is_kept_as_in_its_pieces(models: dict[str, Model]) -> None:
    created, *answer = responses("Hello", 2)
    summary = [{"type": "summary_text", "text": text} for text in ("**One**", "two")]
    thought = {"type": "reasoning", "id": "rs", "summary": summary}
    delta = {"type": "response.reasoning_summary_text.delta", "item_id": "rs", "output_index": 1, "delta": "One\n\ntwo"}
    done = {"type": "response.output_item.done", "output_index": 1, "item": thought}
    reply = read(models[RESPONSES], [created, delta, done, *answer])
    assert (reply.reasoning, "text-differs" in codes(reply)) == ("One\n\ntwo", False)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("counts", "thoughts", "is_reached"),
    [("max_tokens", 3, True), ("none", 3, False), ("budget", 3, False), ("none", 1, True), ("none", None, False)],
)
def test_a_limit_is_reached_by_the_tokens_that_it_counts(
    home: Home, stream: bool, counts: str, thoughts: int | None, is_reached: bool
) -> None:
    model = home(f'reasoning = {{ fields = ["reasoning_content"], bound = "{counts}" }}')
    usage: dict[str, Any] = {"prompt_tokens": 1, "completion_tokens": 6}
    if thoughts is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": thoughts}
    said = {"reasoning_content": "Hm.", "content": "Yes"}
    body = json.dumps({"choices": [{"index": 0, "message": said, "finish_reason": "stop"}], "usage": usage}).encode()
    if stream:
        body = sse(delta(**said), ended("stop"), {"choices": [], "usage": usage})
    plan = engine.build_request(model, "Hi", max_tokens=5, stream=stream)
    reply = engine.parse_response(model, 200, {}, body, plan=plan)
    assert (reply.text, reply.reasoning, reply.finish) == ("Yes", "Hm.", "stop")
    assert ("limit-reached" in codes(reply)) == is_reached


def test_reasoning_beyond_a_limit_that_does_not_count_it_cuts_no_reply() -> None:
    model = Registry.load().resolve("xai/grok-4.7", protocol=RESPONSES)
    plan = engine.build_request(model, "Hi", max_tokens=20)
    thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]}
    answer = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Yes"}]}
    counts = {"input_tokens": 4, "output_tokens": 95, "output_tokens_details": {"reasoning_tokens": 91}}
    body = {"id": "r", "object": "response", "status": "completed", "output": [thought, answer], "usage": counts}
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=plan)
    assert (reply.text, reply.finish, "limit-reached" in codes(reply)) == ("Yes", "stop", False)


@pytest.mark.parametrize(("counts", "most"), [("max_tokens", 5), ("none", 70)])
def test_a_reply_that_broke_off_may_cost_reasoning_beyond_its_limit(home: Home, counts: str, most: int) -> None:
    flags = f'reasoning = {{ fields = ["reasoning_content"], bound = "{counts}" }}\nlimits = {{ output = 70 }}'
    model = home(flags, more="price = { currency = 'USD', input = 0, output = 1_000_000 }")
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    body = sse(delta(reasoning_content="Hm."), {"choices": [], "usage": usage}, done=False)
    plan = engine.build_request(model, "Hi", max_tokens=5, stream=True)
    with pytest.raises(StreamCut) as caught:
        engine.parse_response(model, 200, {}, body, plan=plan)
    assert caught.value.cost is not None
    assert caught.value.cost.at_most == most
