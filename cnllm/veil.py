"""What the parts of httpx log at DEBUG, without the secrets of the requests that went by.

They log what endpoints send, headers too, and an endpoint may echo a key. Nothing is done unless somebody listens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from cnllm.redact import redact

__all__ = ["over"]

_LOGGERS = ("connection", "http11", "http2", "proxy", "socks")
_MOST = 64  # secrets that are remembered; of older requests nothing is logged any more
_log = logging.getLogger("httpcore")
_known: dict[str, None] = {}


class _Veil(logging.Filter):
    """Rewrites a record before any handler sees it."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        hidden = redact(said, tuple(_known))
        if hidden != said:
            record.msg, record.args = hidden, ()
        return True


_veil = _Veil()


def over(secrets: Callable[[], Iterable[str]]) -> None:
    """From now on these are in no line of theirs. They are asked for only where such lines are written at all."""
    if not _log.isEnabledFor(logging.DEBUG):
        return
    _known.update(dict.fromkeys(secrets()))
    for old in list(_known)[:-_MOST]:
        _known.pop(old, None)
    for name in _LOGGERS:
        logging.getLogger(f"httpcore.{name}").addFilter(_veil)  # once: the same filter is not added again
