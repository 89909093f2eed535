"""Send a request, and decide what its end means: for the endpoint's bounds, the money and the row."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from cnllm.batch.budget import RetryBudget
from cnllm.batch.controller import Kind
from cnllm.batch.jobs import RowRequest
from cnllm.batch.lanes import Lane
from cnllm.batch.output import Outcome, outcome_of_error, outcome_of_reply
from cnllm.batch.pricing import RequestPrice
from cnllm.errors import CnllmError, RateLimited, TransportError
from cnllm.types import Reply

__all__ = ["AttemptResult", "Sender"]


RowAction = Literal["finish", "wait", "retry", "close"]
"""The next step of a row after its request.

- finish: the outcome of the row is written.
- wait: the endpoint refused the rate and charged nothing. The row waits for its next turn; this is no retry.
- retry: the endpoint failed, and the row is sent again.
- close: the key does not work. No more requests go out with it, and the row waits for another key.
"""


class AttemptResult(Struct, frozen=True):
    """The end of a request that was sent once. `kind` is for the bounds of the endpoint, `next` for the row.

    `cost` is in units; None is unknown. `tokens` are those that the endpoint counted.
    """

    kind: Kind
    next: RowAction
    outcome: Outcome
    cost: int | None
    seconds: float
    error: CnllmError | None = None
    tokens: float | None = None
    retry_after: float | None = None


class Sender:
    """Sends the requests of a run, each up to `attempts` times. With `loop_options` a request is a tool loop."""

    def __init__(self, attempts: int, price: RequestPrice, loop_options: Mapping[str, Any] | None = None) -> None:
        self.price = price
        self._attempts = attempts
        self._loop_options = loop_options
        self._retries = RetryBudget()

    async def send(self, request: RowRequest, lane: Lane) -> AttemptResult:
        """Send a request once, and return what became of it.

        Raises where the request ended in the middle: it was cancelled, or an error of ours ended the run.
        """
        start = time.monotonic()
        request.attempts += 1
        try:
            reply = await self._ask(request, lane)
        except CnllmError as error:
            return self._read_failure(request, lane, error, time.monotonic() - start)
        self._retries.answer()
        assert request.lane is not None
        own = request.lane.model
        request.is_own_answer = lane.model == own and reply.message.by == own.name
        seconds, cost = time.monotonic() - start, self.price.paid(reply, request.reserved)
        return AttemptResult("accepted", "finish", outcome_of_reply(reply), cost, seconds, tokens=_tokens_of(reply))

    async def _ask(self, request: RowRequest, lane: Lane) -> Reply:
        prepared, request.prepared = request.prepared, None
        if self._loop_options is not None:
            return await lane.run_loop(request.messages, request.options, self._loop_options)
        if prepared is None or request.lane is not lane:
            prepared = lane.prepare(request.messages, request.options)
        reply: Reply = await prepared.complete()
        self.price.learn(prepared.plan, reply)
        return reply

    def _read_failure(self, request: RowRequest, lane: Lane, error: CnllmError, seconds: float) -> AttemptResult:
        meaning, retry_after = error.meaning, error.retry_after
        kind: Kind = "overloaded" if meaning.load else "failed"
        following: RowAction = "finish"
        if isinstance(error, RateLimited):
            kind = "burst" if lane.is_burst(error.code) else "rate"
        if kind in ("rate", "burst") and not meaning.charged:
            following = "wait"
        elif meaning.key:
            kind, following = "failed", "close"
        elif meaning.again and meaning.elsewhere:  # elsewhere: the endpoint is what failed
            is_lost = isinstance(error, TransportError) and error.worker_lost
            request.failures += not is_lost
            if request.failures < self._attempts and (is_lost or self._retries.take()):
                following = "retry"
        cost = self.price.paid_for_failure(error, request.reserved)
        return AttemptResult(kind, following, outcome_of_error(error), cost, seconds, error, None, retry_after)


def _tokens_of(reply: Reply) -> float | None:
    """Return the tokens that a reply counts for; None where they are not known."""
    usage = reply.usage
    if usage.total is not None:
        return usage.total
    return None if usage.input is None or usage.output is None else usage.input + usage.output
