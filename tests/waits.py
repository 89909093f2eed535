"""The waits of a client between two attempts, which no test sits out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

__all__ = ["replace_waits"]


def replace_waits(monkeypatch: pytest.MonkeyPatch, wait: Callable[[float], object]) -> None:
    """Let the sync client call `wait` with the seconds where it would wait between two attempts."""

    class Pause(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            wait(timeout)
            return self.is_set()

    module = SimpleNamespace(Event=Pause, TIMEOUT_MAX=threading.TIMEOUT_MAX)
    monkeypatch.setattr("cnllm.client.sync_stream.threading", module)
