"""Conversations that a client sends again in another form than it had them in: thoughts are found all the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .support import CLIENTS, THOUGHT, Answer, ChatClient, GeminiClient, Upstream, call, gateway_for, say

Json = dict[str, Any]
LAST = "Both are sunny, so I say so. 都晴。"
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


def _thoughts(body: Json) -> list[str | None]:
    return [m.get("reasoning_content") for m in body["messages"] if m["role"] == "assistant"]


def _twice(history: list[Json]) -> list[Json]:
    """Each part of a turn with results is there twice, as after a client's session was resumed."""
    return [
        {**turn, "parts": turn["parts"] * 2} if any("functionResponse" in part for part in turn["parts"]) else turn
        for turn in history
    ]


def _results_twice(history: list[Json]) -> list[Json]:
    """Each turn of results is there twice."""
    out = []
    for turn in history:
        out += [turn, turn] if turn["role"] == "tool" else [turn]
    return out


def _orphan(history: list[Json]) -> list[Json]:
    """A result of a call that the conversation does not have stands before the real ones."""
    return [
        {**turn, "parts": [{"functionResponse": {"id": "gone", "name": "gone", "response": {}}}, *turn["parts"]]}
        if any("functionResponse" in part for part in turn["parts"])
        else turn
        for turn in history
    ]


def _session(kind: type[ChatClient], folder: Path, change: Callable[[list[Json]], list[Json]]) -> list[str | None]:
    """Return the thoughts that the endpoint gets back after a conversation with calls was changed and went on."""
    answer = say("Both are sunny.")
    upstream = Upstream(
        call("Beijing", "上海"), Answer([{"reasoning_content": LAST}, *answer.deltas]), say("You are welcome.")
    )
    with gateway_for(upstream, folder) as http:
        client = kind(http, "deepseek/deepseek-v4-pro")
        client.user("Weather in Beijing and 上海?")
        for id, arguments in client.send():
            client.result(id, f"sunny in {arguments['city']}")
        if kind is GeminiClient:
            client.history[-1]["parts"].append(PICTURE)
        assert client.send() == []
        client.history = change(copy.deepcopy(client.history))
        client.user("Thanks.")
        client.send()
    return _thoughts(upstream.bodies[2])


def test_results_that_are_sent_twice_change_no_conversation(tmp_path: Path) -> None:
    for change in (list, _twice, _orphan):
        assert _session(GeminiClient, tmp_path, change) == [THOUGHT, LAST], change
    assert _session(ChatClient, tmp_path, _results_twice) == [THOUGHT, LAST]


def test_other_words_or_results_are_another_conversation(tmp_path: Path) -> None:
    def other_result(history: list[Json]) -> list[Json]:
        for turn in history:
            if turn["role"] == "tool":
                turn["content"] += "!"
        return history

    def swapped(history: list[Json]) -> list[Json]:
        contents = [turn["content"] for turn in history if turn["role"] == "tool"]
        for turn in history:
            if turn["role"] == "tool":
                turn["content"] = contents.pop()
        return history

    def said_twice(history: list[Json]) -> list[Json]:
        return [history[0], *history]

    for change in (other_result, swapped, said_twice):
        assert _session(ChatClient, tmp_path, change)[1] != LAST, change


def test_every_client_gets_its_thoughts_back_when_nothing_changed(tmp_path: Path) -> None:
    for kind in CLIENTS:
        assert _session(kind, tmp_path, list) == [THOUGHT, LAST], kind


def test_what_an_endpoint_adds_to_its_calls_comes_back_whatever_it_wants_of_reasoning(tmp_path: Path) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures: such a call without its signature is refused."""
    for kind in CLIENTS:
        for name, thought in (("google/gemini-4-argon", ""), ("own/m", ""), ("own/m", THOUGHT)):
            first, second = call("Beijing", thought=thought), call("上海", thought=thought, ids=["call_1"])
            for number, answer in enumerate((first, second)):
                signature = {"google": {"thought_signature": f"signature {number}"}}
                next(d for d in answer.deltas if "tool_calls" in d)["tool_calls"][0]["extra_content"] = signature
            upstream = Upstream(first, second, say("Sunny."))
            more = f'[providers.own]\nprotocol = "openai-chat"\nbase_url = "{upstream.url}"\n[models."own/m"]\n'
            with gateway_for(upstream, tmp_path, "google", more=more) as http:
                client = kind(http, name)
                client.user("Weather in Beijing and 上海?")
                for id, arguments in client.send():
                    client.result(id, f"sunny in {arguments['city']}")
                for id, arguments in client.send():
                    client.result(id, f"sunny in {arguments['city']}")
                assert client.send() == []
            calls = [one for m in upstream.bodies[2]["messages"] for one in m.get("tool_calls") or ()]
            sent = [one.get("extra_content", {}).get("google") for one in calls]
            expected = [{"thought_signature": f"signature {number}"} for number in (0, 1)]
            assert sent == expected, (kind, name, thought)
