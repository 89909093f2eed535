"""Every model of cnllm as a model of pydantic-ai: `Agent(CnllmModel("glm-4.7"))`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import ModelProfile, RequestUsage, UnexpectedModelBehavior
from pydantic_ai import messages as m
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, check_allow_model_requests

import cnllm

__all__ = ["CnllmModel"]

_FINISH: dict[Any, Any] = {"stop": "stop", "length": "length", "tool_calls": "tool_call", "refusal": "content_filter"}


class CnllmModel(Model):
    """A model by any name that cnllm knows. `options` are options of `cnllm.AsyncClient`, such as `simulate=True`."""

    def __init__(self, name: str, *, settings: Any = None, **options: Any) -> None:
        profile = ModelProfile(supports_json_schema_output=True, supports_thinking=True)
        super().__init__(settings=settings, profile=profile)
        self._name, self._client = name, cnllm.AsyncClient(**options)

    model_name = property(lambda self: self._name)
    system = property(lambda self: "cnllm")

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> m.ModelResponse:
        check_allow_model_requests()
        options = _options(*self.prepare_request(model_settings, model_request_parameters))
        reply = await self._client.call(self._name, _history(messages), **options)
        parts: list[m.ModelResponsePart] = [m.ThinkingPart(reply.reasoning)] if reply.reasoning else []
        parts += [m.TextPart(reply.text)] if reply.text else []
        parts += [m.ToolCallPart(call.name, dict(call.arguments or {}), call.id) for call in reply.tool_calls]
        return m.ModelResponse(parts, model_name=reply.model or self._name, provider_name="cnllm", **_facts(reply))

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        check_allow_model_requests()
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        async with self._client.stream(self._name, _history(messages), **_options(settings, parameters)) as stream:
            yield _Stream(parameters, stream, self._name)


@dataclass
class _Stream(StreamedResponse):
    stream: Any = None
    model_name: str = ""
    begin: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def _get_event_iterator(self) -> AsyncIterator[m.ModelResponseStreamEvent]:
        async for event in self.stream:
            manager = self._parts_manager
            if isinstance(event, cnllm.Restarted):
                raise RuntimeError("the reply began again with other text, which a stream cannot take back")
            shown: Any = []
            if isinstance(event, cnllm.TextDelta | cnllm.ReasoningDelta):
                add = manager.handle_text_delta if isinstance(event, cnllm.TextDelta) else manager.handle_thinking_delta
                shown = add(vendor_part_id=type(event).__name__, content=event.text)
            elif isinstance(event, cnllm.ToolCallEnd) and event.call.arguments is not None and not event.call.excluded:
                call: Any = {"tool_name": event.call.name, "args": dict(event.call.arguments)}
                shown = [manager.handle_tool_call_part(vendor_part_id=event.index, tool_call_id=event.call.id, **call)]
            for one in shown:
                yield one
        self._usage, self.provider_details, self.finish_reason = _facts(self.stream.reply).values()

    close_stream = property(lambda self: self.stream.close)
    provider_name = property(lambda self: "cnllm")
    provider_url = property(lambda self: None)
    timestamp = property(lambda self: self.begin)


def _options(settings: Any, parameters: ModelRequestParameters) -> dict[str, Any]:
    known = cnllm.CallOptions.__annotations__.keys() - {"tool_choice"}  # the offered tools say what may be called
    options = {name: value for name, value in (settings or {}).items() if name in known}
    options |= {"stop": settings["stop_sequences"]} if settings and "stop_sequences" in settings else {}
    if parameters.thinking is not None:
        options["reasoning"] = {"True": "on", "False": "off"}.get(str(parameters.thinking), parameters.thinking)
    if tools := [*parameters.declared_function_tools, *parameters.output_tools]:
        made = [
            {"name": t.name, "description": t.description or "", "parameters": t.parameters_json_schema} for t in tools
        ]
        options["tools"] = [{"type": "function", "function": function} for function in made]
        if not parameters.allow_text_output:
            options["tool_choice"] = "required"
    if parameters.output_mode == "native" and parameters.output_object:
        options["schema"] = parameters.output_object.json_schema
    return options


def _facts(reply: cnllm.Reply[Any]) -> dict[str, Any]:
    if broken := [call for call in [*reply.incomplete, *reply.tool_calls] if call.arguments is None]:
        raise UnexpectedModelBehavior(f"the call of {broken[0].name} is incomplete: {broken[0].problem or 'cut'}")
    usage, cost = reply.usage, reply.cost
    tokens = {"input_tokens": usage.input, "output_tokens": usage.output, "cache_read_tokens": usage.cached}
    counts: Any = {name: count for name, count in tokens.items() if count is not None}
    counts["details"] = {} if usage.reasoning is None else {"reasoning_tokens": usage.reasoning}
    counts["cost"] = cost.amount if cost and cost.complete and cost.currency == "USD" else None
    shown = cost and {"amount": str(cost.amount), "currency": cost.currency, "complete": cost.complete}
    details = {"message": reply.message.to_dict(), "notes": [str(note) for note in reply.notes], "cost": shown}
    return {"usage": RequestUsage(**counts), "provider_details": details, "finish_reason": _FINISH.get(reply.finish)}


def _history(messages: list[Any]) -> list[Any]:
    """Return the messages; one that a model of cnllm wrote goes back with all that its endpoint wants."""
    texts = [one.instructions for one in messages if getattr(one, "instructions", None)]
    history: list[Any] = [{"role": "system", "content": text} for text in texts[-1:]]
    for one in messages:
        history += [_answer(one)] if isinstance(one, m.ModelResponse) else [_part(part) for part in one.parts]
    return history


def _answer(message: m.ModelResponse) -> dict[str, Any]:
    calls = [part for part in message.parts if isinstance(part, m.ToolCallPart)]
    if own := (message.provider_details or {}).get("message"):
        saved, ids = cnllm.Message.from_dict(own), [call.tool_call_id for call in calls]
        if saved.text == (message.text or "") and [call.id for call in saved.tool_calls] == ids:
            return dict(own)
    functions = [{"name": call.tool_name, "arguments": call.args_as_json_str()} for call in calls]
    made = [{"id": c.tool_call_id, "type": "function", "function": f} for c, f in zip(calls, functions, strict=True)]
    return {"role": "assistant", "content": message.text, **({"tool_calls": made} if made else {})}


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, m.SystemPromptPart | m.UserPromptPart):
        return {"role": part.part_kind.partition("-")[0], "content": _content(part.content)}
    result = part.model_response() if isinstance(part, m.RetryPromptPart) else part.model_response_str()
    place = {"role": "tool", "tool_call_id": part.tool_call_id} if part.tool_name else {"role": "user"}
    return {**place, "content": result}


def _content(content: str | Sequence[Any]) -> Any:
    if isinstance(content, str):
        return content
    items: list[Any] = [(item, getattr(item, "data_uri", None) or getattr(item, "url", None)) for item in content]
    return [_media(item.media_type, url) if url else {"type": "text", "text": str(item)} for item, url in items]


def _media(kind: str, url: str) -> dict[str, Any]:
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": "file", "file_data": url}}
