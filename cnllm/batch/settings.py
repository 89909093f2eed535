"""The settings of a batch, as the command line and `cnllm.batch.run` give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from cnllm.registry import Registry
    from cnllm.registry.flags import Price

__all__ = ["Settings"]


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of one run; see `cnllm.batch.run`."""

    requests: Any
    models: tuple[Any, ...]
    out: Path
    prompt: str | None = None
    options: Mapping[str, Any] = {}
    concurrency: int | None = None
    most: int = 1000
    rpm: float | None = None
    tpm: float | None = None
    max_cost: Decimal | None = None
    currency: str | None = None
    assume_price: Price | None = None
    assume_output: int | None = None
    attempts: int = 3
    unsure: Literal["ask", "skip"] = "ask"
    changed: Literal["stop", "keep", "redo"] = "stop"
    strict: bool = False
    order: bool = False
    group_by: Literal["prefix"] | None = None
    cache: Path | None = None
    simulate: bool = False
    format: str | None = None
    encoding: str | None = None
    registry: Registry | None = None
    api_keys: tuple[str, ...] = ()
    transport: Any = None
    max_steps: int | None = None
    plot: bool = False
    vendor_batch: bool = False
    on_progress: Callable[[Any], object] | None = None
