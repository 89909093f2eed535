"""OpenTelemetry spans of calls, by its semantic conventions for generative AI: `pip install 'cnllm[otel]'`.

    client = Client(on_event=cnllm.client.otel.Spans())

One span a call, with all its retries in it. No prompt and no answer goes into a span. `gen_ai.provider.name` is the
provider as the registry calls it.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from cnllm.client.telemetry import (
    CallEnded,
    LeakFound,
    Recovered,
    Repaired,
    ReplyCut,
    RequestSent,
    ResponseStarted,
    RetryScheduled,
    TelemetryEvent,
)
from cnllm.config import process

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["Spans"]


class Spans:
    """An `on_event` that makes spans. Without a `tracer` the global provider's is used."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._tracer = tracer or trace.get_tracer("cnllm")
        self._open: dict[int, Span] = {}
        self._lock = process.fork_safe(Lock())

    def __call__(self, value: TelemetryEvent) -> None:
        """Takes what `cnllm.client.telemetry` tells."""
        if isinstance(value, RequestSent) and value.attempt == 1:
            span = self._tracer.start_span(
                f"chat {value.model.partition('/')[2]}", kind=self._trace.SpanKind.CLIENT, attributes=_request(value)
            )
            with self._lock:
                self._open[value.call] = span
            return
        with self._lock:
            found = self._open.pop(value.call, None) if isinstance(value, CallEnded) else self._open.get(value.call)
        if found is None:
            return
        match value:
            case ResponseStarted():
                found.set_attribute("http.response.status_code", value.status)
            case RetryScheduled():
                found.add_event("cnllm.retrying", {"error.type": value.error, "cnllm.seconds": value.seconds})
            case ReplyCut():
                found.add_event("cnllm.cut")
            case Recovered():
                found.add_event("cnllm.recovered")
            case Repaired():
                found.add_event("cnllm.repaired", {"cnllm.note": value.code})
            case LeakFound():
                found.add_event("cnllm.leak", {"cnllm.note": value.code})
            case CallEnded():
                self._end(found, value)

    def _end(self, span: Span, value: CallEnded) -> None:
        for name, said in _response(value).items():
            if said is not None:
                span.set_attribute(name, said)
        if value.error is not None:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, value.error))
        span.end()


def _request(value: RequestSent) -> dict[str, Any]:
    provider, _, model = value.model.partition("/")
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "server.address": value.host,
    }


def _response(value: CallEnded) -> dict[str, Any]:
    used = value.usage
    return {
        "gen_ai.response.model": value.response_model,
        "gen_ai.response.id": value.response_id,
        "gen_ai.response.finish_reasons": None if value.finish is None else [value.finish],
        "gen_ai.usage.input_tokens": used.input,
        "gen_ai.usage.output_tokens": used.output,
        "gen_ai.usage.cache_read.input_tokens": used.cached,
        "gen_ai.usage.cache_creation.input_tokens": used.cache_write,
        "gen_ai.usage.reasoning.output_tokens": used.reasoning,
        "error.type": value.error,
    }
