"""Turn two scrapes of `/metrics` into the rows of a live table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from msgspec import Struct, field

__all__ = ["HEADS", "Scrape", "parse_scrape", "rows"]

HEADS = (
    "MODEL", "CALLS", "CALLS/S", "FAILED", "CUT", "RECOVERED", "FIRST 50%", "FIRST 95%", "TOKENS/S", "CALLS→RESULTS",
    "TOOL ERRORS", "BROKEN", "COST",
)  # fmt: skip
_TOTAL = "all"


class Scrape(Struct):
    """The samples of a scrape: by name, each with its labels and its value. `time` is in seconds."""

    time: float
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = field(default_factory=dict)

    def sum(self, name: str, model: str | None, **labels: str) -> float:
        """Return the sum of a counter, of one model or of all."""
        return sum(
            value
            for have, value in self.samples.get(name, ())
            if (model is None or have.get("model") == model)
            and all(have.get(label) == text for label, text in labels.items())
        )

    def quantile(self, name: str, model: str | None, share: float) -> float | None:
        """Return about the value below which a share of a histogram lies; None where nothing was observed."""
        counts: dict[float, float] = {}
        for labels, value in self.samples.get(f"{name}_bucket", ()):
            if model is None or labels.get("model") == model:
                bound = float(labels["le"])
                counts[bound] = counts.get(bound, 0.0) + value
        total = counts.get(inf, 0.0)
        if not total:
            return None
        below, lower = 0.0, 0.0
        for bound in sorted(counts):
            if counts[bound] >= share * total:
                if bound == inf:
                    return lower
                width = counts[bound] - below
                return lower + (bound - lower) * ((share * total - below) / width if width else 1.0)
            below, lower = counts[bound], bound
        return lower


def parse_scrape(text: str, time: float) -> Scrape:
    """Return the samples of an answer of `/metrics`. Raises `ValueError` for anything else."""
    from prometheus_client.parser import text_string_to_metric_families

    scrape = Scrape(time)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            scrape.samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return scrape


def rows(now: Scrape, before: Scrape | None = None) -> list[tuple[str, ...]]:
    """Return a row for each model that was called, and one for all. A speed needs an earlier scrape."""
    models = sorted({labels["model"] for labels, _ in _generate_samples(now) if labels.get("model")})
    found = [_row(model, model, now, before) for model in models]
    return [*found, _row(_TOTAL, None, now, before)]


def _generate_samples(scrape: Scrape) -> Iterable[tuple[Mapping[str, str], float]]:
    samples = scrape.samples.get("cnllm_requests_total", ())
    return (sample for sample in samples if sample[0].get("verb") == "generate")


def _row(name: str, model: str | None, now: Scrape, before: Scrape | None) -> tuple[str, ...]:
    calls = now.sum("cnllm_requests_total", model, verb="generate")
    failed = now.sum("cnllm_requests_total", model, verb="generate", outcome="failed")
    tool_calls = now.sum("cnllm_tool_calls_total", model)
    speed = ""
    if before is not None and now.time > before.time:
        earlier = before.sum("cnllm_requests_total", model, verb="generate")
        speed = f"{max(0.0, calls - earlier) / (now.time - before.time):.1f}"
    results = now.sum("cnllm_tool_results_total", model)
    return (
        name,
        f"{calls:.0f}",
        speed,
        _count(failed),
        _count(now.sum("cnllm_cuts_total", model)),
        _count(now.sum("cnllm_recoveries_total", model)),
        _seconds(now.quantile("cnllm_first_token_seconds", model, 0.5)),
        _seconds(now.quantile("cnllm_first_token_seconds", model, 0.95)),
        _number(now.quantile("cnllm_output_tokens_per_second", model, 0.5)),
        f"{tool_calls:.0f} → {results:.0f}" if tool_calls or results else "",
        _count(now.sum("cnllm_tool_errors_total", model)),
        _count(now.sum("cnllm_broken_chains_total", model)),
        _cost(now, model),
    )


def _cost(scrape: Scrape, model: str | None) -> str:
    """Return the cost in each currency; a `+?` where the cost of some calls is unknown."""
    amounts: dict[str, float] = {}
    for labels, value in scrape.samples.get("cnllm_cost_total", ()):
        if model is None or labels["model"] == model:
            amounts[labels["currency"]] = amounts.get(labels["currency"], 0.0) + value
    parts = [f"{amount:.4f} {currency}" for currency, amount in sorted(amounts.items())]
    if scrape.sum("cnllm_cost_unknown_total", model):
        parts.append("?")
    return " + ".join(parts)


def _count(value: float) -> str:
    return f"{value:.0f}" if value else ""


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
