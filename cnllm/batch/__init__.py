"""Run many requests through a model: as fast as the endpoint allows, below a cap on cost, and resumable.

    report = cnllm.batch.run("rows.jsonl", "glm-4.7", out="answers.jsonl", max_cost=20, currency="CNY")

The output has a JSON line for each row. Run again with the same output, a batch asks only what has no answer yet.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Sequence
from typing import Any, Unpack

from msgspec.structs import replace

from cnllm.batch.dry_run import Estimate
from cnllm.batch.report import BatchReport
from cnllm.batch.session import BatchSession
from cnllm.batch.settings import BatchOptions, BatchSettings, Requests, make_settings
from cnllm.errors import CnllmError, TransportError
from cnllm.registry.model import Model
from cnllm.system import processes

__all__ = ["BatchOptions", "run", "run_async"]

_COLLECTION = 20_000
"""Objects between two collections of garbage in a run: almost all of a request is freed without one, and the default of
some hundred takes a seventh of the time."""


def run(
    requests: Requests,
    model: str | Model | Sequence[str | Model],
    *,
    out: str | os.PathLike[str],
    **options: Unpack[BatchOptions],
) -> BatchReport:
    """Ask a model every request, write the answers to `out`, and return a report.

    Several models share the rows, and so do several `api_keys`, each within its own limits. The keys go to the endpoint
    of the first model; others take their own. Ctrl-C once waits for what is on its way, twice does not; both keep
    everything, and the report says so. Where an event loop runs, as in a notebook, `run_async` does it.
    """
    if _has_event_loop():
        raise CnllmError("an event loop runs in this thread", hint="use: await cnllm.batch.run_async(…)")
    return run_session(BatchSession(make_settings(requests, model, out=out, **options)))


async def run_async(
    requests: Requests,
    model: str | Model | Sequence[str | Model],
    *,
    out: str | os.PathLike[str],
    **options: Unpack[BatchOptions],
) -> BatchReport:
    """Ask a model every request, inside of a running event loop (asyncio's). The arguments are those of `run`."""
    session = BatchSession(make_settings(requests, model, out=out, **options))
    try:
        return await session.run()
    finally:
        session.close()


def _has_event_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_session(session: BatchSession) -> BatchReport:
    """Run a batch in an event loop of its own, and close it. Ctrl-C ends it in order, where this is the main thread."""
    threshold = gc.get_threshold()
    gc.set_threshold(_COLLECTION, *threshold[1:])
    try:
        with asyncio.Runner(loop_factory=processes.loop_factory()) as runner:
            return runner.run(_run(session))
    finally:
        gc.set_threshold(*threshold)
        session.close()


class _NoTransport:
    """Stands for a transport where nothing is sent."""

    needs_key = False

    async def send(self, plan: Any) -> Any:
        """Raise: an estimate sends nothing."""
        raise TransportError("an estimate sends nothing")


def estimate_session(settings: BatchSettings) -> Estimate:
    """Return what a run would take. Nothing is sent, and an output that is not there is not made."""
    session = BatchSession(replace(settings, transport=_NoTransport(), cache=None))
    try:
        return session.estimate()
    finally:
        session.close(discard=True)


async def _run(session: BatchSession) -> BatchReport:
    if threading.current_thread() is not threading.main_thread():
        return await session.run()
    end = processes.handle_interrupt(asyncio.get_running_loop(), session.interrupt)
    try:
        return await session.run()
    finally:
        end()
