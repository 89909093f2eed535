"""Write what the calls of a client cost to the file of `cnllm logs`, without their words."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from cnllm.client.telemetry import CallEnded
from cnllm.engine.encode.plan import Plan
from cnllm.store.call_log import CallLog, LoggedCall
from cnllm.store.records import TurnError
from cnllm.types import Note, Reply, Usage

__all__ = ["CallLog", "CallRecorder"]


class CallRecorder(Struct, frozen=True):
    """Writes calls to a log. `maker` says who makes them: "library" or "batch".

    Calls without a `conversation` have one of their own each; those without a tag of their own have `tag`.
    """

    log: CallLog
    origin: str = "endpoint"
    maker: str = "library"
    conversation: str | None = None
    tag: str = ""

    def record(self, ended: CallEnded, plan: Plan, notes: Sequence[Note] = ()) -> None:
        """Write a call that has ended. `plan` is its last request."""
        place = (plan.model.protocol, plan.flags.price)  # a plan holds the words of a call
        self.log.add(partial(_logged_call, self, ended, place, notes, time.time() - ended.seconds))

    def record_reply(self, plan: Plan, reply: Reply | None, reason: str = "") -> None:
        """Write a call that a vendor made in a job of its own; without a reply, `reason` says why there is none."""
        facts: dict[str, Any] = {"error": reason or "Unknown"}
        if reply is not None:
            facts = {"finish": reply.finish, "usage": reply.usage, "cost": reply.cost, "registry": reply.registry}
            facts |= {"response_model": reply.model, "response_id": reply.id}
        ended = CallEnded(call=0, model=plan.model.name, attempts=1, seconds=0.0, **facts)
        self.record(ended, plan, () if reply is None else reply.notes)


def _logged_call(
    recorder: CallRecorder, ended: CallEnded, place: tuple[str, object], notes: Sequence[Note], began: float
) -> LoggedCall:
    """Return the record of a call for the store."""
    failure = ended.error or (None if ended.finish else "Interrupted")
    status = f"HTTP {ended.status}" if ended.status is not None else ""
    return LoggedCall(
        conversation=recorder.conversation or os.urandom(5).hex(),
        began=datetime.datetime.fromtimestamp(began, datetime.UTC).isoformat(timespec="milliseconds"),
        model=ended.model,
        protocol=place[0],
        price=place[1],
        client=recorder.maker,
        origin=recorder.origin,
        tag=recorder.tag,
        finish=ended.finish or "",
        usage=None if ended.usage == Usage() else ended.usage,
        cost=ended.cost,
        seconds=ended.seconds,
        error=None if failure is None else TurnError(failure, status, ended.charged),
        notes=notes,
        registry=ended.registry or "",
        reply_id=ended.response_id,
        reply_model=ended.response_model,
    )
