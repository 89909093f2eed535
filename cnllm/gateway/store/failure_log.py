"""The failures of a store: one log line when they begin, and one when they end."""

from __future__ import annotations

import logging
import time

__all__ = ["FailureLog"]

_REPEAT_SECONDS = 60.0
_log = logging.getLogger("cnllm.gateway")


class FailureLog:
    """The present failure of a store, and the log lines about it."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self._logged: str | None = None
        self._logged_at = 0.0

    def failed(self, failure: str) -> None:
        """Log a failure, unless the last line said the same within a minute."""
        self.failure = failure
        now = time.monotonic()
        if failure != self._logged or now - self._logged_at >= _REPEAT_SECONDS:
            self._logged, self._logged_at = failure, now
            _log.warning("the gateway's store fails, and requests go on without state: %s", failure)

    def worked(self) -> None:
        """Log the end of a failure."""
        if self.failure is not None:
            self.failure = self._logged = None
            _log.info("the gateway's store works again")
