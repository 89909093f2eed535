"""How long a reply and each tool took, and how many calls of tools failed, can be read from a run."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from client.peer import Stay, delta, stream

import cnllm
from cnllm.client import telemetry

from .support import ONCE, SOON, Backend, Loops, Peer, at, ran, says, turns

LONG = 0.05  # seconds that the slow tool takes at least


def slow() -> str:
    """Take a while."""
    threading.Event().wait(LONG)
    return "slept"


async def slow_async() -> str:
    """Take a while."""
    import anyio

    await anyio.sleep(LONG)
    return "slept"


def broken() -> str:
    """Fail."""
    raise ValueError("no")


def endless() -> str:
    """Never return in time."""
    threading.Event().wait(5)
    return ""


@pytest.mark.parametrize("tool", [slow, slow_async])
def test_each_use_of_a_tool_has_its_seconds(backend: Backend, verb: str, tool: Any) -> None:
    seen: list[Any] = []
    calls = [(tool.__name__, "{}"), ("broken", "{}"), ("nothing", "{}")]
    with Loops(backend, retry=ONCE, on_event=seen.append) as client, Peer(*turns(verb, calls, "Done.")) as peer:
        _, run = ran(client, verb, at(peer), tools=[tool, broken])
    first, second, third = run.tool_uses
    assert (first.name, first.error) == (tool.__name__, False)
    assert LONG <= first.seconds < SOON
    assert (second.name, second.error) == ("broken", True)
    assert second.seconds not in (None, first.seconds), "each has its own"
    assert (third.name, third.seconds, third.error) == ("nothing", None, True)  # there is no such tool
    assert run.steps[0].tool_uses == run.tool_uses
    assert (run.calls, run.returned) == (3, 1)
    assert run.steps[0].seconds >= first.seconds
    ended = [value for value in seen if isinstance(value, telemetry.ToolEnded)]
    assert [(value.tool, value.seconds, value.error) for value in ended] == [
        (first.name, first.seconds, False),
        ("broken", second.seconds, True),
        ("unknown", None, True),
    ]
    assert {value.call for value in ended} == {seen[-1].call}  # that of the loop


def test_a_tool_that_was_abandoned_took_its_limit(client: Loops, verb: str) -> None:
    with Peer(*turns(verb, [("endless", "{}")], "Done.")) as peer:
        _, run = ran(client, verb, at(peer), tools=[endless], tool_timeout=LONG)
    (use,) = run.tool_uses
    assert use.error
    assert LONG * 0.9 <= use.seconds < SOON


def test_counters_sum_up() -> None:
    counters = telemetry.Counters()
    script = turns("run", [("slow", "{}"), ("broken", "{}")], "Done.")
    with Peer(*script) as peer, cnllm.Client(on_event=counters, retry=ONCE) as client:
        client.run(at(peer), "hi", tools=[slow, broken])
    assert (counters.tools, counters.tool_errors) == (2, 1)
    assert counters.tool_seconds >= LONG


def test_a_tool_is_a_span() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import StatusCode

    from cnllm.client.otel import Spans

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    script, spans_of = turns("run", [("slow", "{}"), ("broken", "{}")], "Done."), provider.get_tracer("test")
    with Peer(*script) as peer, cnllm.Client(on_event=Spans(spans_of), retry=ONCE) as client:
        client.run(at(peer), "hi", tools=[slow, broken])
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"chat m", "execute_tool slow", "execute_tool broken"}
    span, failed = spans["execute_tool slow"], spans["execute_tool broken"]
    assert span.attributes is not None
    assert span.start_time is not None
    assert span.end_time is not None
    assert dict(span.attributes) == {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "slow"}
    assert span.end_time - span.start_time >= LONG * 1e9
    assert failed.status.status_code is StatusCode.ERROR


def known(seconds: float | None) -> float:
    assert seconds is not None
    return seconds


# ── replies ──────────────────────────────────────────────────────────────────
def test_a_stream_has_the_time_to_its_first_token(client: Loops) -> None:
    with Peer(says("Hel", "lo")) as peer, client.stream(at(peer)) as events:
        for _ in events:
            pass
        reply = events.reply
    assert 0 < known(reply.timing.first) <= known(reply.timing.total) < SOON


def test_a_whole_reply_has_its_total_alone(client: Loops) -> None:
    with Peer(*turns("run", "Hello")) as peer:
        reply = client.call(at(peer))
    assert reply.timing.first is None
    assert 0 < known(reply.timing.total) < SOON
    assert reply.to_dict()["timing"] == {"first": None, "total": reply.timing.total}


def test_waiting_for_a_retry_counts(backend: Backend) -> None:
    busy = [b"HTTP/1.1 503 x\r\nContent-Length: 0\r\nRetry-After: 0.05\r\nConnection: close\r\n\r\n"]
    with Loops(backend, retry=cnllm.Retry(attempts=2)) as client, Peer(busy, *turns("run", "Hello")) as peer:
        assert known(client.call(at(peer)).timing.total) >= LONG


def test_an_interrupted_reply_has_a_timing() -> None:
    with (
        Peer([stream(delta("Hel"), end=False), Stay()]) as peer,
        cnllm.Client(retry=ONCE) as client,
        client.stream(at(peer), "hi") as events,
    ):
        next(iter(events))
        reply = events.stop()
    assert reply is not None
    assert reply.finish == "cut"
    assert 0 < known(reply.timing.first) <= known(reply.timing.total)


def test_replies_are_compared_by_what_they_hold() -> None:
    one, other = cnllm.Timing(first=0.1, total=0.2), cnllm.Timing()
    assert one == other
    assert hash(one) == hash(other)
    assert one != (0.1, 0.2)
    assert msgspec.json.decode(msgspec.json.encode(one), type=cnllm.Timing).total == 0.2
