"""Wait in an event loop, asyncio's or trio's, for work in other threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["loop_scheduler", "run_in_thread", "wait_for_future"]

T = TypeVar("T")


def loop_scheduler() -> Callable[..., Any]:
    """Return a function that schedules a callback in this event loop, from any thread."""
    import asyncio

    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon


async def wait_for_future(future: Future[T]) -> T:
    """Return the result of a future, or raise its error. A cancelled wait cancels the future, too."""
    import anyio

    finished, post = anyio.Event(), loop_scheduler()

    def wake(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended, and with it the waiting task
            post(finished.set)

    future.add_done_callback(wake)
    try:
        await finished.wait()
    except BaseException:
        future.cancel()
        raise
    return future.result()


async def run_in_thread(function: Callable[[], T]) -> T:
    """Return the result of a function that may block, from a daemon thread. A cancelled wait leaves it running.

    It holds the event loop up where no thread can start.

    The program could not end while one of anyio's own threads runs.
    """
    from concurrent.futures import Future  # it loads `logging`, which a plain call does not need

    future: Future[T] = Future()

    def work() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 the waiting task raises it
            _settle(future, future.set_exception, error)
        else:
            _settle(future, future.set_result, result)

    try:
        threading.Thread(target=work, name="cnllm-wait", daemon=True).start()
    except RuntimeError:  # none can start: there are too many, or the program ends
        work()
    return await wait_for_future(future)


def _settle(future: Future[Any], setter: Callable[[Any], None], value: Any) -> None:
    """Set the outcome of a future, unless the wait for it was cancelled."""
    if future.set_running_or_notify_cancel():
        setter(value)
