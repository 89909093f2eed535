"""The settings of a batch: as a caller gives them, and as a run reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, get_args

from msgspec import Struct

from cnllm.batch.report import Progress
from cnllm.config import paths
from cnllm.estimates.worst_case import check_price
from cnllm.registry import Registry
from cnllm.registry.flags import Price
from cnllm.registry.model import Model
from cnllm.types import checks
from cnllm.types.call_options import RunOptions

__all__ = ["AllowanceOptions", "BatchOptions", "BatchSettings", "Changed", "Requests", "make_settings"]

Unsure = Literal["ask", "skip"]
"""What a run does with rows that were sent and have no answer: ask them again, or skip them."""
Changed = Literal["stop", "keep", "redo"]
"""What a run does with finished rows whose request is another one now: stop, keep the answer, or ask again."""
GroupBy = Literal["prefix"]

Requests = str | os.PathLike[str] | Iterable[Any]

_MOST_AT_ONCE = 1_000_000  # more connections no process has


class AllowanceOptions(TypedDict, total=False):
    """The options of many requests together: what they cost, how many run, and at which pace."""

    prompt: str | None
    concurrency: int | Literal["auto"]
    max_cost: float | str | Decimal | None
    currency: str | None
    assume_price: Price | None
    assume_output: int | None
    rpm: float | None
    tpm: float | None
    attempts: int
    simulate: bool
    registry: Registry | None


class BatchOptions(AllowanceOptions, RunOptions, total=False):
    """The options of a batch; those of a call, and with `max_steps` those of a tool loop, hold for every request."""

    unsure: Unsure
    changed: Changed
    strict: bool
    order: bool
    group_by: GroupBy | None
    cache: bool | str | os.PathLike[str]
    format: str | None
    encoding: str | None
    api_keys: Sequence[str]
    transport: Any
    plot: bool
    log_calls: bool | None
    vendor_batch: bool
    on_progress: Callable[[Progress], object] | None


class BatchSettings(Struct, frozen=True, kw_only=True):
    """The settings of one run. `options` are those of each call and of its tool loop."""

    requests: Any
    models: tuple[str | Model, ...]
    out: Path
    options: Mapping[str, Any] = {}
    max_steps: int | None = None
    prompt: str | None = None
    concurrency: int | None = None
    max_cost: Decimal | None = None
    currency: str | None = None
    assume_price: Price | None = None
    assume_output: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    attempts: int = 3
    unsure: Unsure = "ask"
    changed: Changed = "stop"
    strict: bool = False
    order: bool = False
    group_by: GroupBy | None = None
    cache: Path | None = None
    simulate: bool = False
    format: str | None = None
    encoding: str | None = None
    registry: Registry | None = None
    api_keys: tuple[str, ...] = ()
    transport: Any = None
    plot: bool = False
    log_calls: bool | None = None
    tag: str | None = None
    vendor_batch: bool = False
    on_progress: Callable[[Progress], object] | None = None


_KINDS: tuple[tuple[str, type, str], ...] = (
    *((name, str, "a string or None") for name in ("prompt", "currency", "format", "encoding")),
    *((name, bool, "True, False or None") for name in ("strict", "order", "plot", "vendor_batch", "log_calls")),
    ("assume_price", Price, "a Price or None"),
    ("registry", Registry, "a cnllm.Registry or None"),
)


def make_settings(
    requests: Requests,
    model: str | Model | Sequence[str | Model],
    *,
    out: str | os.PathLike[str],
    **options: Unpack[BatchOptions],
) -> BatchSettings:
    """Return the settings of a run; an option that is None counts as not given.

    Raises `TypeError` or `ValueError` naming the argument that is wrong.
    """
    checks.require_path("out", out)
    models = (model,) if isinstance(model, str) or not isinstance(model, Sequence) else tuple(model)
    if not models:
        raise ValueError("model is empty; name at least one")
    for one in models:
        if not isinstance(one, str) and not hasattr(one, "flags_for"):  # a cnllm.Model
            raise checks.wrong_type("model", one, "a name or a cnllm.Model")
    for name, kind, expected in _KINDS:
        if (value := options.get(name)) is not None:
            checks.require_type(name, value, kind, expected)
    if (price := options.get("assume_price")) is not None:
        check_price("assume_price", price)
    if (callback := options.get("on_progress")) is not None and not callable(callback):
        raise checks.wrong_type("on_progress", callback, "a function or None")
    given = options.get("api_keys")
    given = [] if given is None else checks.as_list("api_keys", given, "a list of keys")
    keys = [key for key in (options.get("api_key"), *given) if key is not None]
    concurrency, max_cost, cache = options.get("concurrency"), options.get("max_cost"), options.get("cache")
    if concurrency not in (None, "auto") and (type(concurrency) is not int or concurrency < 1):
        raise checks.wrong_value("concurrency", concurrency, "'auto' or a number from 1")
    words = [("unsure", get_args(Unsure)), ("changed", get_args(Changed)), ("group_by", get_args(GroupBy))]
    for name, known in words:
        if (value := options.get(name)) is not None:
            checks.as_word(name, value, known)
    checks.number("attempts", options.get("attempts"), 1, none=True)
    for name, rate in (("rpm", options.get("rpm")), ("tpm", options.get("tpm"))):
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float)):
            raise checks.wrong_type(name, rate, "a number above 0")
        if rate is not None and not rate > 0:  # NaN, too
            raise checks.wrong_value(name, rate, "a number above 0")
    settings = BatchOptions.__annotations__.keys() & set(BatchSettings.__struct_fields__)
    own: dict[str, Any] = {name: value for name, value in options.items() if name in settings and value is not None}
    own |= {
        "requests": os.fspath(requests) if isinstance(requests, os.PathLike) else requests,
        "options": {k: v for k, v in options.items() if k not in settings and k != "api_key"},
        "concurrency": min(concurrency, _MOST_AT_ONCE) if isinstance(concurrency, int) else None,
        "max_cost": None if max_cost is None else checks.amount("max_cost", max_cost),
        "tag": None if options.get("tag") is None else checks.as_tag("tag", options["tag"]),
        "assume_output": checks.number("assume_output", options.get("assume_output"), 1, none=True),
        "cache": _cache_path(cache or False),
        "api_keys": tuple(dict.fromkeys(keys)),
    }
    return BatchSettings(models=models, out=Path(out), **own)


def _cache_path(cache: bool | str | os.PathLike[str]) -> Path | None:
    if isinstance(cache, bool):
        return paths.data_dir() / "batch-cache.sqlite" if cache else None
    checks.require_path("cache", cache)
    return Path(cache)
