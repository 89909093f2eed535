"""Decide whether a failed request is sent again, when, and to which target of a route. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from cnllm.errors import CnllmError, StreamCut, Timeout, TransportError
from cnllm.registry.model import Model
from cnllm.registry.obstacles import obstacle
from cnllm.types import Message
from cnllm.types.policy import Retry

__all__ = [
    "CooldownState",
    "backoff",
    "context_obstacle",
    "draw_order",
    "may_recover",
    "may_wait",
    "random",
    "retry_delay",
    "target_obstacle",
]


_PATIENCE = 5.0  # seconds that a request of a route waits for the same target
_ASCII_PER_TOKEN, _WIDE_PER_TOKEN = 8, 3  # more characters than a token has on average: the estimate is a lower bound


def random() -> float:
    """Return a number from 0 to below 1."""
    import random  # takes longer to load than a call that is sent once

    return random.random()


def retry_delay(error: CnllmError, tries: int, retry: Retry, chance: Callable[[], float]) -> float:
    """Return the seconds until the next try. Raises the error where there is none."""
    retry_after = error.retry_after
    if not error.retryable or tries >= retry.attempts or (retry_after is not None and retry_after > retry.cap):
        raise error
    if retry_after is not None:
        return retry_after + chance() * min(retry.base, 1.0)
    return backoff(tries, retry, chance)


def backoff(tries: int, retry: Retry, chance: Callable[[], float]) -> float:
    """Return a pause that doubles each time, with jitter, so that many callers do not return at once."""
    return float(min(retry.cap, retry.base * 2 ** (tries - 1)) * (0.5 + chance() / 2))


def may_recover(error: CnllmError) -> bool:
    """Whether a request that recovers a cut stream may be sent again.

    A reply that broke off may. After other failures it may only where the request cannot have been served.
    """
    broke_off = isinstance(error, StreamCut) or (isinstance(error, TransportError) and error.began)
    return error.retryable or (broke_off and error.meaning.elsewhere is True)


# ── the targets of a route ───────────────────────────────────────────────────


class CooldownState(Protocol):
    """The memory of targets that failed; see `cnllm.client.fallback`."""

    def acquire(self, target: str) -> bool:
        """Whether a target may be tried now."""

    def fail(self, target: str, seconds: float) -> None:
        """Pass over a target for some seconds."""

    def succeed(self, target: str) -> None:
        """Forget the failures of a target."""


def may_wait(error: CnllmError | None, seconds: float, retries: int) -> bool:
    """Whether a request of a route is sent to the same target again: once, after a short pause.

    An endpoint that says nothing is not asked again. The same holds for the last target: the client waits for it.
    """
    return retries == 0 and seconds <= _PATIENCE and not isinstance(error, Timeout)


def draw_order(weights: Sequence[float] | None, count: int, chance: Callable[[], float]) -> list[int]:
    """Return the numbers of the targets in the order in which they are tried; one of weight 0 only last."""
    if weights is None:
        return list(range(count))
    pool = [number for number in range(count) if weights[number] > 0]
    order: list[int] = []
    while pool:
        point = chance() * sum(weights[number] for number in pool)
        for number in pool:
            point -= weights[number]
            if point < 0:
                break
        order.append(number)
        pool.remove(number)
    return [*order, *(number for number in range(count) if weights[number] <= 0)]


def target_obstacle(model: Model, messages: Sequence[Message], options: Mapping[str, Any]) -> str | None:
    """Return why a target cannot serve a request; None where it can, or where that is unknown."""
    reason = obstacle(model, messages, options)
    if reason is not None:
        return reason
    room = model.flags.limits.most_input
    if room is not None and (least := _least_tokens(messages)) > room:
        return f"its window of {room:,} tokens is too small for at least {least:,}"
    return None


def context_obstacle(model: Model, failed: Model) -> str | None:
    """Return why a target cannot hold what was too long for another one; None where it has more room, or may have."""
    room = model.flags.limits.most_input
    other = failed.flags.limits.most_input
    if room is None or other is None or room > other:
        return None
    return f"its window of {room:,} tokens is no larger than that of {failed.name}"


def _least_tokens(messages: Sequence[Message]) -> int:
    """Return a number of tokens that the messages have at least."""
    plain = wide = 0
    for message in messages:
        text = message.text
        narrow = len(text.encode("ascii", "ignore"))
        plain, wide = plain + narrow, wide + len(text) - narrow
    return plain // _ASCII_PER_TOKEN + wide // _WIDE_PER_TOKEN
