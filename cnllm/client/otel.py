"""OpenTelemetry spans of calls, by its semantic conventions for generative AI. It needs the extra `otel`.

    client = Client(on_event=cnllm.client.otel.Spans())

Each call is one span, with all its retries, and so is each use of a tool in a tool loop. No prompt and no answer goes
into a span. `gen_ai.provider.name` is the provider's name in the registry.
"""

from __future__ import annotations

import time
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
    ToolEnded,
)
from cnllm.system.processes import fork_safe

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["Spans"]


class Spans:
    """An `on_event` callback that makes spans. Without a `tracer` it uses that of the global provider."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._tracer = tracer or trace.get_tracer("cnllm")
        self._open: dict[int, Span] = {}
        self._lock = fork_safe(Lock())

    def __call__(self, value: TelemetryEvent) -> None:
        """Record a telemetry event in the span of its call."""
        if isinstance(value, RequestSent) and value.attempt == 1:
            new_span = self._tracer.start_span(
                f"chat {value.model.partition('/')[2]}", kind=self._trace.SpanKind.CLIENT, attributes=_request(value)
            )
            with self._lock:
                self._open[value.call] = new_span
            return
        if isinstance(value, ToolEnded):
            self._record_tool(value)
            return
        with self._lock:
            span = self._open.pop(value.call, None) if isinstance(value, CallEnded) else self._open.get(value.call)
        if span is None:
            return
        match value:
            case ResponseStarted():
                span.set_attribute("http.response.status_code", value.status)
            case RetryScheduled():
                span.add_event("cnllm.retrying", {"error.type": value.error, "cnllm.seconds": value.seconds})
            case ReplyCut():
                span.add_event("cnllm.cut")
            case Recovered():
                span.add_event("cnllm.recovered")
            case Repaired():
                span.add_event("cnllm.repaired", {"cnllm.note": value.code})
            case LeakFound():
                span.add_event("cnllm.leak", {"cnllm.note": value.code})
            case CallEnded():
                self._end(span, value)

    def _record_tool(self, value: ToolEnded) -> None:
        """Record a tool's call as a span that ends now."""
        end = time.time_ns()
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": value.tool}
        span = self._tracer.start_span(
            f"execute_tool {value.tool}", attributes=attributes, start_time=end - round((value.seconds or 0) * 1e9)
        )
        if value.error:
            span.set_attribute("error.type", "tool_error")
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end(end)

    def _end(self, span: Span, value: CallEnded) -> None:
        for name, attribute in _response(value).items():
            if attribute is not None:
                span.set_attribute(name, attribute)
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
    usage = value.usage
    return {
        "gen_ai.response.model": value.response_model,
        "gen_ai.response.id": value.response_id,
        "gen_ai.response.finish_reasons": None if value.finish is None else [value.finish],
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
        "error.type": value.error,
    }
