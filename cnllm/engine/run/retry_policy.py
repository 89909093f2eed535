"""Decide whether a failed request is sent again, and when."""

from __future__ import annotations

from collections.abc import Callable

from cnllm.errors import CnllmError, StreamCut, TransportError
from cnllm.types.policy import Retry

__all__ = ["backoff", "may_recover", "retry_delay"]


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
