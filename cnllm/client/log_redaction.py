"""What the parts of httpx log at DEBUG, without the secrets of the requests that went by.

They log what endpoints send, headers too, and an endpoint may echo a key. Nothing is done unless somebody listens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from cnllm.config.redact import redact

__all__ = ["install_log_filter"]

_PACKAGES = ("httpcore", "httpcore2")
_LOGGERS = ("connection", "http11", "http2", "proxy", "socks")
_MOST = 64  # secrets that are remembered; of older requests nothing is logged any more
_DEBUG = 10  # logging's level: it is not imported here, for who listens has done so
_known: dict[str, None] = {}


def _veil(record: Any) -> bool:
    """Rewrites a record before any handler sees it."""
    said = record.getMessage()
    hidden = redact(said, tuple(_known))
    if hidden != said:
        record.msg, record.args = hidden, ()
    return True


@cache
def _listeners() -> Any:
    import logging

    return [logging.getLogger(name) for name in _PACKAGES]


def install_log_filter(secrets: Callable[[], Iterable[str]]) -> None:
    """From now on these are in no line of theirs. They are asked for only where such lines are written at all."""
    if "logging" not in sys.modules or not any(one.isEnabledFor(_DEBUG) for one in _listeners()):
        return
    import logging

    _known.update(dict.fromkeys(secrets()))
    for old in list(_known)[:-_MOST]:
        _known.pop(old, None)
    for package in _PACKAGES:
        for name in _LOGGERS:
            logging.getLogger(f"{package}.{name}").addFilter(_veil)  # once: the same filter is not added again
