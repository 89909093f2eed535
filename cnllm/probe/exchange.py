"""Define what a probe sends and what it gets: a request, the answer to it, and the two together."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.types import Reply

__all__ = ["Answer", "Ask", "Exchange", "Kind"]

Kind = Literal["passed", "refused", "none"]
"""What an answer says: a reply, a refusal of this very request, or nothing (429, 5xx, network, no key)."""


class Ask(Struct, frozen=True, kw_only=True):
    """A request of the probe.

    `why` says in a few words what differs from the control. `control`: the request is the control of other questions,
    so that one answer serves all. `most` is the number of bytes after which the probe hangs up. `path` replaces the
    path of the wire, for metadata; such a request has no body and the method GET. `keyless`: send no key. `place`
    chooses another address and header for the key, before they are known.
    """

    body: dict[str, Any] | None = None
    why: str = ""
    stream: bool = False
    control: bool = False
    most: int | None = None
    path: str | None = None
    keyless: bool = False
    place: tuple[str, str] | None = None

    @property
    def identity(self) -> str:
        """Return a digest by which the same request is found again."""
        data = (self.body, self.stream, self.most, self.path, self.keyless, self.place)
        return hashlib.blake2b(msgspec.json.encode(data), digest_size=16).hexdigest()


class Answer(Struct, frozen=True, kw_only=True):
    """An answer, read.

    `message` is the endpoint's own sentence where it refused or failed, `problem` a word for an answer that says
    nothing about the question: network, key, quota, rate, busy, redirect, page, form. `data` is the decoded body, or
    the list of the decoded chunks of a stream. `done`: the stream had its closing marker. `abandoned`: the probe hung
    up.
    """

    kind: Kind
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
        return self.kind == "passed"

    @property
    def refused(self) -> bool:
        """Whether the endpoint refused the request for what is in it."""
        return self.kind == "refused"

    @property
    def text(self) -> str:
        """Return the text of the reply, "" without one."""
        return self.reply.text if self.reply is not None else ""

    @property
    def reasoning(self) -> str:
        """Return the reasoning of the reply, "" without one."""
        return self.reply.reasoning if self.reply is not None else ""

    @property
    def calls(self) -> list[str]:
        """Return the names of the tools that the reply calls on the wire, those cut off too."""
        if self.reply is None:
            return []
        return [c.name for c in (*self.reply.tool_calls, *self.reply.incomplete) if c.via == "wire"]


class Exchange(Struct, frozen=True):
    """A request and its answer; `number` counts the exchanges of a probe from 1."""

    number: int
    ask: Ask
    answer: Answer
