"""A cut reply is continued where the endpoint takes its beginning, and asked for again where it does not."""

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import Model, Registry, engine
from cnllm.registry.read import builtin_path, read
from cnllm.simulator import SimTransport

from .peer import Peer, Script, call_delta, delta, refused, reply, stream
from .support import ONCE, Driver, overlay, registry

PARTIAL = "messages.prefill = { set = { partial = true } }"
CUT = [stream(delta("The sky"), delta(" is "))]


@pytest.fixture(params=["sync", "asyncio"])
def client(request: pytest.FixtureRequest) -> Any:
    with Driver(request.param, retry=ONCE, api_key="sk-not-needed-0123456789") as made:
        yield made


def drained(
    client: Driver, folder: Path, *scripts: Script, flags: str = PARTIAL, **options: Any
) -> tuple[list[Any], cnllm.Reply, list[Any]]:
    """The events, the reply, and the requests of a stream that these scripts answer."""
    with Peer(*scripts) as peer:
        path = overlay(folder, peer.url, flags)
        model = Registry([read(builtin_path(), builtin=True), read(path)]).resolve("home/m")
        streamed = client.stream(model, "hi", if_cut="again-whole", **options)
        events = list(streamed)
        return events, streamed.reply, list(peer.received)


def written(events: list[Any]) -> str:
    return "".join(e.text for e in events if isinstance(e, cnllm.TextDelta))


def codes(got: cnllm.Reply) -> list[str]:
    return [note.code for note in got.notes if note.code in ("reply-continued", "again-whole")]


def test_a_cut_stream_goes_on_from_what_was_delivered(client: Driver, tmp_path: Path) -> None:
    events, got, received = drained(client, tmp_path, CUT, [reply("blue.")])
    assert received[1].json()["messages"][-1] == {"role": "assistant", "content": "The sky is ", "partial": True}
    assert "stream" not in received[1].json()
    assert written(events) == got.text == got.message.text == "The sky is blue."
    assert not any(isinstance(e, cnllm.Restarted) for e in events)
    assert (codes(got), got.finish, len(received)) == (["reply-continued"], "stop", 2)
    assert events[-1].finish == "stop"
    assert got.usage.output is None  # that of the cut request is unknown


def test_both_requests_count(client: Driver, tmp_path: Path) -> None:
    counts = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    part = json.dumps({"choices": [], "usage": counts}).encode()
    cut = [stream(delta("The sky"), b"data: " + part + b"\n\n")]
    _, got, _ = drained(client, tmp_path, cut, [reply(" is blue.")])
    alone = engine.parse_response(
        registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9"), 200, {}, BODY
    )
    assert got.text == "The sky is blue."
    assert alone.usage.input is not None
    assert got.usage.input == 5 + alone.usage.input


BODY = reply("x").partition(b"\r\n\r\n")[2]


def test_a_path_of_its_own(client: Driver, tmp_path: Path) -> None:
    flags = 'messages.prefill = { path = "/beta/chat" }'
    events, got, received = drained(client, tmp_path, CUT, [reply("blue.")], flags=flags)
    assert written(events) == got.text == "The sky is blue."
    assert received[1].line.split()[1].endswith("/beta/chat")
    assert received[1].json()["messages"][-1] == {"role": "assistant", "content": "The sky is "}


def test_a_refusal_or_another_cut_is_answered_by_asking_again(client: Driver, tmp_path: Path) -> None:
    for second in ([refused(400)], [refused(404)]):
        events, got, received = drained(client, tmp_path, CUT, second, [reply("The sky is blue.")])
        assert (codes(got), got.text, len(received)) == (["again-whole"], "The sky is blue.", 3)
        assert received[2].json()["messages"][-1]["role"] == "user"
        assert written(events) == "The sky is blue."


NEVER: dict[str, tuple[list[bytes], str, dict[str, Any]]] = {
    "a call": ([stream(delta("Let me"), call_delta(0, '{"a', id="c", name="f"))], PARTIAL, {}),
    "reasoning": ([stream(delta(reasoning_content="Hm."), delta("The sky"))], PARTIAL, {}),
    "nothing": ([stream(delta(" "))], PARTIAL, {}),
    "a mode that thinks": (CUT, PARTIAL + '\nreasoning = { mode = "always" }', {}),
    "an answer by a schema": ([stream(delta('{"a"'))], PARTIAL, {"schema": {"type": "object"}}),
    "no flag": (CUT, "", {}),
    "no recovery": (CUT, PARTIAL, {"recovery": {"streams": 0}}),
}


@each("case", NEVER)
def test_what_cannot_be_continued_is_not(client: Driver, tmp_path: Path, case: str) -> None:
    cut, flags, options = NEVER[case]
    with Peer(cut, [reply('{"a": 1}')]) as peer:
        path = overlay(tmp_path, peer.url, flags)
        model = Registry([read(builtin_path(), builtin=True), read(path)]).resolve("home/m")
        streamed = client.stream(model, "hi", if_cut="again-whole", **options)
        try:
            list(streamed)
            assert codes(streamed.reply) == ["again-whole"]
        except cnllm.StreamCut:
            assert case == "no recovery"
        for request in peer.received[1:]:
            assert request.json()["messages"][-1]["role"] == "user"


# ── what the registry says ───────────────────────────────────────────────────
def builtin(name: str) -> Model:
    return registry().resolve(name)


def test_the_endpoints_that_take_one_get_their_own_form_and_the_simulator_goes_on() -> None:
    turns: list[cnllm.MessageDict] = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "(Simulated answer) This"},
    ]
    for name, key, path in (
        ("deepseek/deepseek-v4-pro", "prefix", "/beta/chat/completions"),
        ("moonshotai/kimi-k2.6", "partial", "/v1/chat/completions"),
        ("alibaba/qwen-plus", "partial", "/v1/chat/completions"),
    ):
        plan = engine.build_request(builtin(name), turns, reasoning="off", prefill=True)
        assert plan.url.endswith(path)
        assert plan.body["messages"][-1][key] is True
        status, headers, chunks = SimTransport(registry()).send(plan)
        got = engine.parse_response(plan.model, status, headers, b"".join(chunks), plan=plan)
        assert got.text.startswith(" text comes from the built-in simulator"), name


def test_elsewhere_a_beginning_is_refused() -> None:
    turns: list[cnllm.MessageDict] = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    with pytest.raises(cnllm.CannotSend, match="prefill"):
        engine.build_request(builtin("gpt-5.2"), turns, prefill=True)
    with pytest.raises(cnllm.CannotSend, match="prefill"):
        engine.build_request(builtin("deepseek/deepseek-v4-pro"), "Hello", prefill=True)
