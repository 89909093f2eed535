"""Let an object end with the `with` block, with the event loop, or with the process that it was opened for."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

__all__ = ["AsyncClosing", "Closing", "at_exit", "close_with_loop", "first_of", "unwind_on_signals"]

T = TypeVar("T")


class Closing:
    """Close an object at the end of a `with` block."""

    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClosing:
    """Close an object at the end of an `async with` block."""

    async def aclose(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def close_with_loop(close: Callable[[], Awaitable[object]]) -> AsyncGenerator[None]:
    """Return a generator that calls `close` when it is closed itself: by its owner, or by the loop at its end."""

    async def wait() -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await close()

    generator = wait()
    await anext(generator)  # from its first step on the loop knows it
    return generator


async def first_of(generator: AsyncGenerator[T]) -> T | None:
    """Return the first item of a generator inside another one, which closes it; None where there is none.

    An event loop closes all generators that it knows at its end, at the same time, and two cannot close one. So it does
    not get to know this one.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        step = anext(generator, None)
    finally:
        sys.set_asyncgen_hooks(*hooks)
    return await step


def at_exit(action: Callable[[], object]) -> Callable[[], None]:
    """Run an action at the end of this process, also of one that multiprocessing forked. Return what cancels it."""
    atexit.register(action)
    util = sys.modules.get("multiprocessing.util")  # its children end without what `atexit` has
    finalizer = None if util is None else util.Finalize(None, action, exitpriority=0)

    def cancel() -> None:
        atexit.unregister(action)
        if finalizer is not None:
            finalizer.cancel()

    return cancel


@contextmanager
def unwind_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave a block as Ctrl-C does, so that it ends what it began, and then end the process.

    For the main thread. A block that has turned the echo of a terminal off turns it on again.
    """
    received: list[int] = []

    def leave(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    active = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores one
    handlers = {number: signal.signal(number, leave) for number in active}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            os.kill(os.getpid(), received[0])
