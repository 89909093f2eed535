"""No input may take long: a bound on this process's own time, which a busy machine does not spend."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["bounded"]

_START = 2.0  # seconds; the first input fills caches
_EACH = 1e-4  # seconds a byte, some hundred times what is usual


@contextmanager
def bounded(size: int) -> Iterator[None]:
    """Check that a block takes CPU time in proportion to `size` bytes; raises `AssertionError`."""
    before = time.process_time()
    yield
    spent = time.process_time() - before
    assert spent < _START + _EACH * size, f"{spent:.1f} s for {size} bytes"
