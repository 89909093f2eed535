"""Spans of a gateway, by OpenTelemetry's own SDK: a request and the calls that it needs are one trace."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from cnllm.client.async_client import AsyncClient
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running
from cnllm.types.policy import Retry

from .support import KEY, Answer, Upstream, call, error, registry_for, say

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from cnllm.gateway.monitoring.spans import ServerSpans

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
SECRET = "a-secret-word-of-the-client"


def test_a_request_and_its_calls_are_one_trace(tmp_path: Path) -> None:
    cut, refusal = Answer([{"content": "a"}], cut=True), error(400, f"cannot process '{SECRET}'")
    upstream = Upstream(error(500, "busy"), call("Paris"), say("Good day"), cut, refusal)
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = ServerSpans(provider.get_tracer("test"))
    registry = registry_for(upstream, tmp_path, "zai")
    client = AsyncClient(
        registry, api_key="sk-of-the-provider", retry=Retry(attempts=2, base=0.0), on_event=spans.calls
    )
    gateway = Gateway(registry, client=client, keys=[KEY], spans=spans)

    def ask(**more: object) -> httpx.Response:
        body = {"model": "glm-4.7", "messages": [{"role": "user", "content": SECRET}], **more}
        return http.post("/v1/chat/completions", json=body, headers=PARENT)

    def finished(count: int) -> list[ReadableSpan]:
        deadline = time.monotonic() + 10  # a span ends just after the last byte of its response
        while len(found := exporter.get_finished_spans()) < count and time.monotonic() < deadline:
            time.sleep(0.005)
        assert len(found) == count
        exporter.clear()
        return list(found)

    headers = {"authorization": f"Bearer {KEY}"}
    with running(gateway) as url, httpx.Client(base_url=url, headers=headers, timeout=30) as http:
        assert ask().status_code == 200
        inner, outer = finished(2)
        assert outer.name == "POST generate"
        assert outer.kind is SpanKind.SERVER
        assert outer.context is not None
        assert f"{outer.context.trace_id:x}".rjust(32, "0") == TRACE
        assert outer.parent is not None
        assert inner.parent is not None
        assert inner.parent.span_id == outer.context.span_id
        assert inner.kind is SpanKind.CLIENT
        assert [event.name for event in inner.events] == ["cnllm.retrying"]
        attributes = dict(outer.attributes or {})
        assert attributes["http.response.status_code"] == 200
        assert attributes["gen_ai.request.model"] == "zai/glm-4.7"
        assert attributes["cnllm.tool_calls"] == 1
        assert attributes["cnllm.protocol"] == "openai-chat"
        assert [attributes[f"gen_ai.usage.{kind}_tokens"] for kind in ("input", "output")] == [1234, 56]

        assert ask(stream=True).status_code == 200
        inner, outer = finished(2)
        assert inner.parent is not None
        assert outer.context is not None
        assert inner.parent.span_id == outer.context.span_id

        ask(stream=True)
        *_, outer = finished(2)
        assert dict(outer.attributes or {})["cnllm.cut"] is True
        assert dict(outer.attributes or {})["cnllm.outcome"] == "cut"
        assert outer.status.status_code is StatusCode.ERROR

        assert SECRET in ask().text
        spans_of_refusal = finished(2)
        assert SECRET not in "".join(span.to_json() for span in spans_of_refusal)
        assert dict(spans_of_refusal[-1].attributes or {})["cnllm.outcome"] == "failed"

        assert ask(model="no-such-model").status_code == 404
        (outer,) = finished(1)
        assert dict(outer.attributes or {})["http.response.status_code"] == 404

        assert http.get(f"/v1beta/models?key={KEY}").status_code == 200
        (outer,) = finished(1)
        text = outer.to_json()
        assert KEY not in text

        assert http.get(f"/v1/responses/{KEY}").status_code == 404
        (outer,) = finished(1)
        assert dict(outer.attributes or {})["url.path"] == "/v1/responses/[redacted]"
        assert KEY not in outer.to_json()
    assert SECRET not in text
