"""Run many requests through a model: as fast as the endpoint allows, below a cap on cost, and resumable.

    report = cnllm.batch.run("rows.jsonl", "glm-4.7", out="answers.jsonl", max_cost=20, currency="CNY")

The output has a JSON line for each row. Run again with the same output, a batch asks only what has no answer yet.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cnllm.types import checks

if TYPE_CHECKING:
    from cnllm.batch.dry_run import Estimate
    from cnllm.batch.progress import Progress
    from cnllm.batch.report import Report
    from cnllm.batch.session import Interruptible
    from cnllm.batch.settings import Settings
    from cnllm.registry import Registry
    from cnllm.registry.flags import Price
    from cnllm.registry.model import Model

__all__ = ["run", "run_async"]

_COLLECTION = 20_000
"""Objects between two collections of garbage in a run: almost all of a request is freed without one, and the default of
some hundred takes a seventh of the time."""
Requests = str | os.PathLike[str] | Iterable[Any]


def run(requests: Requests, model: str | Model | Sequence[str | Model], **settings: Any) -> Report:
    """Ask a model every request, write the answers to `out`, and return a report. See `run_async` for the settings.

    Ctrl-C once waits for what is on its way, twice does not; both keep everything, and the report says so.
    """
    return run_session(make_settings(requests, model, **settings))


async def run_async(requests: Requests, model: str | Model | Sequence[str | Model], **settings: Any) -> Report:
    """Ask a model every request, inside of a running event loop (asyncio's). The arguments are those of `run`."""
    from cnllm.batch.session import Session

    session = Session(make_settings(requests, model, **settings))
    try:
        return await session.run()
    finally:
        session.close()


def make_settings(
    requests: Requests,
    model: str | Model | Sequence[str | Model],
    *,
    out: str | os.PathLike[str],
    prompt: str | None = None,
    concurrency: int | Literal["auto"] = "auto",
    max_cost: float | str | Decimal | None = None,
    currency: str | None = None,
    assume_price: Price | None = None,
    assume_output: int | None = None,
    rpm: float | None = None,
    tpm: float | None = None,
    attempts: int = 3,
    unsure: Literal["ask", "skip"] = "ask",
    changed: Literal["stop", "keep", "redo"] = "stop",
    strict: bool = False,
    order: bool = False,
    group_by: Literal["prefix"] | None = None,
    cache: bool | str | os.PathLike[str] = False,
    simulate: bool = False,
    format: str | None = None,
    encoding: str | None = None,
    registry: Registry | None = None,
    api_keys: Sequence[str] = (),
    transport: Any = None,
    max_steps: int | None = None,
    plot: bool = False,
    vendor_batch: bool = False,
    on_progress: Callable[[Progress], object] | None = None,
    **options: Any,
) -> Settings:
    """Return the settings of a run. Raises `TypeError` or `ValueError` naming the argument that is wrong."""
    from cnllm.batch.settings import Settings

    models = (model,) if isinstance(model, str) or not isinstance(model, Sequence) else tuple(model)
    if not models:
        raise ValueError("model is empty; name at least one")
    if concurrency != "auto" and (type(concurrency) is not int or concurrency < 1):
        raise ValueError(f"concurrency={concurrency!r}; 'auto' or a number from 1 is expected")
    return Settings(
        requests=os.fspath(requests) if isinstance(requests, os.PathLike) else requests,
        models=models,
        out=Path(out),
        prompt=prompt,
        options=options,
        concurrency=None if concurrency == "auto" else int(concurrency),
        max_cost=None if max_cost is None else Decimal(str(max_cost)),
        currency=currency,
        assume_price=assume_price,
        assume_output=checks.number("assume_output", assume_output, 1, none=True),
        rpm=rpm,
        tpm=tpm,
        attempts=attempts,
        unsure=unsure,
        changed=changed,
        strict=strict,
        order=order,
        group_by=group_by,
        cache=None if cache is False else Path(os.fspath(cache)) if not isinstance(cache, bool) else _cache_path(),
        simulate=simulate,
        format=format,
        encoding=encoding,
        registry=registry,
        api_keys=tuple(api_keys),
        transport=transport,
        max_steps=max_steps,
        plot=plot,
        vendor_batch=vendor_batch,
        on_progress=on_progress,
    )


def _cache_path() -> Path:
    from cnllm.config import paths

    return paths.data_dir() / "batch-cache.sqlite"


def run_session(settings: Settings) -> Report:
    """Run a batch in an event loop of its own. Ctrl-C ends it in order, where this is the main thread."""
    from cnllm.batch.session import Session

    session = Session(settings)
    threshold = gc.get_threshold()
    gc.set_threshold(_COLLECTION, *threshold[1:])
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_run(session))
    finally:
        gc.set_threshold(*threshold)
        session.close()


def estimate_session(settings: Settings) -> Estimate:
    """Return what a run would take. Nothing is sent, and an output that is not there is not made."""
    from msgspec.structs import replace

    from cnllm.batch.session import Session

    session = Session(replace(settings, api_keys=("none-is-needed-to-estimate",), cache=None))
    try:
        return session.estimate()
    finally:
        session.close()
        session.discard_if_empty()


async def _run(session: Any) -> Report:
    loop = asyncio.get_running_loop()
    handles = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGINT")

    def on_start(runner: Interruptible) -> None:
        if handles and os.name != "nt":
            loop.add_signal_handler(signal.SIGINT, runner.interrupt)

    try:
        report: Report = await session.run(on_start)
        return report
    finally:
        if handles and os.name != "nt":
            loop.remove_signal_handler(signal.SIGINT)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where it is installed: it takes less time for each request."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
