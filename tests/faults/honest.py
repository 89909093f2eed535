"""What an outcome may be: whole, cut with everything that arrived, or a typed error. Nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from client.support import folds

import cnllm
from cnllm import engine

__all__ = ["came", "closed", "cut"]


def cut(error: cnllm.CnllmError, events: Sequence[Any], whole: cnllm.Reply, place: object = "") -> cnllm.Reply:
    """What a stream that was cut brought: told as that, a beginning of the whole, no call that could be executed."""
    got = error.reply
    assert got is not None, place
    assert (got.finish, got.tool_calls, got.message.tool_calls) == ("cut", [], []), place
    assert whole.text.startswith(got.text), place
    assert whole.reasoning.startswith(got.reasoning), place
    assert all(call.arguments is None for call in got.incomplete), place
    for call, full in zip(got.incomplete, whole.tool_calls, strict=False):
        assert full.raw.startswith(call.raw), place
    assert not any(isinstance(event, cnllm.ToolCallEnd) for event in events), place
    folds(list(events), got)
    return got


def closed(parser: engine.StreamParser, events: list[Any]) -> tuple[cnllm.Reply | None, cnllm.CnllmError | None]:
    """The end of the input: what it came to."""
    events += parser.end()
    try:
        return parser.close(), None
    except cnllm.CnllmError as error:
        return error.reply, error


def came(reply: cnllm.Reply) -> tuple[str, str, list[tuple[str, Any]], str]:
    """What a reply says, for a comparison."""
    return reply.reasoning, reply.text, [(call.name, call.arguments) for call in reply.tool_calls], reply.finish
