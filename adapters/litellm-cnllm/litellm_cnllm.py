"""Every model of cnllm as a provider of LiteLLM: `litellm.completion("cnllm/glm-4.7", …)` after `register()`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import litellm
from litellm import CustomLLM, ModelResponse
from litellm.types.utils import GenericStreamingChunk

import cnllm

__all__ = ["CnllmProvider", "register"]

_NAMES = {"max_completion_tokens": "max_tokens", "reasoning_effort": "reasoning"}
_UNUSED = {"stream", "stream_options", "response_format", "n", "user", "max_retries"}


class CnllmProvider(CustomLLM):
    """A provider of LiteLLM. `options` are options of a client of cnllm, such as `simulate=True`."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._client, self._async = cnllm.Client(**options), cnllm.AsyncClient(**options)

    def completion(self, model: str, messages: list[Any], *args: Any, **given: Any) -> ModelResponse:
        reply = self._client.call(model, _history(messages), **_options(given))
        return _response(reply, given["model_response"])

    async def acompletion(self, model: str, messages: list[Any], *args: Any, **given: Any) -> ModelResponse:
        reply = await self._async.call(model, _history(messages), **_options(given))
        return _response(reply, given["model_response"])

    def streaming(self, model: str, messages: list[Any], *args: Any, **given: Any) -> Iterator[GenericStreamingChunk]:
        with self._client.stream(model, _history(messages), **_options(given)) as stream:
            yield from (chunk for event in stream if (chunk := _chunk(event)))
            yield from _last(stream.reply)

    async def astreaming(
        self, model: str, messages: list[Any], *args: Any, **given: Any
    ) -> AsyncIterator[GenericStreamingChunk]:
        async with self._async.stream(model, _history(messages), **_options(given)) as stream:
            async for event in stream:
                if chunk := _chunk(event):
                    yield chunk
            for chunk in _last(stream.reply):
                yield chunk


def register(**options: Any) -> CnllmProvider:
    """Make `cnllm/NAME` a model of LiteLLM, and return its provider."""
    provider = CnllmProvider(**options)
    litellm.custom_provider_map = [
        *(one for one in litellm.custom_provider_map if one["provider"] != "cnllm"),
        {"provider": "cnllm", "custom_handler": provider},
    ]
    litellm.utils.custom_llm_setup()
    return provider


def _options(given: dict[str, Any]) -> dict[str, Any]:
    params = given["optional_params"]
    options = {_NAMES.get(name, name): value for name, value in params.items() if name not in _UNUSED}
    if shape := params.get("response_format"):
        shape = shape if isinstance(shape, dict) else {"json_schema": {"schema": shape.model_json_schema()}}
        options["schema"] = shape.get("json_schema", {}).get("schema") or {"type": "object"}
    if isinstance(given.get("timeout"), int | float):
        options["timeout"] = given["timeout"]
    known = cnllm.CallOptions.__annotations__
    return {name: value for name, value in options.items() if name in known and value is not None}


def _history(messages: list[Any]) -> list[Any]:
    """Return the messages; one that a model of cnllm wrote goes back with all that its endpoint wants."""
    history = []
    for message in messages:
        data = message if isinstance(message, dict) else message.model_dump(exclude_none=True)
        own = (data.get("provider_specific_fields") or {}).get("cnllm")
        history.append(own if own and cnllm.Message.from_dict(own).text == (data.get("content") or "") else data)
    return history


def _fields(reply: cnllm.Reply[Any]) -> dict[str, Any]:
    cost = reply.cost
    return {
        "cnllm": reply.message.to_dict(),
        "notes": [str(note) for note in reply.notes],
        "cost": cost and {"amount": str(cost.amount), "currency": cost.currency, "complete": cost.complete},
    }


def _calls(reply: cnllm.Reply[Any]) -> list[dict[str, Any]]:
    if broken := [call for call in [*reply.incomplete, *reply.tool_calls] if call.arguments is None]:
        raise litellm.APIConnectionError(f"the call of {broken[0].name} is incomplete", "cnllm", reply.model or "")
    named = [(call.id, {"name": call.name, "arguments": json.dumps(call.arguments)}) for call in reply.tool_calls]
    return [{"id": key, "type": "function", "function": function} for key, function in named]


def _usage(reply: cnllm.Reply[Any]) -> dict[str, Any] | None:
    usage = reply.usage
    if usage.input is None or usage.output is None:
        return None
    counts: dict[str, Any] = {"prompt_tokens": usage.input, "completion_tokens": usage.output}
    counts["total_tokens"] = usage.input + usage.output
    counts["prompt_tokens_details"] = {"cached_tokens": usage.cached or 0}
    return counts | {"completion_tokens_details": {"reasoning_tokens": usage.reasoning or 0}}


def _response(reply: cnllm.Reply[Any], response: ModelResponse) -> ModelResponse:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "provider_specific_fields": _fields(reply)}
    message |= {"reasoning_content": reply.reasoning} if reply.reasoning else {}
    message |= {"tool_calls": calls} if (calls := _calls(reply)) else {}
    response.choices = [litellm.Choices(finish_reason=reply.finish, index=0, message=litellm.Message(**message))]
    response.model = reply.model or response.model
    if counts := _usage(reply):
        response.usage = litellm.Usage(**counts)
    if reply.cost and reply.cost.complete and reply.cost.currency == "USD":
        cost = {"llm_provider-x-litellm-response-cost": float(reply.cost.amount)}
        response._hidden_params["additional_headers"] = cost  # from here LiteLLM takes the cost of a call
    return response


def _chunk(event: Any) -> GenericStreamingChunk | None:
    """Return what LiteLLM shows of an event while it comes."""
    if isinstance(event, cnllm.Restarted):
        raise RuntimeError("the reply began again with other text, which a stream of LiteLLM cannot take back")
    text, extra = "", None
    if isinstance(event, cnllm.TextDelta):
        text = event.text
    elif isinstance(event, cnllm.ReasoningDelta):
        extra = {"reasoning_content": event.text}
    if not text and extra is None:
        return None
    chunk = GenericStreamingChunk(text=text, is_finished=False, finish_reason="", usage=None, index=0)
    return {**chunk, "tool_use": None, "provider_specific_fields": extra}


def _last(reply: cnllm.Reply[Any]) -> Iterator[GenericStreamingChunk]:
    """Yield the calls, which are known to be whole, and the end."""
    whole = GenericStreamingChunk(text="", is_finished=False, finish_reason="", usage=None, index=0)
    for index, call in enumerate(_calls(reply)):
        yield {**whole, "tool_use": {**call, "index": index}}
    end: Any = {"is_finished": True, "finish_reason": reply.finish or "stop", "usage": _usage(reply)}
    yield {**whole, **end, "tool_use": None, "provider_specific_fields": _fields(reply)}
