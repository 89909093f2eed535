"""Turn a finished request into changes of metrics. No label holds a text that a client may choose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Literal, get_args, get_type_hints

from msgspec import Struct

from cnllm.gateway.monitoring.entry import Entry
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.types.note_codes import NoteCode

__all__ = ["METRICS", "Counts", "Metric", "Observation", "add_request", "flag_label", "model_label", "outcome_of"]

Kind = Literal["counter", "histogram", "gauge"]
_SECONDS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_SPEEDS = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1000.0)
_OTHER = "other"
_KINDS = ("input", "output", "reasoning", "cached", "cache_write")  # of tokens
_LEFT = ("client-has-gone", "server-stopped")
"""The outcomes of requests that ended before their call did."""
_CODES = frozenset(get_args(NoteCode))
_GENERAL = frozenset(  # what notes name where no flag of an endpoint is the cause
    [
        "corrections",
        "gateway",
        "history",
        "models",
        "notes",
        "schema",
        "simulate",
        "system",
        "tier",
        "tiers",
        "tool_choice",
    ]
)


class Metric(Struct, frozen=True):
    """A metric: its name, its meaning, and the names of its labels. A counter's name ends in `_total`.

    `options` are further arguments of its class in `prometheus-client`.
    """

    kind: Kind
    name: str
    help: str
    labels: tuple[str, ...] = ()
    options: dict[str, Any] = {}


Counts = defaultdict[tuple[str, tuple[str, ...]], float]
"""Amounts to add to counters, by the names of these and the values of their labels."""

Observation = tuple[str, tuple[str, ...], float]
"""A value for a histogram, behind its name and the values of its labels."""


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "counter", "cnllm_requests_total", "Requests by their outcome.",
            ("verb", "protocol", "model", "status", "outcome"),
        ),
        Metric("counter", "cnllm_key_requests_total", "Requests of a key with limits.", ("key", "status")),
        Metric("counter", "cnllm_key_cost_total", "The known cost of a key's requests.", ("key", "currency")),
        Metric(
            "counter", "cnllm_soft_budget_requests_total", "Requests after a soft budget was spent.",
            ("kind", "name", "currency"),
        ),
        Metric("counter", "cnllm_errors_total", "Calls of a model that failed, by class.", ("model", "error")),
        Metric(
            "histogram", "cnllm_first_token_seconds", "Seconds until the first piece of a streamed reply.",
            ("model",), {"buckets": _SECONDS},
        ),
        Metric(
            "histogram", "cnllm_request_seconds", "Seconds until the end of a reply.",
            ("model", "stream"), {"buckets": _SECONDS},
        ),
        Metric(
            "histogram", "cnllm_output_tokens_per_second", "Output tokens a second, after the first one.",
            ("model",), {"buckets": _SPEEDS},
        ),
        Metric("counter", "cnllm_tokens_total", "Tokens by the endpoint's count.", ("model", "kind")),
        Metric("counter", "cnllm_cost_total", "The known cost, by currency.", ("model", "currency")),
        Metric("counter", "cnllm_cost_unknown_total", "Calls whose cost is unknown, or known in part.", ("model",)),
        Metric("counter", "cnllm_cuts_total", "Replies that were cut on their way.", ("model",)),
        Metric("counter", "cnllm_recoveries_total", "Replies that were cut and became whole.", ("model",)),
        Metric("counter", "cnllm_notes_total", "Notes by flag and code.", ("model", "flag", "code")),
        Metric("counter", "cnllm_tool_calls_total", "Tool calls of models.", ("model",)),
        Metric("counter", "cnllm_tool_results_total", "Results that clients returned.", ("model",)),
        Metric(
            "counter", "cnllm_tool_errors_total", "Results with an error, and calls with unusable arguments.",
            ("model",),
        ),
        Metric("counter", "cnllm_broken_chains_total", "Chains of tool calls that broke.", ("model", "reason")),
        Metric("gauge", "cnllm_workers", "Processes that serve.", options={"multiprocess_mode": "livesum"}),
    )
}  # fmt: skip
"""Every metric by its name."""


def add_request(entry: Entry, model: str, counts: Counts, observed: list[Observation]) -> None:
    """Add what a finished request changes. `model` is the label of its model, empty for none."""
    status = str(entry.status or 0)
    counts["cnllm_requests_total", (entry.verb, entry.protocol, model, status, outcome_of(entry))] += 1.0
    if entry.key:
        counts["cnllm_key_requests_total", (entry.key, status)] += 1.0
        if entry.cost is not None:
            counts["cnllm_key_cost_total", (entry.key, entry.cost.currency)] += float(entry.cost.amount)
    for labels in entry.soft_budgets:
        counts["cnllm_soft_budget_requests_total", labels] += 1.0
    if entry.verb != "generate" or not model:
        return
    if entry.error:
        counts["cnllm_errors_total", (model, entry.error)] += 1.0
    if entry.first is not None:
        observed.append(("cnllm_first_token_seconds", (model,), entry.first))
    if entry.tokens_per_second is not None:
        observed.append(("cnllm_output_tokens_per_second", (model,), entry.tokens_per_second))
    if entry.finish:
        observed.append(("cnllm_request_seconds", (model, "true" if entry.stream else "false"), entry.seconds))
        if (usage := entry.usage) is not None:
            for kind in _KINDS:
                if count := getattr(usage, kind):
                    counts["cnllm_tokens_total", (model, kind)] += count
    if (cost := entry.cost) is not None:
        counts["cnllm_cost_total", (model, cost.currency)] += float(cost.amount)
    if not cost.complete if cost is not None else _may_cost(entry):
        counts["cnllm_cost_unknown_total", (model,)] += 1.0
    if entry.cut:
        counts["cnllm_cuts_total", (model,)] += 1.0
    if entry.recovered:
        counts["cnllm_recoveries_total", (model,)] += 1.0
    for note in entry.notes:
        code = note.code if note.code in _CODES else _OTHER
        counts["cnllm_notes_total", (model, flag_label(note.flag), code)] += 1.0
    if entry.tool_calls:
        counts["cnllm_tool_calls_total", (model,)] += entry.tool_calls
    if entry.tool_results:
        counts["cnllm_tool_results_total", (model,)] += entry.tool_results
    if entry.tool_errors:
        counts["cnllm_tool_errors_total", (model,)] += entry.tool_errors
    if entry.broken:
        counts["cnllm_broken_chains_total", (model, entry.broken)] += 1.0


def _may_cost(entry: Entry) -> bool:
    """Whether a call of unknown cost may be charged: it has a reply, or was sent and is not known to be free."""
    is_left = entry.charged is None and outcome_of(entry) in _LEFT
    return bool(entry.finish or entry.charged or is_left)


def outcome_of(entry: Entry) -> str:
    """Return how a request ended."""
    if entry.outcome in ("the client has gone", "the server stopped"):
        return entry.outcome.removeprefix("the ").replace(" ", "-")
    if 0 < entry.status < 400 and entry.finish in ("cut", "error"):
        return "cut"
    return "failed" if entry.status >= 400 or entry.error or entry.outcome or not entry.status else "ok"


def model_label(model: Model) -> str:
    """Return the label of a model: its name, or `PROVIDER/other` for an id that a client may have made up."""
    if "unknown-model" in [note.code for note in model.notes]:
        return f"{model.provider}/{_OTHER}"
    return model.name


@lru_cache(maxsize=1024)
def flag_label(flag: str) -> str:
    """Return the longest beginning of a note's flag that the registry declares."""
    parts = flag.split(".")
    while parts:
        if (name := ".".join(parts)) in _flags() or name in _GENERAL:
            return name
        parts.pop()
    return _OTHER


@cache
def _flags() -> frozenset[str]:
    """Return the dotted names of every flag."""
    return frozenset(_names(Flags, ""))


def _names(kind: type[Struct], prefix: str) -> Iterator[str]:
    for name, hint in get_type_hints(kind).items():
        full = prefix + name.rstrip("_")
        yield full
        for part in (hint, *get_args(hint)):
            if isinstance(part, type) and issubclass(part, Struct):
                yield from _names(part, f"{full}.")
