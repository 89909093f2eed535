"""Define what a probe sends and what it gets: a request, the answer to it, and how the answer is read."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Generator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from cnllm.engine.decode.framing import SseParser
from cnllm.engine.decode.parser import parse_response
from cnllm.errors import (
    BadKey,
    BadRequest,
    CnllmError,
    ContentFiltered,
    ContextTooLong,
    EmptyReply,
    EndpointError,
    Overloaded,
    QuotaExceeded,
    RateLimited,
    ReplayMissing,
    StreamCut,
)
from cnllm.registry.model import Model
from cnllm.types import Reply, Usage

__all__ = ["Ask", "Asking", "ProbeAnswer", "ProbeExchange", "RawResponse", "on_one_line", "read_answer", "reads_more"]


class Ask(Struct, frozen=True, kw_only=True):
    """A request of the probe.

    `why` says in a few words what differs from the control. `control`: the request is the control of other questions,
    so that one answer serves all. `most` is the number of bytes after which the probe hangs up. `path` replaces the
    path of the wire, for metadata; such a request has no body and the method GET. `keyless`: send no key. `joint` is a
    path whose value other requests may have beside their own: the question only asks whether the value is taken.
    """

    body: dict[str, Any] = {}
    why: str = ""
    stream: bool = False
    control: bool = False
    most: int | None = None
    path: str | None = None
    keyless: bool = False
    joint: str = ""

    @property
    def identity(self) -> str:
        """Return a digest by which the same request is found again."""
        data = (self.body, self.stream, self.most, self.path, self.keyless)
        return hashlib.blake2b(msgspec.json.encode(data), digest_size=16).hexdigest()


class RawResponse(Struct, frozen=True):
    """The bytes that came for a request. `abandoned`: the probe hung up. `error` is set where nothing came."""

    status: int = 0
    headers: Mapping[str, str] = {}
    content: bytes = b""
    abandoned: bool = False
    error: CnllmError | None = None


class ProbeAnswer(Struct, frozen=True, kw_only=True):
    """An answer, read.

    `refused`: the endpoint refused the request for what is in it. `message` is its own sentence where it refused or
    failed, `problem` a word for an answer that says nothing about the question: network, key, quota, rate, busy,
    failed, redirect, page, form, endless. `data` is the decoded body, or the list of the decoded chunks of a stream.
    `done`: the stream had its closing marker. `abandoned`: the probe hung up.
    """

    refused: bool = False
    status: int = 0
    message: str = ""
    problem: str = ""
    reply: Reply | None = None
    data: Any = None
    headers: dict[str, str] = {}
    streamed: bool = False
    done: bool = False
    abandoned: bool = False

    @property
    def passed(self) -> bool:
        """Whether the endpoint took the request."""
        return not self.refused and not self.problem

    @property
    def is_whole(self) -> bool:
        """Whether the endpoint took the request, and its reply came to its end."""
        return self.passed and self.reply is not None and not self.abandoned

    @property
    def text(self) -> str:
        """Return the text of the reply, "" without one."""
        return self.reply.text if self.reply is not None else ""

    @property
    def reasoning(self) -> str:
        """Return the reasoning of the reply, "" without one."""
        return self.reply.reasoning if self.reply is not None else ""

    @property
    def usage(self) -> Usage:
        """Return the token counts of the reply, all unknown without one."""
        return self.reply.usage if self.reply is not None else Usage()

    @property
    def calls(self) -> list[str]:
        """Return the names of the tools that the reply calls on the wire, those cut off too."""
        if self.reply is None:
            return []
        return [c.name for c in (*self.reply.tool_calls, *self.reply.incomplete) if c.via == "wire"]


T = TypeVar("T")
Asking = Generator[Ask, ProbeAnswer, T]
"""It yields requests, receives their answers, and returns what they show."""


class ProbeExchange(Struct, frozen=True):
    """A request and its answer; `number` counts the exchanges of a probe from 1."""

    number: int
    ask: Ask
    answer: ProbeAnswer


def reads_more(answer: ProbeAnswer, control: ProbeAnswer, least: int) -> bool:
    """Whether the endpoint counted at least so many tokens of input more than for the control."""
    more, less = answer.usage.input, control.usage.input
    return more is not None and less is not None and more - less >= least


def on_one_line(text: str, most: int) -> str:
    """Return an endpoint's words on one line of so many characters, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


# ── reading ──────────────────────────────────────────────────────────────────
_PROBLEMS: tuple[tuple[type[CnllmError], str], ...] = (
    *((kind, "") for kind in (BadRequest, ContextTooLong, ReplayMissing, ContentFiltered)),
    (BadKey, "key"),
    (QuotaExceeded, "quota"),
    (RateLimited, "rate"),
    (Overloaded, "busy"),
)
"""The words for errors, "" for a refusal of this very request."""


def read_answer(model: Model, response: RawResponse) -> ProbeAnswer:
    """Return the answer in the bytes of a response. Never raises for what an endpoint sends."""
    if response.error is not None:
        return ProbeAnswer(problem="network", message=response.error.message)
    status, headers, content, abandoned = response.status, response.headers, response.content, response.abandoned
    head = {name: value[:200] for name, value in headers.items()}
    if 300 <= status < 400:
        return ProbeAnswer(status=status, problem="redirect", message="a redirect", headers=head)
    streamed = "event-stream" in headers.get("content-type", "") or content.lstrip()[:6] in (b"data: ", b"event:")
    data, done = _decode_content(content, streamed=streamed)
    base: dict[str, Any] = {"status": status, "data": data, "headers": head, "streamed": streamed, "done": done}
    try:
        return ProbeAnswer(reply=parse_response(model, status, headers, content), abandoned=abandoned, **base)
    except EndpointError as error:
        return _error(error, base)
    except StreamCut as error:
        if abandoned or (error.reply is not None and error.reply.raw_finish):  # it ended with a word that nobody knows
            return ProbeAnswer(reply=error.reply, abandoned=abandoned, **base)
        return ProbeAnswer(problem="network", message="the reply broke off", reply=error.reply, **base)
    except CnllmError as error:
        return ProbeAnswer(problem="form", message=error.message, **base)


def _error(error: EndpointError, base: dict[str, Any]) -> ProbeAnswer:
    status = int(base["status"])
    if isinstance(error, EmptyReply):
        if error.reply is not None and (error.reply.raw_finish or error.reply.usage.input is not None):
            return ProbeAnswer(reply=error.reply, **base)
        return ProbeAnswer(problem="form", message="an answer without a reply", **base)
    problem = next((word for kind, word in _PROBLEMS if isinstance(error, kind)), None)
    if problem is None:
        is_refusal = 400 <= status < 500 and status not in (408, 409, 425, 429)
        problem = "" if is_refusal else "failed" if status >= 500 else "form" if base["data"] is not None else "page"
    return ProbeAnswer(refused=not problem, problem=problem, message=error.message, **base)


def _decode_content(content: bytes, *, streamed: bool) -> tuple[Any, bool]:
    """Return the decoded body, or the chunks of a stream and whether its closing marker came."""
    if not streamed:
        try:
            return json.loads(content), False
        except (ValueError, RecursionError):
            return None, False
    chunks: list[Any] = []
    done = False
    for piece in SseParser().feed(content + b"\n\n"):
        if piece.strip() == b"[DONE]":
            done = True
            continue
        with contextlib.suppress(ValueError, RecursionError):
            chunks.append(json.loads(piece))
    return chunks, done
