"""Read an answer: whether it is a reply, a refusal, or says nothing about the question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cnllm import errors
from cnllm.engine.decode.parser import parse_response
from cnllm.probe.exchange import Answer
from cnllm.registry.model import Model

__all__ = ["read_answer", "read_failure"]

_PROBLEMS: tuple[tuple[type[errors.CnllmError], str], ...] = (
    (errors.BadKey, "key"),
    (errors.QuotaExceeded, "quota"),
    (errors.RateLimited, "rate"),
    (errors.Overloaded, "busy"),
)
_REFUSALS = (errors.BadRequest, errors.ContextTooLong, errors.ReplayMissing, errors.ContentFiltered)


def read_failure(error: errors.CnllmError) -> Answer:
    """Return the answer for a request that got none."""
    return Answer(kind="none", problem="network", message=error.message)


def read_answer(
    model: Model, status: int, headers: Mapping[str, str], content: bytes, *, abandoned: bool = False
) -> Answer:
    """Return the answer in the bytes of a response. Never raises for what an endpoint sends."""
    kept = {name: value[:200] for name, value in headers.items()}
    if 300 <= status < 400:
        return Answer(kind="none", status=status, problem="redirect", message="a redirect", headers=kept)
    streamed = "event-stream" in headers.get("content-type", "") or content.lstrip()[:6] in (b"data: ", b"event:")
    data, done = _decoded(content, streamed)
    base: dict[str, Any] = {"status": status, "data": data, "headers": kept, "streamed": streamed, "done": done}
    try:
        reply = parse_response(model, status, headers, content)
    except errors.EndpointError as error:
        return _error(error, base)
    except errors.StreamCut as error:
        if abandoned:
            return Answer(kind="passed", reply=error.reply, abandoned=True, **base)
        return Answer(kind="none", problem="network", message="the reply broke off", reply=error.reply, **base)
    except errors.CnllmError as error:
        return Answer(kind="none", problem="form", message=error.message, **base)
    return Answer(kind="passed", reply=reply, abandoned=abandoned, **base)


def _error(error: errors.EndpointError, base: dict[str, Any]) -> Answer:
    status = int(base["status"])
    if isinstance(error, errors.EmptyReply):
        if error.reply is not None and (error.reply.raw_finish or error.reply.usage.input is not None):
            return Answer(kind="passed", reply=error.reply, **base)
        return Answer(kind="none", problem="form", message="an answer without a reply", **base)
    if isinstance(error, _REFUSALS):
        return Answer(kind="refused", message=error.message, **base)
    problem = next((word for kind, word in _PROBLEMS if isinstance(error, kind)), "")
    if not problem:
        if 400 <= status < 500 and status not in (408, 409, 425, 429):
            return Answer(kind="refused", message=error.message, **base)
        problem = "failed" if status >= 500 else "form" if base["data"] is not None else "page"
    return Answer(kind="none", problem=problem, message=error.message, **base)


def _decoded(content: bytes, streamed: bool) -> tuple[Any, bool]:
    """Return the decoded body, or the chunks of a stream and whether its closing marker came."""
    if not streamed:
        try:
            return json.loads(content), False
        except (ValueError, RecursionError):
            return None, False
    chunks: list[Any] = []
    done = False
    for line in content.splitlines():
        if not line.startswith(b"data:"):
            continue
        piece = line[5:].strip()
        if piece == b"[DONE]":
            done = True
            continue
        try:
            chunks.append(json.loads(piece))
        except (ValueError, RecursionError):
            continue
    return chunks, done
