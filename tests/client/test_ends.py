"""How a stream ends, and for what nobody waits."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cases import each

import cnllm
from cnllm import Timeouts
from cnllm.engine.run import response_body

from .peer import DONE, Again, Close, Pause, Peer, Reset, Stay, Step, Wait, delta, head, piece, stream, texts, usage
from .support import SOON, Driver, at, drained, folds

TEXT = texts("The sky", " is blue.")
STOP = delta(finish="stop")


@contextmanager
def lasting(least: float, most: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert least <= time.monotonic() - began < most


@pytest.fixture
def long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for usage takes a minute: far more than a busy machine loses, so that a test notices it."""
    monkeypatch.setattr(response_body, "_USAGE_WAIT", 60.0)


@pytest.mark.usefixtures("long_wait")
@each("after", [[], [usage()]], ids=["", "usage"])
def test_done_ends_a_stream_though_the_socket_stays_open(client: Driver, after: list[bytes]) -> None:
    with Peer([stream(*TEXT, STOP, *after, DONE, end=False), Stay()]) as peer:
        with lasting(0, 30):
            events, got = drained(client.stream(at(peer)))
        assert peer.gone.wait(SOON)
    assert (got.text, got.finish, got.usage.total) == ("The sky is blue.", "stop", 7 if after else None)
    folds(events, got)


@pytest.mark.usefixtures("long_wait")
def test_done_ends_a_stream_though_more_is_said(client: Driver) -> None:
    with Peer([stream(*TEXT, STOP, DONE, end=False), Again(piece(delta("more")), every=0.001)]) as peer:
        with lasting(0, 30):
            events, got = drained(client.stream(at(peer)))
        assert peer.gone.wait(SOON)
    assert got.text == "The sky is blue."
    folds(events, got)


AFTER: dict[str, list[Step]] = {
    "closed": [Close()],
    "reset": [Reset()],
    "no chunk": [b"nonsense\r\n\r\n", Close()],
    "half a chunk": [b"ffff\r\ndata", Close()],
    "many chunks": [piece(b": x\n\n") * 500, Stay()],
    "the end, and more": [piece(b""), b"HTTP/1.1 408 Timeout\r\n\r\n", Close()],
}


@pytest.mark.usefixtures("long_wait")
@each("after", AFTER)
def test_what_becomes_of_the_connection_after_done_is_no_matter(client: Driver, after: str) -> None:
    script: list[Step] = [stream(*TEXT, STOP, usage(), DONE, end=False), *AFTER[after]]
    with Peer(script, script) as peer:
        for _ in range(2):
            with lasting(0, 30):
                events, got = drained(client.stream(at(peer)))
            assert (got.text, got.finish, got.usage.total) == ("The sky is blue.", "stop", 7)
            folds(events, got)


def test_usage_that_comes_late_is_read(client: Driver) -> None:
    with Peer([stream(*TEXT, STOP, end=False), Pause(0.3), piece(usage() + DONE), Stay()]) as peer:
        events, got = drained(client.stream(at(peer)))
    assert (got.usage.input, got.usage.output, got.finish) == (3, 4, "stop")
    assert cnllm.UsageSeen(got.usage) in events
    folds(events, got)


WAYS: dict[str, list[Step]] = {"silence": [Stay()], "comments": [Again(piece(b": still here\n\n"))]}


@each("way", WAYS)
def test_a_finish_without_done_is_waited_on_for_two_seconds(
    client: Driver, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    least, most = 1.5, 20.0
    if way == "comments":
        least, most = 0.2, 20.0
        monkeypatch.setattr(response_body, "_USAGE_WAIT", 0.3)
    with Peer([stream(*TEXT, STOP, end=False), *WAYS[way]]) as peer:
        with lasting(least, most):
            events, got = drained(client.stream(at(peer), timeout=Timeouts(idle=30, progress=30)))
        assert peer.gone.wait(SOON)
    assert (got.text, got.finish, got.usage) == ("The sky is blue.", "stop", cnllm.Usage())
    folds(events, got)


@pytest.mark.usefixtures("long_wait")
@each("way", ["closed", "ended", "without length", "reset"])
def test_a_finish_is_proof_enough_however_the_connection_ends(client: Driver, way: str) -> None:
    read = threading.Event()
    scripts: dict[str, list[Step]] = {
        "closed": [stream(*TEXT, STOP, end=False), Close()],
        "ended": [stream(*TEXT, STOP)],
        "without length": [head() + b"".join([*TEXT, STOP]), Close()],
        "reset": [stream(*TEXT, STOP, end=False), Wait(read), Reset()],
    }
    events = []
    with Peer(scripts[way]) as peer, lasting(0, 30), client.stream(at(peer)) as streamed:
        for event in streamed:
            events.append(event)
            read.set()
    assert (streamed.reply.text, streamed.reply.finish) == ("The sky is blue.", "stop")
    folds(events, streamed.reply)


def test_events_are_delivered_as_they_come(client: Driver) -> None:
    """Each piece is sent only after the one before it was delivered."""
    gates = [threading.Event() for _ in range(5)]
    script: list[Step] = [stream(end=False)]
    for number, gate in enumerate(gates):
        script += [Wait(gate), piece(delta(f"{number} "))]
    gates[0].set()
    seen = []
    with Peer([*script, piece(STOP + DONE), piece(b"")]) as peer, client.stream(at(peer)) as streamed:
        for event in streamed:
            seen.append(event)
            if isinstance(event, cnllm.TextDelta) and len(seen) < len(gates):
                gates[len(seen)].set()
    assert [e.text for e in seen if isinstance(e, cnllm.TextDelta)] == [f"{n} " for n in range(5)]


def test_a_reader_that_takes_its_time_loses_nothing(client: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it came long before the two seconds were over; that the reader was slow is nobody's fault."""
    monkeypatch.setattr(response_body, "_USAGE_WAIT", 0.2)
    taken = threading.Event()
    script: list[Step] = [stream(delta("The sky", "stop"), end=False), Wait(taken), piece(usage() + DONE), piece(b"")]
    with Peer(script) as peer, client.stream(at(peer)) as streamed:
        for event in streamed:
            if isinstance(event, cnllm.TextDelta):
                taken.set()
                time.sleep(0.5)
    assert (streamed.reply.usage.total, streamed.reply.text) == (7, "The sky")
