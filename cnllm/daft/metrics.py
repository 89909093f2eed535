"""Count tokens, cost and failures for Daft's metrics (`frame.metrics`), which hold whole numbers."""

from __future__ import annotations

from typing import Any

from daft.ai.metrics import record_token_metrics
from daft.udf.metrics import increment_counter

from cnllm.daft.settings import PromptSettings
from cnllm.types import Reply

__all__ = ["record_failure", "record_reply"]

_BILLION = 10**9


def record_reply(reply: Reply[Any], settings: PromptSettings) -> None:
    """Count the tokens of a reply under Daft's names, and its reasoning, cached tokens and cost."""
    usage = reply.usage
    record_token_metrics(
        protocol="prompt",
        model=settings.model,
        provider=settings.provider,
        input_tokens=usage.input,
        output_tokens=usage.output,
        total_tokens=usage.total,
    )
    attributes = _attributes(settings)
    for name, amount in (("reasoning tokens", usage.reasoning), ("cached tokens", usage.cached)):
        if amount is not None:
            increment_counter(name, amount, attributes=attributes)
    if reply.cost is not None:
        billionths = round(reply.cost.amount * _BILLION)
        increment_counter(f"cost in billionths of {reply.cost.currency}", billionths, attributes=attributes)


def record_failure(settings: PromptSettings) -> None:
    """Count a row that failed."""
    increment_counter("failed rows", attributes=_attributes(settings))


def _attributes(settings: PromptSettings) -> dict[str, str]:
    return {"model": settings.model, "protocol": "prompt", "provider": settings.provider}
