"""What official SDKs read of the gateway where an endpoint's own form is not the one that they know."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai.types.responses import Response

from gateway.support import KEY, THOUGHT, TOOL, Answer, Json, Upstream, call, error, gateway_for, say

MODEL = "deepseek/deepseek-v4-pro"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


@contextlib.contextmanager
def sdks(upstream: Upstream, folder: Path) -> Iterator[tuple[openai.OpenAI, anthropic.Anthropic]]:
    with (
        gateway_for(upstream, folder) as http,
        openai.OpenAI(base_url=f"{http.base_url}/v1", api_key=KEY, max_retries=0) as first,
        anthropic.Anthropic(base_url=str(http.base_url), api_key=KEY, max_retries=0) as second,
    ):
        yield first, second


@pytest.mark.share(3)
@pytest.mark.parametrize("pieces", [[], [""], ["null"], ["", " null", " "], ["{}"], ["{", "}"]])
def test_a_call_without_arguments_has_an_empty_object_on_every_wire(tmp_path: Path, pieces: list[str]) -> None:
    head = {"index": 0, "id": "c1", "type": "function", "function": {"name": "now", "arguments": ""}}
    deltas: list[Any] = [{"tool_calls": [head]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    function = {"name": "now", "parameters": SCHEMA}
    turns: Any = [{"role": "user", "content": "What time is it?"}]
    with sdks(Upstream(Answer(deltas, "tool_calls")), tmp_path) as (openai_client, anthropic_client):
        for stream in (True, False):
            chat: Any = {"model": MODEL, "messages": turns, "tools": [{"type": "function", "function": function}]}
            if stream:
                chunks = [*openai_client.chat.completions.create(**chat, stream=True)]
                calls = [c for chunk in chunks for choice in chunk.choices for c in choice.delta.tool_calls or ()]
                arguments = "".join(call.function.arguments or "" for call in calls if call.function)
            else:
                message = openai_client.chat.completions.create(**chat).choices[0].message
                [whole] = message.tool_calls or []
                assert whole.type == "function"
                arguments = whole.function.arguments
            assert json.loads(arguments) == {}, (stream, arguments)

            tools: Any = [{"type": "function", "strict": False, **function}]
            responses = openai_client.responses
            if stream:
                with responses.stream(model=MODEL, input="What time is it?", tools=tools) as events:
                    seen = [*events]
                    final: Response = events.get_final_response()
                text = "".join(e.delta for e in seen if e.type == "response.function_call_arguments.delta")
                assert json.loads(text) == {}
            else:
                final = responses.create(model=MODEL, input="What time is it?", tools=tools)
            [item] = [item for item in final.output if item.type == "function_call"]
            assert json.loads(item.arguments) == {}

            own: Any = {"max_tokens": 100, "tools": [{"name": "now", "input_schema": SCHEMA}]}
            messages = anthropic_client.messages
            if stream:
                with messages.stream(model=MODEL, messages=turns, **own) as parts:
                    reply = parts.get_final_message()
            else:
                reply = messages.create(model=MODEL, messages=turns, **own)
            assert [block.input for block in reply.content if block.type == "tool_use"] == [{}]


@pytest.mark.parametrize(
    ("answer", "requests"),
    [
        (error(401, "Incorrect API key provided"), 1),
        (error(402, "Insufficient Balance"), 1),
        (Answer(status=429, body={"error": {"message": "Pay first", "code": "insufficient_quota"}}), 1),
        (Answer(status=302, body={}, headers={"location": "/login"}), 1),
        (error(503, "busy"), 1),  # the gateway repeats it itself, where it may
        (Answer(), 3),  # an empty reply: another may have a text
    ],
)
def test_an_sdk_does_not_repeat_what_cannot_succeed(tmp_path: Path, answer: Answer, requests: int) -> None:
    upstream = Upstream(answer)
    turns: Any = [{"role": "user", "content": "Hi"}]
    with sdks(upstream, tmp_path) as (openai_client, anthropic_client):
        messages = anthropic_client.with_options(max_retries=2).messages
        for call in (
            lambda: openai_client.with_options(max_retries=2).chat.completions.create(model=MODEL, messages=turns),
            lambda: messages.create(model=MODEL, messages=turns, max_tokens=9),
        ):
            upstream.bodies.clear()
            with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
                call()
            assert len(upstream.bodies) == requests


def test_the_input_of_a_response_is_read_page_by_page_in_either_order(tmp_path: Path) -> None:
    """https://platform.openai.com/docs/api-reference/responses/input-items: `desc` is the default."""
    with sdks(Upstream(say("Hi.")), tmp_path) as (openai_client, _):
        responses = openai_client.responses
        first = responses.create(model=MODEL, input="one", instructions="Be brief.")
        twice: Any = [
            {"role": "user", "content": "two"},
            {"id": "msg_a", "type": "message", "role": "user", "content": "3"},
        ]
        last = responses.create(model=MODEL, input=[*twice, twice[1]], previous_response_id=first.id)

        def said(item: Any) -> tuple[str, str, str]:
            return item.type, item.role, item.content[0].text

        words = [("user", "one"), ("assistant", "Hi."), ("user", "two"), ("user", "3"), ("user", "3")]
        expected = [("message", *pair) for pair in words]
        assert [*map(said, responses.input_items.list(last.id))] == expected[::-1]
        for order, items in (("asc", expected), ("desc", expected[::-1])):
            for limit in (1, 2, 5, 1000):
                pages = responses.input_items.list(last.id, order=order, limit=limit)  # type: ignore[arg-type]
                assert len(pages.data) == min(limit, 5)
                assert pages.has_next_page() is (limit < 5)
                assert [*map(said, pages)] == items, "the SDK reads on after the last id of a page"
        ids = [item.id for item in responses.input_items.list(last.id)]
        assert len({*ids}) == 5


