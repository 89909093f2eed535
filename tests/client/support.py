"""What the client's tests share: both clients behind one face, a registry, and readers of events."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from anyio.from_thread import start_blocking_portal
from note_rules import check_notes

import cnllm
from cnllm import AsyncClient, Client, Model, Registry, Reply, Retry
from cnllm.registry.read import builtin_path, read

from .peer import Peer

Backend = Literal["sync", "asyncio", "trio"]
ONCE = Retry(attempts=1)
QUICK = Retry(attempts=3, base=0.01)
SOON = 15.0  # seconds that a thread on the other side may take


class Driver:
    """`Client`, or `AsyncClient` on asyncio or trio, with the face of `Client`."""

    def __init__(self, backend: Backend, **options: Any) -> None:
        self._stack = contextlib.ExitStack()
        self._client: Any
        self._run: Callable[..., Any]
        options = {"registry": registry(), **options}
        if backend == "sync":
            self._client, self._run, self._a = Client(**options), _at_once, ""
        else:
            portal = self._stack.enter_context(start_blocking_portal(backend))
            self._client, self._run, self._a = AsyncClient(**options), portal.call, "a"

    def call(self, model: str | Model, messages: Any = "hi", **options: Any) -> Reply:
        found: Reply = self._run(functools.partial(self._client.call, model, messages, **options))
        check_notes(found.notes)
        return found

    def stream(self, model: str | Model, messages: Any = "hi", **options: Any) -> "Streamed":
        return Streamed(self._client.stream(model, messages, **options), self._run, self._a)

    def plan(self, model: str | Model, messages: Any = "hi", **options: Any) -> cnllm.Plan:
        found: cnllm.Plan = self._client.plan(model, messages, **options)
        check_notes(found.notes)
        return found

    def warm(self, model: str | Model) -> None:
        self._run(self._client.warm, model)

    def close(self) -> None:
        self._run(self._client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            self.close()


class Streamed:
    """`Stream` or `AsyncStream` with the face of `Stream`."""

    def __init__(self, stream: Any, run: Callable[..., Any], a: str) -> None:
        self._stream, self._run, self._a = stream, run, a

    def __enter__(self) -> Self:
        self._run(getattr(self._stream, f"__{self._a}enter__"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(getattr(self._stream, f"__{self._a}exit__"), kind, error, trace)

    def __iter__(self) -> Iterator[cnllm.Event]:
        step = _next if not self._a else _anext
        events = iter(self._stream) if not self._a else aiter(self._stream)
        while (event := self._run(step, events)) is not None:
            yield event

    @property
    def reply(self) -> Reply:
        found: Reply = self._stream.reply
        return found


def _at_once(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _next(events: Any) -> Any:
    return next(events, None)


async def _anext(events: Any) -> Any:
    return await anext(events, None)


# ── registry ─────────────────────────────────────────────────────────────────
@functools.cache
def registry() -> Registry:
    """The built-in one, and nothing of the user's."""
    return Registry([read(builtin_path(), builtin=True)])


def at(peer: Peer, name: str = "m") -> Model:
    """A model of an undescribed endpoint, which is the peer."""
    return registry().resolve(f"openai-compatible/{name}", base_url=peer.url)


def overlay(folder: Path, base_url: str, flags: str = "") -> Path:
    """A file that declares `home/m` with these flags."""
    path = folder / "overlay.toml"
    path.write_text(
        f'[providers.home]\nprotocol = "openai-chat"\nbase_url = "{base_url}"\nkeys = ["HOME_TOKEN"]\n{flags}\n'
        '[models."home/m"]\n',
        encoding="utf-8",
    )
    return path


def home(folder: Path, peer: Peer, flags: str = "") -> Model:
    """`home/m`, which is the peer, with these flags."""
    return Registry.load(overlay(folder, peer.url, flags)).resolve("home/m")


SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    },
}


# ── events ───────────────────────────────────────────────────────────────────
def drained(
    stream: Streamed, into: list[Any] | None = None, read: threading.Event | None = None, until: int = 1
) -> tuple[list[Any], Reply]:
    """Every event and the reply; what came before an error is in the list given. `read` is set when that many came."""
    events = [] if into is None else into
    with stream as running:
        for event in running:
            events.append(event)
            if read is not None and len(events) == until:
                read.set()
    check_notes(running.reply.notes)
    return events, running.reply


def ask(client: Driver, verb: str, model: Model, **options: Any) -> Reply:
    """The reply of either verb."""
    return client.call(model, **options) if verb == "call" else drained(client.stream(model, **options))[1]


def written(events: Iterable[Any], kind: type[cnllm.TextDelta] | type[cnllm.ReasoningDelta] = cnllm.TextDelta) -> str:
    """What a reader has in front of him: everything since the last restart."""
    text = ""
    for event in events:
        if isinstance(event, cnllm.Restarted):
            text = ""
        elif isinstance(event, kind):
            text += event.text
    return text


def folds(events: list[Any], reply: Reply) -> None:
    """The events tell the same story as the reply."""
    assert written(events) == reply.text
    assert written(events, cnllm.ReasoningDelta) == reply.reasoning
    ends = [event for event in events if isinstance(event, cnllm.Finished)]
    assert ends == [events[-1]] == [cnllm.Finished(reply.finish, reply.raw_finish)]
    restarts = [i for i, event in enumerate(events) if isinstance(event, cnllm.Restarted)]
    since = events[restarts[-1] :] if restarts else events
    assert all(event.name for event in events if isinstance(event, cnllm.ToolCallStart))
    ended = [event.call for event in since if isinstance(event, cnllm.ToolCallEnd)]
    assert ended == reply.tool_calls
    for index, call in enumerate(reply.tool_calls):
        raw = "".join(e.text for e in since if isinstance(e, cnllm.ToolCallDelta) and e.index == index)
        assert raw == call.raw


def counted(events: Iterable[Any], kind: type[Any]) -> int:
    return sum(isinstance(event, kind) for event in events)
