"""Both clients' loops behind one face, and scripts for a peer that calls tools."""

import functools
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from client.peer import DONE, Peer, call_delta, delta, reply, stream, texts, usage
from client.support import ONCE, SOON, Backend, Driver, at, counted, registry, written
from note_rules import check_notes

import cnllm

__all__ = [
    "ONCE",
    "SOON",
    "Backend",
    "Loops",
    "Peer",
    "Running",
    "asks",
    "asks_whole",
    "at",
    "counted",
    "legal",
    "ran",
    "registry",
    "results",
    "says",
    "says_whole",
    "sent",
    "turns",
    "written",
]
Call = tuple[str, str] | tuple[str, str, str]  # name, arguments, and an id


class Loops(Driver):
    """`Client`, or `AsyncClient` on asyncio or trio, with the face of `Client`."""

    def run(self, model: str | cnllm.Model, messages: Any = "hi", **options: Any) -> Any:
        return self._run(functools.partial(self._client.run, model, messages, **options))

    def run_stream(self, model: str | cnllm.Model, messages: Any = "hi", **options: Any) -> "Running":
        return Running(self._client.run_stream(model, messages, **options), self._run, self._a)


class Running:
    """`Run` or `AsyncRun` with the face of `Run`."""

    def __init__(self, run: Any, call: Any, a: str) -> None:
        self.run, self._call, self._a = run, call, a

    def __enter__(self) -> Self:
        self._call(getattr(self.run, f"__{self._a}enter__"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(getattr(self.run, f"__{self._a}exit__"), kind, error, trace)

    def __iter__(self) -> Iterator[cnllm.Event]:
        events = aiter(self.run) if self._a else iter(self.run)
        while (event := self._call(_anext if self._a else _next, events)) is not None:
            yield event

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)


def _next(events: Any) -> Any:
    return next(events, None)


async def _anext(events: Any) -> Any:
    return await anext(events, None)


def ran(client: Loops, verb: str, model: Any, messages: Any = "hi", **options: Any) -> tuple[list[Any], Any]:
    """The events of a run to its end, and the run; of `run`, which raises, the run that it carries."""
    events: list[Any] = []
    if verb == "run":
        try:
            run = client.run(model, messages, **options)
        except cnllm.LoopStopped as stopped:
            run = stopped.run
    else:
        with client.run_stream(model, messages, **options) as running:
            events = list(running)
        run = running.run
    check_notes([*run.reply.notes, *(note for step in run.steps for note in step.notes)])
    return events, run


# ── what a peer says ─────────────────────────────────────────────────────────
def asks(*calls: Call, finish: str = "tool_calls", text: str = "") -> list[bytes]:
    """A stream with these calls."""
    pieces = [
        call_delta(n, arguments, id=rest[0] if rest else f"c_{name}_{n}", name=name)
        for n, (name, arguments, *rest) in enumerate(calls)
    ]
    return [stream(*texts(*([text] if text else [])), *pieces, delta(finish=finish), usage(), DONE)]


def asks_whole(*calls: Call, finish: str = "tool_calls", text: str | None = None) -> list[bytes]:
    """The same as one body."""
    made = [
        {
            "id": rest[0] if rest else f"c_{name}_{n}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for n, (name, arguments, *rest) in enumerate(calls)
    ]
    return [reply(text, finish=finish, tool_calls=made)]  # type: ignore[arg-type]


def says(*pieces: str, finish: str = "stop") -> list[bytes]:
    return [stream(*texts(*pieces), delta(finish=finish), usage(), DONE)]


def says_whole(text: str, finish: str = "stop") -> list[bytes]:
    return [reply(text, finish=finish)]


def turns(verb: str, *steps: Sequence[Call] | str) -> list[list[bytes]]:
    """A script for each step: calls, or words."""
    calls, words = (asks_whole, says_whole) if verb == "run" else (asks, says)
    return [words(step) if isinstance(step, str) else calls(*step) for step in steps]


# ── what a peer was sent ─────────────────────────────────────────────────────
def sent(peer: Peer, index: int = -1) -> list[dict[str, Any]]:
    """The messages of a request, which must be a legal conversation."""
    messages: list[dict[str, Any]] = peer.received[index].json()["messages"]
    legal(messages)
    return messages


def results(peer: Peer, index: int = -1) -> dict[str, str]:
    """What a request tells of its calls: id → text."""
    return {m["tool_call_id"]: m["content"] for m in sent(peer, index) if m["role"] == "tool"}


def legal(messages: list[Any]) -> None:
    """Every call has one result, right after its turn; ids are never used twice."""
    messages = [m.to_dict() if isinstance(m, cnllm.Message) else m for m in messages]
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert waiting == []
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        assert seen.isdisjoint(waiting)
        assert len(set(waiting)) == len(waiting)
        seen |= set(waiting)
        if message["role"] == "assistant":
            assert message.get("content") or waiting
    assert waiting == []
