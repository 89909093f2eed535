"""Every model of cnllm in Inspect: `inspect eval task.py --model cnllm/glm-4.7`."""

from __future__ import annotations

import json
from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolFunction, ToolInfo

import cnllm

__all__ = ["CnllmAPI", "provider"]

_NAMES = {
    **{name: name for name in ("max_tokens", "temperature", "top_p", "top_k", "seed", "timeout", "extra_body")},
    **{name: name for name in ("presence_penalty", "frequency_penalty", "logit_bias", "parallel_tool_calls")},
    "stop_seqs": "stop",
    "reasoning_effort": "reasoning",
    "reasoning_tokens": "reasoning",
}
_STOP: Any = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls", "refusal": "content_filter"}


@modelapi(name="cnllm")
def provider() -> type[ModelAPI]:
    """Return the class for `--model cnllm/NAME`."""
    return CnllmAPI


class CnllmAPI(ModelAPI):
    """A model by any name that cnllm knows. `-M simulate=true` needs no key; so do other options of a client."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008
        **options: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        self._client = cnllm.AsyncClient(api_key=api_key, **options)
        registry = self._client.registry
        self._model = registry.resolve(model_name, base_url=base_url) if base_url else model_name

    async def aclose(self) -> None:
        await self._client.aclose()

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Call the model. A call that was cut off has a `parse_error`, which Inspect tells the model."""
        settings = config.model_dump(exclude_none=True)
        options: dict[str, Any] = {_NAMES[name]: value for name, value in settings.items() if name in _NAMES}
        if config.response_schema:
            options["schema"] = config.response_schema.json_schema.model_dump(exclude_none=True)
        if tools:
            options["tools"] = [_tool(tool) for tool in tools]
            named = isinstance(tool_choice, ToolFunction) and {"function": {"name": tool_choice.name}}
            options["tool_choice"] = {"type": "function", **named} if named else _choice(tool_choice)
        reply = await self._client.call(self._model, [_message(message) for message in input], **options)
        return _output(reply, self.model_name)


def _choice(choice: Any) -> str:
    return "required" if choice == "any" else choice


def _tool(tool: ToolInfo) -> dict[str, Any]:
    parameters = tool.parameters.model_dump(exclude_none=True)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _message(message: ChatMessage) -> Any:
    """Return a message; one that a model of cnllm wrote goes back with all that its endpoint wants."""
    if isinstance(message, ChatMessageTool):
        text = message.error.message if message.error else message.text
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}
    if not isinstance(message, ChatMessageAssistant):
        return {"role": message.role, "content": _content(message.content)}
    calls = message.tool_calls or []
    if own := (message.metadata or {}).get("cnllm"):
        saved = cnllm.Message.from_dict(own)
        if saved.text == message.text and [call.id for call in saved.tool_calls] == [call.id for call in calls]:
            return own
    functions = [{"name": call.function, "arguments": json.dumps(call.arguments)} for call in calls]
    made = [{"id": c.id, "type": "function", "function": f} for c, f in zip(calls, functions, strict=True)]
    return {"role": "assistant", "content": message.text, **({"tool_calls": made} if made else {})}


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    pictures = [(item, getattr(item, "image", None)) for item in content]
    return [
        {"type": "image_url", "image_url": {"url": url}} if url else {"type": "text", "text": item.text}
        for item, url in pictures
    ]


def _output(reply: cnllm.Reply[Any], name: str) -> ModelOutput:
    usage, cost = reply.usage, reply.cost
    content: list[Any] = [ContentReasoning(reasoning=reply.reasoning)] if reply.reasoning else []
    content += [ContentText(text=reply.text)] if reply.text else []
    calls = [ToolCall(call.id, call.name, dict(call.arguments or {}), _problem(call)) for call in reply.tool_calls]
    calls += [ToolCall(call.id or call.name, call.name, {}, _problem(call)) for call in reply.incomplete]
    message = ChatMessageAssistant(content=content, tool_calls=calls or None, model=name, source="generate")
    message.metadata = {"cnllm": reply.message.to_dict()}
    counts = None
    if usage.input is not None and usage.output is not None:
        counts = ModelUsage(
            input_tokens=usage.input - (usage.cached or 0),
            output_tokens=usage.output,
            total_tokens=usage.input + usage.output,
            input_tokens_cache_read=usage.cached,
            reasoning_tokens=usage.reasoning,
            total_cost=float(cost.amount) if cost and cost.complete and cost.currency == "USD" else None,
        )
    shown = cost and {"amount": str(cost.amount), "currency": cost.currency, "complete": cost.complete}
    return ModelOutput(
        model=reply.model or name,
        choices=[ChatCompletionChoice(message=message, stop_reason=_STOP.get(reply.finish, "unknown"))],
        usage=counts,
        metadata={"notes": [str(note) for note in reply.notes], "cost": shown},
    )


def _problem(call: Any) -> str | None:
    return None if call.arguments is not None else f"the arguments are incomplete: {call.problem or 'cut'}"
