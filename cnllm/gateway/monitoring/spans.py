"""OpenTelemetry spans of a gateway's requests. It needs the extra `otel`.

Each request is one span of kind server, a child of the trace that the client's `traceparent` header names. The calls of
endpoints are its children, with their retries (see `cnllm.client.otel`). No text of a client, no key and no address
with a query goes into a span.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cnllm.client.otel import Spans
from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.gateway.monitoring.entry import Entry
from cnllm.gateway.monitoring.updates import outcome_of

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

__all__ = ["ServerSpans"]


class ServerSpans:
    """Makes spans. Without a `tracer` it uses that of the global provider. Raises `CnllmError` without the package."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        try:
            from opentelemetry import context, propagate, trace
        except ImportError as error:
            raise CnllmError(
                "spans need OpenTelemetry, which is not installed", hint=install_command("otel")
            ) from error
        self._context, self._propagate, self._trace = context, propagate, trace
        self._tracer = tracer or trace.get_tracer("cnllm")
        self.calls = Spans(self._tracer)
        """The `on_event` callback of the client that makes the calls."""

    def begin(self, entry: Entry, headers: Mapping[str, str]) -> Callable[[Entry], None]:
        """Begin the span of a request. It is the current span of this task until the result is called in that task."""
        span = self._tracer.start_span(
            entry.method,
            context=self._propagate.extract(headers),
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": entry.method, "url.path": entry.path, "cnllm.request.id": entry.id},
        )
        token = self._context.attach(self._trace.set_span_in_context(span))
        return partial(self._end, span, token)

    def _end(self, span: Any, token: Any, entry: Entry) -> None:
        """End a span, with what is known of its request."""
        self._context.detach(token)
        if entry.verb:
            span.update_name(f"{entry.method} {entry.verb}")
        for name, value in _attributes(entry).items():
            if value not in (None, ""):
                span.set_attribute(name, value)
        if entry.status >= 500 or entry.error:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, entry.error or None))
        span.end()


def _attributes(entry: Entry) -> dict[str, Any]:
    usage = entry.usage
    return {
        "http.response.status_code": entry.status or None,
        "url.path": entry.path,  # without a key, which is hidden at the end
        "error.type": entry.error or (str(entry.status) if entry.status >= 500 else None),
        "gen_ai.request.model": entry.model,
        "gen_ai.response.finish_reasons": [entry.finish] if entry.finish else None,
        "gen_ai.usage.input_tokens": usage.input if usage is not None else None,
        "gen_ai.usage.output_tokens": usage.output if usage is not None else None,
        "cnllm.protocol": entry.protocol,
        "cnllm.upstream_protocol": entry.upstream_protocol,
        "cnllm.key": entry.key,
        "cnllm.outcome": outcome_of(entry),  # the words of an error may quote a prompt
        "cnllm.first_token_seconds": entry.first,
        "cnllm.cut": entry.cut,
        "cnllm.tool_calls": entry.tool_calls,
        "cnllm.tool_errors": entry.tool_errors,
        "cnllm.broken_chain": entry.broken,
        "cnllm.notes": [note.code for note in entry.notes] or None,
    }
