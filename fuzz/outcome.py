"""The outcome of reading bytes, and what has to be true of it for any bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

import cnllm
from cnllm import EndpointError, Message, Reply, StreamCut, ToolCall, engine
from cnllm.registry.model import Model

from .models import TOOLS, request

__all__ = ["Outcome", "believed", "outcome", "sound"]


@dataclass(frozen=True)
class Outcome:
    """The events, the reply (an error's where one was raised), and the error: its type and words."""

    events: list[Any]
    reply: Reply | None
    error: tuple[str, str] | None

    @property
    def whole(self) -> bool:
        """Whether it is said to be all there was."""
        return self.error is None and self.reply is not None and self.reply.finish not in ("cut", "error")


def outcome(
    model: Model, pieces: Iterable[bytes], *, mode: int, status: int, headers: dict[str, str], keep_raw: bool = False
) -> Outcome:
    """Read bytes in these pieces. Nothing but the two errors of the contract may come out of it."""
    plan = request(model, mode)
    tools = TOOLS if mode % 8 >= 4 else None
    parser = engine.StreamParser(model, tools, plan=plan, status=status, headers=headers, keep_raw=keep_raw)
    events: list[Any] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.end()
    assert parser.end() == []
    assert parser.feed(b"data: {}\n\n") == []
    try:
        return Outcome(events, parser.close(), None)
    except (StreamCut, EndpointError) as error:
        return Outcome(events, error.reply, (type(error).__name__, error.message))


def _since_restart(events: list[Any]) -> list[Any]:
    restarts = [i for i, event in enumerate(events) if isinstance(event, cnllm.Restarted)]
    return events[restarts[-1] + 1 :] if restarts else events


def _joined(events: list[Any], kind: type[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def sound(model: Model, found: Outcome) -> None:
    """Check that events and reply say the same, that nothing unusable is offered, and that all can be written."""
    reply, events = found.reply, found.events
    ends = [event for event in events if isinstance(event, cnllm.Finished)]
    since = _since_restart(events)
    if reply is None:
        assert found.error is not None
        assert not _joined(since, cnllm.TextDelta) + _joined(since, cnllm.ReasoningDelta), "what arrived is not told"
        return
    assert ends == [events[-1]] == [cnllm.Finished(reply.finish, reply.raw_finish)]
    assert _joined(since, cnllm.TextDelta) == reply.text, "deltas are not the text"
    assert _joined(since, cnllm.ReasoningDelta) == reply.reasoning, "deltas are not the reasoning"
    assert all(event.name for event in events if isinstance(event, cnllm.ToolCallStart)), "a start without a name"
    _calls(reply, since)
    _message(model, reply, since)
    usages = [event.usage for event in events if isinstance(event, cnllm.UsageSeen)]
    assert (usages or [cnllm.Usage()])[-1] == reply.usage
    for event in events:
        msgspec.json.encode(event)  # a program may write them as they come
    msgspec.json.encode(reply.to_dict())
    if found.error is None:
        assert reply.finish != "error"
    elif found.error[0] != "EmptyReply":  # which may have been said to be over in a word of another wire
        assert (found.error[0] == "StreamCut") == (reply.finish == "cut"), found.error


def _calls(reply: Reply, since: list[Any]) -> None:
    for call in reply.tool_calls:
        assert call.name, "a call without a name is offered"
        assert (call.arguments is None) == (call.problem is not None), call
        assert call.arguments is None or type(call.arguments) is dict
    assert all(call.arguments is None for call in reply.incomplete)
    if reply.finish in ("cut", "error"):
        assert reply.tool_calls == [], "calls of a reply that is not whole are offered"
    ended = [event for event in since if isinstance(event, cnllm.ToolCallEnd)]
    assert [event.call for event in ended] == reply.tool_calls
    starts = {event.index: event for event in since if isinstance(event, cnllm.ToolCallStart)}
    assert len(starts) == sum(isinstance(event, cnllm.ToolCallStart) for event in since), "a call starts twice"
    for event in ended:
        start = starts[event.index]
        assert (start.id, start.name) == (event.call.id, event.call.name)
        told = "".join(e.text for e in since if isinstance(e, cnllm.ToolCallDelta) and e.index == event.index)
        assert told == event.call.raw, "deltas are not the arguments"


def _message(model: Model, reply: Reply, since: list[Any]) -> None:
    message = reply.message
    parts = list(message.parts)
    assert "".join(p.text for p in parts if isinstance(p, cnllm.Text)) == reply.text
    assert "".join(p.text for p in parts if isinstance(p, cnllm.Reasoning)) == reply.reasoning
    assert [p for p in parts if isinstance(p, ToolCall)] == reply.tool_calls
    for event in since:
        if isinstance(event, cnllm.BlockEnd):
            assert _unmarked(parts[event.index]) == _unmarked(event.part)
    again = msgspec.json.decode(msgspec.json.encode(message.to_dict()))
    assert Message.from_dict(again) == message, "a message does not survive being written down"
    history = [Message("user", [cnllm.Text("hi")]), message, Message("user", [cnllm.Text("and now?")])]
    msgspec.json.decode(engine.build_request(model, history, tools=TOOLS).content)


def _unmarked(part: Any) -> Any:
    """Return the notes without those that may come late: on the whole answer, and on signatures."""
    if isinstance(part, cnllm.Text):
        return part.text
    return part.text if isinstance(part, cnllm.Reasoning) else part


# What says on any wire that a reply is over. `[DONE]` counts for those whose flags let it.
_ENDS = {
    *("finish_reason", "stop_reason", "finishReason", "native_finish_reason", "done_reason"),
    *("response.completed", "response.incomplete", "response.failed", "message_stop", "status", "blockReason"),
}


def believed(model: Model, body: bytes) -> bool:
    """Whether anything in these bytes could be the end of a stream. This looks much less closely than a wire.

    Escapes could hide a word: where there are any, yes.
    """
    flags = model.flags.finish or {}
    words = [word.encode() for word in (*_ENDS, *flags)]
    return b"[DONE]" in body or rb"\u" in body or any(word in body for word in words)
