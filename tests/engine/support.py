"""What the engine's tests share: endpoints as TOML, bytes of streams and bodies, a reading with all it gave."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import FrameType, TracebackType
from typing import Any, Self

from examples import examples
from hypothesis import strategies as st
from note_rules import check_notes

import cnllm
from cnllm import engine

Json = dict[str, Any]
times = examples

# ── endpoints ────────────────────────────────────────────────────────────────


def overlay_text(flags: str = "", more: str = "") -> str:
    """A registry file with the provider `home`, its flags, and the described model home/m."""
    return (
        '[providers.home]\ntitle = "A server at home"\nprotocol = "openai-chat"\n'
        f'base_url = "http://127.0.0.1:9/v1"\nkeys = []\n{flags}\n[models."home/m"]\n'
        f"limits = {{ context = 100_000 }}\n{more}\n"
    )


# ── bytes ────────────────────────────────────────────────────────────────────


def dumps(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode()


def frame(chunk: Any) -> bytes:
    """One event with this chunk (JSON data, or text and bytes as they are)."""
    data = chunk if isinstance(chunk, bytes) else chunk.encode() if isinstance(chunk, str) else dumps(chunk)
    return b"data: " + data + b"\n\n"


def sse(*chunks: Any, done: bool = True) -> bytes:
    return b"".join(map(frame, chunks)) + (frame("[DONE]") if done else b"")


def delta(**said: Any) -> Json:
    """A chunk with one choice that says this."""
    return {"choices": [{"index": 0, "delta": said}]}


def finish(reason: str = "stop", **said: Any) -> Json:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": reason}]}


def body(reason: str | None = "stop", **said: Any) -> bytes:
    message = {"role": "assistant", "content": None, **said}
    return dumps({"choices": [{"index": 0, "message": message, "finish_reason": reason}]})


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """`data` cut at these places."""
    places = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


cuts = st.lists(st.integers(0, 1 << 20), max_size=12)
"""Where to cut, taken by `pieces` modulo the length."""


# ── reading ──────────────────────────────────────────────────────────────────


@dataclass
class Outcome:
    """What a reading gave: events, and the reply or the error (whose reply, if any, is `reply`)."""

    events: list[Any]
    reply: cnllm.Reply | None = None
    error: cnllm.CnllmError | None = None
    ignored: list[Any] = field(default_factory=list)

    @property
    def said(self) -> cnllm.Reply:
        assert self.reply is not None
        return self.reply

    def of(self, kind: type) -> list[Any]:
        return [e for e in self.events if type(e) is kind]


def read(model: cnllm.Model, chunks: bytes | Sequence[bytes], **more: Any) -> Outcome:
    """Feed, end and close; also feed after the end."""
    parser = engine.StreamParser(model, **more)
    events: list[Any] = []
    for chunk in [chunks] if isinstance(chunks, bytes) else chunks:
        events += parser.feed(chunk)
    events += parser.end()
    outcome = Outcome(events, ignored=[*parser.feed(b"data: {}\n\n"), *parser.end()])
    try:
        outcome.reply = parser.close()
    except (cnllm.StreamCut, cnllm.EndpointError) as error:
        outcome.error, outcome.reply = error, error.reply
    if outcome.reply is not None:
        check_notes(outcome.reply.notes)
    return outcome


def delivered(events: Sequence[Any], kind: type[cnllm.TextDelta] | type[cnllm.ReasoningDelta]) -> str:
    """The deltas of a kind since the last restart, joined."""
    start = max((i for i, e in enumerate(events) if type(e) is cnllm.Restarted), default=-1)
    return "".join(e.text for e in events[start + 1 :] if isinstance(e, kind))


def check_honest(outcome: Outcome) -> None:
    """What holds of every reading, whatever was read."""
    events = outcome.events
    assert outcome.ignored == []
    assert [type(e) for e in events].count(cnllm.Finished) == 1
    assert type(events[-1]) is cnllm.Finished
    started: set[int] = set()
    for event in events:
        if type(event) is cnllm.Restarted:
            started.clear()  # whoever forgets what was delivered hears of it again
        elif type(event) is cnllm.ToolCallStart:
            assert event.name
            assert event.id
            assert event.index not in started
            started.add(event.index)
        elif type(event) is cnllm.ToolCallDelta:
            assert event.index in started
    reply = outcome.reply
    if reply is None:
        return
    check_notes(reply.notes)
    assert delivered(events, cnllm.TextDelta) == reply.text
    assert delivered(events, cnllm.ReasoningDelta) == reply.reasoning
    assert events[-1] == cnllm.Finished(reply.finish, reply.raw_finish)
    assert [e.call for e in outcome.of(cnllm.ToolCallEnd)] == reply.tool_calls
    for event in outcome.of(cnllm.BlockEnd):
        assert reply.message.parts[event.index] == event.part
    text = json.dumps(reply.to_dict(), allow_nan=False)
    text.encode()  # no lone surrogates
    assert reply.text == reply.message.text
    assert reply.reasoning == reply.message.reasoning
    assert reply.tool_calls == reply.message.tool_calls
    assert cnllm.Message.from_dict(json.loads(json.dumps(reply.message.to_dict()))) == reply.message
    if reply.finish in ("cut", "error"):
        assert reply.tool_calls == []
        assert outcome.error is not None


# ── work ─────────────────────────────────────────────────────────────────────


class Work:
    """Counts the work done inside cnllm: calls, and the length of every new string or list in a local or attribute."""

    def __init__(self) -> None:
        self.done = 0
        self._seen: dict[int, Any] = {}

    def __enter__(self) -> Self:
        sys.setprofile(self._look)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        sys.setprofile(None)
        self._seen.clear()

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        if "cnllm" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return
        self.done += 1
        me = frame.f_locals.get("self")
        names = (*getattr(me, "__dict__", ()), *getattr(type(me), "__slots__", ()))
        for value in (*frame.f_locals.values(), *(getattr(me, name, None) for name in names)):
            self._count(value)
            if type(value) is list:
                for item in value[-2:]:
                    self._count(item)

    def _count(self, value: Any) -> None:
        if type(value) in (bytes, str, list) and id(value) not in self._seen:
            self._seen[id(value)] = value  # kept, so that the next one has another id
            self.done += len(value)


# ── JSON ─────────────────────────────────────────────────────────────────────

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)
"""Any JSON value."""