def test_a_response_that_has_ended_is_not_streamed_again(tmp_path: Path) -> None:
    with sdks(Upstream(say("Hi.")), tmp_path) as (openai_client, _):
        responses = openai_client.responses
        kept = responses.create(model=MODEL, input="one")
        for more in ({}, {"starting_after": 1}):
            with pytest.raises(openai.BadRequestError, match="background"):
                responses.retrieve(kept.id, stream=True, **more)  # type: ignore[call-overload]
        assert responses.retrieve(kept.id, stream=False).output_text == "Hi."


def test_a_gemini_stream_without_alt_sse_is_one_json_array(tmp_path: Path) -> None:
    """As `google.api_core.rest_streaming` reads it."""
    url = f"/v1beta/models/{MODEL}:streamGenerateContent"
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    waits = threading.Event()
    script = (
        say("Hello\n\ndata: world"),
        say("Hello\n\ndata: world"),
        say("Hello", cut=True),
        say("Hello", wait=waits, lasts=False),
    )
    with gateway_for(Upstream(*script), tmp_path, ping=0.01) as http:
        frames = http.post(url, params={"alt": "sse", "key": KEY}, json=body)
        assert frames.headers["content-type"].startswith("text/event-stream")
        whole = http.post(url, params={"key": KEY}, json=body)
        assert whole.headers["content-type"] == "application/json"
        events = [json.loads(line[6:]) for line in frames.text.splitlines() if line.startswith("data: ")]
        objects = whole.json()
        for chunk in (*events, *objects):
            del chunk["responseId"]
        assert objects == events
        assert "".join(o["candidates"][0]["content"]["parts"][0]["text"] for o in objects) == "Hello\n\ndata: world"
        assert [type(key) for key in http.post(url, json=body).json()[-1]["error"]] == [str] * 4, "a cut has an error"
        with http.stream("POST", url, json=body) as slow:
            pieces = []
            for piece in slow.iter_text():
                pieces.append(piece)
                if len(pieces) > 3:
                    waits.set()  # signs of life came while the model said nothing
            assert json.loads("".join(pieces))[-1]["candidates"][0]["finishReason"] == "STOP"


def test_sources_and_pictures_of_a_stream_are_those_of_a_whole_reply(tmp_path: Path) -> None:
    """OpenAI's SDK joins the lists of deltas by the `index` of their entries, and refuses a second list without any."""
    sources = [
        {
            "type": "url_citation",
            "url_citation": {"url": f"https://x.test/{n}", "title": f"{n}", "start_index": n, "end_index": n + 1},
        }
        for n in range(3)
    ]
    images = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,iVBORw0KGgo{n}"}} for n in "AE"]
    deltas: list[Any] = [
        {"content": "It "},
        {"annotations": sources[:1]},
        {"images": images[:1]},
        {"content": "rains."},
    ]
    deltas += [{"annotations": [source]} for source in sources[1:]] + [{"images": images[1:]}]
    turns: Any = [{"role": "user", "content": "Weather?"}]
    with (
        sdks(Upstream(Answer(deltas)), tmp_path) as (openai_client, _),
        openai_client.chat.completions.stream(model=MODEL, messages=turns) as stream,
    ):
        message = stream.get_final_completion().choices[0].message.to_dict()
    assert message["content"] == "It rains."
    assert message["annotations"] == sources
    assert [image["image_url"] for image in message["images"]] == [image["image_url"] for image in images]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("sent_back", "is_given_back"), [(THOUGHT[7:], True), ("Another thought.", False)])
def test_a_client_that_keeps_the_last_piece_of_a_thought_gets_it_back(
    tmp_path: Path, sent_back: str, is_given_back: bool
) -> None:
    """Helpers of openai-node (`chat.completions.stream`, `runTools`) join the pieces of the fields that OpenAI's own
    models have. Of any other field, such as `reasoning_content`, they keep the last piece.
    """
    upstream = Upstream(call("Bonn"), say("Sunny."))
    function = {"name": TOOL["name"], "parameters": TOOL["schema"]}
    chat: Any = {"model": MODEL, "tools": [{"type": "function", "function": function}]}
    turns: Any = [{"role": "user", "content": "Weather?"}]
    with sdks(upstream, tmp_path) as (openai_client, _):
        with openai_client.chat.completions.stream(**chat, messages=turns) as stream:
            message: Json = stream.get_final_completion().choices[0].message.to_dict()
        assert message["reasoning_content"] == THOUGHT
        message["reasoning_content"] = sent_back
        turns += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Sun"}]
        openai_client.chat.completions.create(**chat, messages=turns)
    assert (upstream.bodies[1]["messages"][1].get("reasoning_content") == THOUGHT) is is_given_back
