"""The questions of the Open Responses compliance suite, put to a simulated gateway in our own words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cnllm import Registry
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running

from .support import KEY

Json = dict[str, Any]
MODELS = ("zai/glm-4.7", "openai/gpt-5.6-sol", "anthropic/claude-sonnet-4-5", "google/gemini-2.5-flash")
CLOCK = {
    "type": "function",
    "name": "clock",
    "description": "The time in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PIXEL = f"data:image/png;base64,{PNG}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(Gateway(Registry.load(), simulate=True, keys=[KEY])) as address:
        yield f"{address}/v1/responses"


def ask(url: str, model: str, *messages: Json, **more: Any) -> httpx.Response:
    """Send messages to a model."""
    body = {"model": model, "input": list(messages), **more}
    return httpx.post(url, json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=30)


def say(content: Any, role: str = "user", **more: Any) -> Json:
    return {"type": "message", "role": role, "content": content, **more}


def test_no_model_answers_in_the_background(url: str) -> None:
    """The gateway says so itself, also where the endpoint would: nobody could ask for the answer later."""
    for model in MODELS:
        response = ask(url, model, say("Hello."), background=True)
        assert response.status_code == 400
        assert response.json()["error"]["message"] == "background: this gateway answers at once"
        assert ask(url, model, say("Hello."), background=False).status_code == 200


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "messages",
    [
        [say("Hello.")],
        [say("Answer in rhymes.", "system"), say("Hello.")],
        [say("I am Mei."), say("Hello, Mei.", "assistant"), say("Who am I?")],
        [
            say("I look it up.", "assistant", phase="commentary"),
            say("Four.", "assistant", phase="final_answer"),
            say("?"),
        ],
        [say([{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": PIXEL}])],
    ],
    ids=["one", "system", "turns", "phases", "picture"],
)
def test_a_whole_answer(url: str, model: str, messages: list[Json]) -> None:
    response = ask(url, model, *messages)
    body = response.json()
    if model == "zai/glm-4.7" and "input_image" in str(messages):  # it reads none
        assert (response.status_code, body["error"]["code"]) == (400, "unsupported_media")
        assert body["error"]["message"].startswith("input[0].content[1]: ")
        return
    assert response.status_code == 200, body
    assert (body["object"], body["status"], body["error"]) == ("response", "completed", None)
    assert [item["role"] for item in body["output"] if item["type"] == "message"] == ["assistant"]


@pytest.mark.parametrize("model", MODELS)
def test_a_call_in_a_stream(url: str, model: str) -> None:
    response = ask(url, model, say("What time is it in Bern?"), tools=[CLOCK], stream=True)
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    of_calls = [
        event
        for event in events
        if "function_call_arguments" in event["type"] or event.get("item", {}).get("type") == "function_call"
    ]
    kinds = [event["type"] for event in of_calls]
    assert kinds[0] == "response.output_item.added"
    assert set(kinds[1:-2]) == {"response.function_call_arguments.delta"}
    assert kinds[-2:] == ["response.function_call_arguments.done", "response.output_item.done"]
    arguments = "".join(event["delta"] for event in of_calls[1:-2])
    assert of_calls[-2]["arguments"] == of_calls[-1]["item"]["arguments"] == arguments
    assert list(json.loads(arguments)) == ["city"]
    assert events[-1]["type"] == "response.completed"
    assert of_calls[-1]["item"] in events[-1]["response"]["output"]


def test_a_resource_that_is_not_there(url: str) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    compact = httpx.post(f"{url}/compact", json={"model": MODELS[0], "input": []}, headers=headers)
    assert (compact.status_code, compact.json()["error"]["type"]) == (404, "not_found_error")
