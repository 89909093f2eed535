"""`on_event`, the loggers, counters and spans: what happens is told, once, in order, without secrets."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from cases import each
from client.peer import JSON, Peer, Reset, Script, answer, chunked, delta, refused, reply, said, stream, whole
from client.support import Backend, Driver, at, drained

import cnllm
from cnllm import Retry
from cnllm.client import telemetry

from .canaries import KEY, clean

QUICK = Retry(attempts=2, base=0.001, cap=0.001)
STREAM: Script = [stream(*said("The sky ", "is blue."))]
CUT: Script = [chunked(delta("The sky "), end=False), Reset()]


# httpx leaves its own generators to the garbage collector where a body is not read to its end; trio remarks on it.
_QUIET = pytest.mark.filterwarnings(
    "ignore:Async generator 'http:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(params=["sync", "asyncio", pytest.param("trio", marks=_QUIET)])
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    return chosen


def kinds(seen: list[Any]) -> list[str]:
    return [type(value).__name__ for value in seen]


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_the_events_of_a_call_tell_its_course(backend: Backend, verb: str) -> None:
    seen: list[Any] = []
    with Peer([reply()] if verb == "call" else STREAM) as peer, Driver(backend, on_event=seen.append) as client:
        got = client.call(at(peer)) if verb == "call" else drained(client.stream(at(peer)))[1]
    assert kinds(seen) == ["RequestSent", "ResponseStarted", "CallEnded"]
    sent, begun, ended = seen
    assert (sent.model, sent.attempt, sent.stream) == ("openai-compatible/m", 1, verb == "stream")
    assert sent.host == "127.0.0.1"
    assert sent.size == len(peer.received[0].body)
    assert begun.status == 200
    assert (ended.finish, ended.error, ended.usage, ended.attempts) == ("stop", None, got.usage, 1)
    assert len({value.call for value in seen}) == 1
    for value in seen:
        assert "sky" not in repr(value)
        with pytest.raises(AttributeError):
            value.call = 0


def test_a_retry_says_why_and_an_error_ends_it(backend: Backend) -> None:
    seen: list[Any] = []
    with (
        Peer([refused(503, f"busy, {KEY}")]) as peer,
        Driver(backend, on_event=seen.append, retry=QUICK, api_key=KEY) as client,
        pytest.raises(cnllm.EndpointError),
    ):
        client.call(at(peer))
    assert kinds(seen) == [
        "RequestSent",
        "ResponseStarted",
        "RetryScheduled",
        "RequestSent",
        "ResponseStarted",
        "CallEnded",
    ]
    assert (seen[2].status, seen[2].why) == (503, "busy, [redacted]")
    assert (seen[-1].error, seen[-1].status, seen[-1].attempts) == (seen[2].error, 503, 2)
    clean(*map(repr, seen))


def test_a_cut_and_its_recovery(backend: Backend) -> None:
    seen: list[Any] = []
    with Peer(CUT, [reply()]) as peer, Driver(backend, on_event=seen.append, retry=QUICK) as client:
        drained(client.stream(at(peer), if_cut="again-whole"))
        assert kinds(seen) == [
            "RequestSent",
            "ResponseStarted",
            "ReplyCut",
            "RequestSent",
            "ResponseStarted",
            "Recovered",
            "CallEnded",
        ]
    seen.clear()
    with (
        Peer(CUT) as peer,
        Driver(backend, on_event=seen.append, retry=QUICK) as client,
        pytest.raises(cnllm.StreamCut),
    ):
        drained(client.stream(at(peer)))
    assert kinds(seen) == ["RequestSent", "ResponseStarted", "ReplyCut", "CallEnded"]
    assert seen[-1].error == "StreamCut"


def test_a_stream_that_is_left(backend: Backend) -> None:
    seen: list[Any] = []
    with Peer(STREAM) as peer, Driver(backend, on_event=seen.append) as client, client.stream(at(peer)) as events:
        next(iter(events))
    assert kinds(seen) == ["RequestSent", "ResponseStarted", "CallEnded"]
    assert (seen[-1].finish, seen[-1].error) == (None, None)


def test_what_it_raises_does_not_reach_the_call(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    def broken(value: Any) -> None:
        raise RuntimeError("no watcher today")

    with Peer([reply()]) as peer, Driver(backend, on_event=broken) as client:
        assert client.call(at(peer)).text == "The sky is blue."
    assert caplog.text.count("RuntimeError: no watcher today") == 3
    assert {record.name for record in caplog.records if record.levelno >= logging.ERROR} == {"cnllm.watch"}


async def _later(value: Any) -> None: ...


@each("wrong", [_later, 5, "print"])
def test_what_cannot_be_called_at_once_is_refused(wrong: Any) -> None:
    for kind in (cnllm.Client, cnllm.AsyncClient):
        with pytest.raises(TypeError, match="on_event"):
            kind(on_event=wrong)


def test_a_loop_its_leaks_and_its_repairs() -> None:
    """A call that was written as text, arguments inside strings, and a loop that is stopped."""
    counters, seen = telemetry.Counters(), []

    def both(value: Any) -> None:
        counters(value)
        seen.append(value)

    def look(where: list[str]) -> str:
        """Look."""
        return "nothing"

    written = '<tool_call>{"name": "look", "arguments": {"where": "[\\"up\\"]"}}</tool_call>'
    body = answer(200, whole(written), JSON)
    with Peer([body]) as peer, cnllm.Client(on_event=both) as client, pytest.raises(cnllm.LoopStopped):
        client.run(at(peer), "hi", tools=[look], max_steps=2, recover_text_calls="recover")
    ended = seen[-1]
    assert isinstance(ended, telemetry.LoopEnded)
    assert (ended.stopped, ended.steps, ended.calls, ended.usage.input) == ("max_steps", 2, 2, 6)
    assert (counters.calls, counters.requests, counters.leaks, counters.loops_stopped) == (2, 2, 2, 1)
    assert counters.repairs >= 2
    assert (counters.input, counters.output, counters.errors) == (6, 8, 0)
    assert "leaks=2" in repr(counters)


def test_a_loop_says_that_a_whole_call_replaced_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="cnllm.client")
    counters = telemetry.Counters()
    with (
        Peer(CUT, [reply()]) as peer,
        cnllm.Client(on_event=counters) as client,
        client.run_stream(at(peer), "hi", tools=[], if_cut="again-whole") as run,
    ):
        events = list(run)
    last = events[-1]
    assert isinstance(last, cnllm.Finished)
    assert last.run
    assert (run.fallback, last.run.fallback, counters.fallbacks, counters.recoveries) == (True, True, 1, 1)
    [line] = [record.getMessage() for record in caplog.records if "LoopEnded" in record.getMessage()]
    assert "fallback=True" in line


def test_an_async_loop_is_told_of_once(backend: Backend) -> None:
    if backend == "sync":
        return
    import anyio

    seen: list[Any] = []

    async def go(peer: Peer) -> None:
        async with cnllm.AsyncClient(on_event=seen.append) as client:
            await client.run(at(peer), "hi", tools=[])

    with Peer([reply()]) as peer:
        anyio.run(go, peer, backend=backend)
    assert kinds(seen) == ["RequestSent", "ResponseStarted", "CallEnded", "LoopEnded"]
    assert seen[-1].stopped == "done"


def test_loggers_tell_retries_and_no_content(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with Peer(CUT, [refused(503, KEY)], [reply()]) as peer, cnllm.Client(retry=QUICK, api_key=KEY) as client:
        for _ in client.stream(at(peer), "hi", if_cut="again-whole"):
            pass
        assert caplog.records == []  # nobody listens
        caplog.set_level(logging.INFO, "cnllm")
        peer.received.clear()
        for _ in client.stream(at(peer), "hi", if_cut="again-whole"):
            pass
        assert [r.getMessage().partition("(")[0] for r in caplog.records] == ["ReplyCut", "RetryScheduled", "Recovered"]
        caplog.set_level(logging.DEBUG, "cnllm")
        client.call(at(peer), "a prompt")
    assert "Ended(" in caplog.text
    clean(caplog.text)
    assert "a prompt" not in caplog.text
    assert capfd.readouterr() == ("", "")


def test_a_call_is_a_span_of_opentelemetry(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.trace")
    from opentelemetry import trace

    from cnllm.client.otel import Spans

    made: list[Any] = []

    class Span(trace.NonRecordingSpan):
        def __init__(self, name: str, kind: Any, attributes: dict[str, Any]) -> None:
            super().__init__(trace.INVALID_SPAN_CONTEXT)
            self.name, self.kind, self.said = name, kind, dict(attributes)
            self.events: list[str] = []
            self.status: Any = None
            self.ends = 0

        def set_attribute(self, key: str, value: Any) -> None:
            self.said[key] = value

        def add_event(self, name: str, attributes: Any = None, timestamp: Any = None) -> None:
            self.events.append(name)

        def set_status(self, status: Any, description: Any = None) -> None:
            self.status = status

        def end(self, end_time: Any = None) -> None:
            self.ends += 1

    class Tracer(trace.NoOpTracer):
        def start_span(self, name: str, *args: Any, **more: Any) -> Span:
            made.append(Span(name, more["kind"], more["attributes"]))
            return made[-1]  # type: ignore[no-any-return]

    spans = Spans(Tracer())
    with (
        Peer([refused(503, "busy")], [reply()], [refused(400, "no")]) as peer,
        cnllm.Client(on_event=spans, retry=QUICK, api_key=KEY) as client,
    ):
        client.call(at(peer), "hi")
        with pytest.raises(cnllm.EndpointError):
            client.call(at(peer), "hi")
    good, bad = made
    assert (good.name, good.kind, good.ends, bad.ends) == ("chat m", trace.SpanKind.CLIENT, 1, 1)
    assert good.events == ["cnllm.retrying"]
    assert good.said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai-compatible",
        "gen_ai.request.model": "m",
        "server.address": "127.0.0.1",
        "http.response.status_code": 200,
        "gen_ai.response.model": "m",
        "gen_ai.response.id": "r1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
    }
    assert bad.said["error.type"] == "BadRequest"
    assert bad.status.status_code is trace.StatusCode.ERROR
    assert spans._open == {}
    clean(*(str(span.said) for span in made))


def test_spans_by_the_global_tracer_do_nothing_unless_one_is_set() -> None:
    pytest.importorskip("opentelemetry")
    from cnllm.client.otel import Spans

    with Peer([reply()]) as peer, cnllm.Client(on_event=Spans()) as client:
        assert client.call(at(peer), "hi").finish == "stop"
