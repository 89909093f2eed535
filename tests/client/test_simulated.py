"""The simulator's server over a real socket gives what the simulator in the process gives."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

import cnllm
from cnllm import Client, Model, Reply, StreamCut, Timeouts
from cnllm.simulator.faults import HEADER
from cnllm.simulator.server import Server, running

from .conftest import Make
from .support import ONCE, QUICK, SEARCH, Driver, drained, folds, registry, written

KEY = "sk-0123456789"
NAMES = [
    "deepseek/deepseek-flash",
    "zai/glm-4.7",
    "minimax/MiniMax-M3",
    "openrouter/moonshotai/kimi-k3",
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(registry()) as listening:
        yield listening


def at(server: Server, name: str) -> Model:
    return registry().resolve(name, base_url=f"{server.url}/{name.partition('/')[0]}")


def plain(reply: Reply) -> Reply:
    """Without what a simulated client adds to it, and without the decoded body."""
    notes = [note for note in reply.notes if note.code != "simulated"]
    return replace(reply, notes=notes, cost=None, raw=None)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tools": {"tools": [SEARCH]},
    "a schema": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    "without reasoning": {"reasoning": "off"},
    "few tokens": {"max_tokens": 5},
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", OPTIONS)
def test_the_same_reply_whole_and_streamed(client: Driver, server: Server, name: str, case: str) -> None:
    options = OPTIONS[case]
    with Client(registry(), simulate=True) as simulated:
        expected = plain(simulated.call(name, "Why is the sky blue?", **options))
        with simulated.stream(name, "Why is the sky blue?", **options) as inside:
            told = list(inside)
    model = at(server, name)
    got = client.call(model, "Why is the sky blue?", api_key=KEY, **options)
    events, streamed = drained(client.stream(model, "Why is the sky blue?", api_key=KEY, **options))
    assert plain(got) == expected
    assert plain(streamed) == plain(inside.reply)
    assert events == told
    folds(events, streamed)
    assert (streamed.text, streamed.reasoning, streamed.tool_calls) == (got.text, got.reasoning, got.tool_calls)
    assert (streamed.finish, streamed.raw_finish) == (got.finish, got.raw_finish)


def test_a_conversation_with_a_tool(client: Driver, server: Server) -> None:
    model = at(server, "deepseek/deepseek-flash")
    turns: list[Any] = ["Why is the sky blue?"]
    first = client.call(model, turns, tools=[SEARCH], api_key=KEY)
    assert [call.name for call in first.tool_calls] == ["search"]
    turns = [
        {"role": "user", "content": "Why is the sky blue?"},
        first.message,
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "Rayleigh"},
    ]
    events, second = drained(client.stream(model, turns, tools=[SEARCH], api_key=KEY))
    assert (second.tool_calls, second.finish) == ([], "stop")
    folds(events, second)


REFUSALS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "temperature": ("deepseek/deepseek-flash", "hi", {"temperature": 99.0, "reasoning": "off"}),
    "tokens": ("deepseek/deepseek-flash", "hi", {"max_tokens": 99_999_999}),
    "reasoning is missing": (
        "deepseek/deepseek-flash",
        [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "x"},
        ],
        {"tools": [SEARCH]},
    ),
    "a choice": ("moonshotai/kimi-k3", "hi", {"tools": [SEARCH], "tool_choice": "search"}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_the_same_refusal(make: Make, server: Server, case: str) -> None:
    name, messages, options = REFUSALS[case]
    options = {**options, "on_unsupported": "send"}
    expected: Any = None
    with Client(registry(), simulate=True, retry=ONCE) as simulated:
        try:
            expected = plain(simulated.call(name, messages, **options))
        except cnllm.EndpointError as error:
            expected = error
    client = make(retry=ONCE, api_key=KEY)
    model = at(server, name)
    if isinstance(expected, Reply):
        assert plain(client.call(model, messages, **options)) == expected
        return
    for verb in ("call", "stream"):
        with pytest.raises(cnllm.EndpointError) as caught:
            _ = (
                client.call(model, messages, **options)
                if verb == "call"
                else drained(client.stream(model, messages, **options))
            )
        got = caught.value
        assert type(got) is type(expected)
        assert (got.message, got.status, got.code) == (expected.message, expected.status, expected.code)
        assert (got.body, got.retryable, got.reply) == (expected.body, expected.retryable, None)


def test_most_of_these_are_refusals() -> None:
    refused = 0
    with Client(registry(), simulate=True, retry=ONCE) as simulated:
        for name, messages, options in REFUSALS.values():
            with contextlib.suppress(cnllm.EndpointError):
                simulated.call(name, messages, on_unsupported="send", **options)
                continue
            refused += 1
    assert refused >= 3


def test_a_missing_key(client: Driver, server: Server) -> None:
    with pytest.raises(cnllm.BadKey) as caught:
        client.call(at(server, "deepseek/deepseek-flash"))
    assert str(caught.value.hint).startswith("no key was sent; --key-env NAME (in Python api_key=)")


# ── its faults ───────────────────────────────────────────────────────────────
def faulty(client: Driver, verb: str, server: Server, fault: str, **options: Any) -> tuple[list[Any], Reply]:
    model = at(server, "deepseek/deepseek-flash")
    options = {"api_key": KEY, "extra_headers": {HEADER: fault}, **options}
    if verb == "call":
        return [], client.call(model, "hi", **options)
    return drained(client.stream(model, "hi", **options))


SHORT = Timeouts(first_byte=0.2, idle=0.2, progress=0.2)
BAD: dict[tuple[str, str], type[cnllm.CnllmError]] = {
    ("call", "stall-headers"): cnllm.Timeout,
    ("call", "stall-body"): cnllm.IdleTimeout,
    ("call", "stall-middle"): cnllm.IdleTimeout,
    ("call", "reset-headers"): cnllm.TransportError,
    ("call", "reset"): cnllm.TransportError,
    ("call", "drop"): cnllm.TransportError,
    ("call", "cut"): cnllm.EndpointError,
    ("call", "redirect=http://elsewhere.example/"): cnllm.EndpointError,
    ("call", "status=503"): cnllm.Overloaded,
    ("stream", "stall-headers"): cnllm.Timeout,
    ("stream", "stall-body"): cnllm.IdleTimeout,
    ("stream", "stall-middle"): cnllm.IdleTimeout,
    ("stream", "comments"): cnllm.IdleTimeout,
    ("stream", "reset-headers"): cnllm.TransportError,
    ("stream", "reset"): StreamCut,
    ("stream", "drop"): StreamCut,
    ("stream", "cut"): StreamCut,
    ("stream", "error"): cnllm.EndpointError,
    ("stream", "redirect"): cnllm.EndpointError,
    ("stream", "status=500"): cnllm.EndpointError,
}


@pytest.mark.parametrize(("verb", "fault"), BAD)
def test_every_fault_has_its_error(make: Make, server: Server, verb: str, fault: str) -> None:
    with pytest.raises(cnllm.CnllmError) as caught:
        faulty(make(retry=ONCE), verb, server, fault, timeout=SHORT if fault.startswith(("stall", "comm")) else None)
    assert type(caught.value) is BAD[verb, fault]


def test_a_fault_that_passes_is_overcome(make: Make, server: Server, backend: str) -> None:
    client = make(retry=QUICK)
    for verb in ("call", "stream"):
        for fault in ("status=503", "retry-after=0.01", "reset-headers"):
            events, got = faulty(client, verb, server, f"{fault}; times=2; id={backend}-{verb}")
            assert got.finish == "stop"
            assert written(events) == (got.text if verb == "stream" else "")


def test_a_cut_is_overcome_by_asking_again(client: Driver, server: Server, backend: str) -> None:
    for fault in ("cut", "drop", "stall-middle"):
        header = f"{fault}; times=1; id=again-{backend}"
        events, got = faulty(client, "stream", server, header, timeout=Timeouts(idle=0.2), if_cut="again-whole")
        assert got.finish == "stop"
        assert not [event for event in events if isinstance(event, cnllm.Restarted)]
        folds(events, got)


def test_a_stream_that_lingers_is_whole(client: Driver, server: Server) -> None:
    events, got = faulty(client, "stream", server, "linger")
    assert got.finish == "stop"
    folds(events, got)


def test_a_slow_stream_is_waited_for(client: Driver, server: Server) -> None:
    events, got = faulty(client, "stream", server, "slow=0.005", timeout=Timeouts(idle=5, progress=5))
    assert got.finish == "stop"
    folds(events, got)
