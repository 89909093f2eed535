"""Remove secrets from the DEBUG logs of httpx's packages.

They log the endpoint's output and headers, and an endpoint may echo a key. Nothing is done unless a logger listens.
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
_MOST = 64  # number of secrets that are remembered; older requests log nothing any more
_DEBUG = 10  # logging's level. This module does not import logging: a program that listens has done so.
_secrets: dict[str, None] = {}


def _redact_record(record: Any) -> bool:
    """Redact a record before any handler sees it. Always return True: the record is logged."""
    message = record.getMessage()
    redacted = redact(message, tuple(_secrets))
    if redacted != message:
        record.msg, record.args = redacted, ()
    return True


@cache
def _package_loggers() -> Any:
    import logging

    return [logging.getLogger(name) for name in _PACKAGES]


def install_log_filter(secrets: Callable[[], Iterable[str]]) -> None:
    """Redact these secrets in all later log lines of httpx's packages.

    `secrets` is called only where such lines are written.
    """
    if "logging" not in sys.modules:
        return
    for logger in _package_loggers():
        if logger.isEnabledFor(_DEBUG):
            break
    else:
        return
    import logging

    _secrets.update(dict.fromkeys(secrets()))
    for secret in list(_secrets)[:-_MOST]:
        _secrets.pop(secret, None)
    for package in _PACKAGES:
        for name in _LOGGERS:
            logging.getLogger(f"{package}.{name}").addFilter(_redact_record)  # once: the same filter is not added again
