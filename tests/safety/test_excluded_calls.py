"""A call that the caller's choice or offer excludes is never executed, on any wire."""

from collections.abc import Iterator
from typing import Any

import pytest

import cnllm

from .calls_support import WIRES, Calls, Peer

REGISTRY = cnllm.Registry.load()


@pytest.fixture(params=WIRES)
def peer(request: pytest.FixtureRequest) -> Iterator[tuple[Peer, cnllm.Model]]:
    made = Peer(request.param)
    model = REGISTRY.resolve("openai-compatible/any", base_url=made.url, protocol=request.param)
    yield made, model
    made.server.shutdown()
    made.server.server_close()


RUN: list[str] = []


def weather(city: str = "") -> str:
    """Tell the weather."""
    RUN.append(f"weather {city}")
    return f"sun over {city}"


def wipe(city: str = "") -> str:
    """Wipe a disk."""
    RUN.append("wipe")
    return "wiped"


def codes(reply: cnllm.Reply) -> list[str]:
    return [note.code for note in reply.notes]


def ask(client: cnllm.Client, model: str | cnllm.Model, stream: bool, **options: Any) -> cnllm.Reply:
    if not stream:
        return client.call(model, "hi", **options)
    with client.stream(model, "hi", **options) as streamed:
        ended = [event.call for event in streamed if isinstance(event, cnllm.ToolCallEnd)]
        assert ended == streamed.reply.tool_calls
        return streamed.reply


LOOK_ALIKES = [
    "Weather", "weather ", " weather", "wea\u200bther", "we\u0430ther", "ｗeather", "weather\u202e", "weather\x00",
    "weather\n", "wea\u00adther", "weathe\u0155", "functions.weather", "rm_rf",
]  # fmt: skip


def test_a_call_that_the_choice_excludes_is_never_executed(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for stream in (False, True):
            cases: list[tuple[Any, Any, list[str], str]] = [
                ("none", [("a", "weather", {"city": "x"})], ["weather"], "call-excluded"),
                ({"type": "none"}, [("a", "weather", {})], ["weather"], "call-excluded"),
                ("weather", [("a", "wipe", {})], ["wipe"], "call-excluded"),
                ("weather", [("a", "wipe", {}), ("b", "weather", {"city": "x"})], ["wipe"], "call-excluded"),
                ({"type": "function", "function": {"name": "weather"}}, [("a", "wipe", {})], ["wipe"], "call-excluded"),
                *[("auto", [("a", name, {})], [name], "call-not-offered") for name in LOOK_ALIKES],
            ]  # fmt: skip
            for choice, calls, barred, code in cases:
                RUN.clear()
                endpoint.script = [(calls, "")]
                options: dict[str, Any] = {"tools": [weather, wipe], "tool_choice": choice}
                reply = ask(client, model, stream, **options)
                excluded = [call for call in reply.tool_calls if call.excluded]
                assert [call.name.strip() for call in excluded] == [name.strip() for name in barred]
                assert all(call.arguments is None and call.problem for call in excluded)
                assert codes(reply).count(code) == 1
                note = next(note for note in reply.notes if note.code == code)
                assert note.said.isascii()
                assert note.said.isprintable()
                endpoint.script = [(calls, ""), ([], "done")]
                asked: list[str] = []
                options |= {"approve": lambda call, asked=asked: asked.append(call.name) or True}
                if stream:
                    with client.run_stream(model, "hi", **options) as running:
                        list(running)
                    run: Any = running
                else:
                    run = client.run(model, "hi", **options)
                assert run.reply.text == "done"
                assert run.stopped == "done"
                assert not set(asked) & set(barred)
                assert "wipe" not in RUN
                assert len(RUN) == len(calls) - len(barred)
                results = [part for turn in run.messages for part in turn.parts if isinstance(part, cnllm.ToolResult)]
                assert [part.id for part in results] == [call.id for call in run.steps[0].calls]


def test_a_choice_that_the_endpoint_ignores_is_noted(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for stream in (False, True):
            cases: list[tuple[str, Calls, bool]] = [
                ("required", [], True),
                ("weather", [], True),
                ("weather", [("a", "wipe", {})], True),
                ("required", [("a", "wipe", {})], False),
                ("weather", [("a", "weather", {})], False),
                ("auto", [], False),
                ("none", [], False),
            ]
            for choice, calls, ignored in cases:
                endpoint.script = [(calls, "words")]
                reply = ask(client, model, stream, tools=[weather, wipe], tool_choice=choice)
                assert ("tool-choice-ignored" in codes(reply)) is ignored, (stream, choice, calls)


def test_calls_are_shown_where_no_tool_was_offered(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    calls: Calls = [("a", "weather", {})]
    endpoint.script = [(calls, "")]
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for stream in (False, True):
            reply = ask(client, model, stream)
            assert [(call.name, call.arguments, call.excluded) for call in reply.tool_calls] == [("weather", {}, False)]


def test_ids_are_unique_in_a_reply_and_in_a_conversation(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for stream in (False, True):
            for id in ("same", "call_0", "", None):
                RUN.clear()
                turn: Calls = [(id, "weather", {"city": "a"}), (id, "weather", {"city": "b"})]
                other: Calls = [(id, "weather", {"city": "c"}), (id, "weather", {"city": "d"})]
                endpoint.script = [(turn, ""), (turn, ""), (other, ""), ([], "done")]
                endpoint.bodies.clear()
                seen: list[str] = []
                options: dict[str, Any] = {"tools": [weather], "max_repeats": None}
                if stream:
                    with client.run_stream(model, "hi", **options) as running:
                        seen = [e.id for e in running if isinstance(e, cnllm.ToolCallStart)]
                    run: Any = running
                else:
                    run = client.run(model, "hi", **options)
                ids = [call.id for step in run.steps for call in step.calls]
                assert len(set(ids)) == len(ids) == 6, (stream, id, ids)
                assert all(ids)
                assert seen in ([], ids)
                for step in run.steps[:3]:
                    for call, result in zip(step.calls, step.results, strict=True):
                        assert call.id == result.id
                        assert result.text == f"sun over {call.arguments['city']}"
                assert not [n for n in run.reply.notes if n.code in ("ids-repeated", "ids-absent")]
