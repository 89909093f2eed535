"""A plugin of llm: `llm -m cnllm/glm-4.7`, with tools, schemas, attachments, reasoning and cnllm's own keys."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import llm
from llm.parts import StreamEvent
from pydantic import Field

import cnllm

__all__ = ["AsyncCnllmModel", "CnllmModel", "register_models"]

_SIMULATE = "CNLLM_LLM_SIMULATE"
_MEDIA = {"image/png", "image/jpeg", "image/webp", "image/gif", "application/pdf", "audio/wav", "video/mp4"}


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Register every short name that cnllm knows, as `cnllm/NAME`."""
    registry = cnllm.Registry.load()
    for name in sorted({*registry.aliases, *registry.family_aliases}):
        register(CnllmModel(name), AsyncCnllmModel(name))


class CnllmModel(llm.KeyModel):
    """A model by its name at cnllm. Its key is cnllm's: a variable of the environment, or `cnllm keys set`."""

    can_stream = supports_tools = supports_schema = True
    attachment_types = _MEDIA

    class Options(llm.Options):
        """Options of a call: `-o reasoning high`."""

        temperature: float | None = Field(default=None, description="How much chance there is in the answer")
        max_tokens: int | None = Field(default=None, description="The most tokens of the answer")
        reasoning: str | None = Field(default=None, description="off, on, or a level: low, medium, high, max")
        seed: int | None = Field(default=None, description="The seed of a repeatable answer")

    def __init__(self, name: str) -> None:
        self.name, self.model_id = name, f"cnllm/{name}"

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any, key: str | None = None) -> Any:
        """Call the model, and yield text and reasoning as they come."""
        with cnllm.Client(api_key=key, simulate=os.environ.get(_SIMULATE) == "1") as client:
            if stream:
                with client.stream(self.name, **_request(prompt)) as events:
                    yield from filter(None, map(_shown, events))
                    reply = events.reply
            else:
                reply = client.call(self.name, **_request(prompt))
                yield from (StreamEvent("reasoning", reply.reasoning), StreamEvent("text", reply.text))
        _keep(response, reply)


class AsyncCnllmModel(llm.AsyncKeyModel):
    """The same for programs with an event loop: `llm.get_async_model`. It always asks the endpoint for a stream."""

    can_stream = supports_tools = supports_schema = True
    attachment_types = _MEDIA
    Options: Any = CnllmModel.Options

    def __init__(self, name: str) -> None:
        self.name, self.model_id = name, f"cnllm/{name}"

    async def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any, key: Any = None) -> Any:
        client = cnllm.AsyncClient(api_key=key, simulate=os.environ.get(_SIMULATE) == "1")
        async with client, client.stream(self.name, **_request(prompt)) as events:
            async for event in events:
                if shown := _shown(event):
                    yield shown
            _keep(response, events.reply)


def _request(prompt: Any) -> dict[str, Any]:
    options = {name: value for name, value in prompt.options.model_dump().items() if value is not None}
    options |= {"tools": [_tool(tool) for tool in prompt.tools]} if prompt.tools else {}
    options |= {"schema": prompt.schema} if prompt.schema else {}
    return {"messages": [each for message in prompt.messages for each in _messages(message)], **options}


def _keep(response: Any, reply: cnllm.Reply[Any]) -> None:
    """Keep the calls, the usage and the log of a whole reply."""
    for call in reply.tool_calls:
        if call.arguments is not None:
            response.add_tool_call(llm.ToolCall(call.name, dict(call.arguments), call.id))
    usage, cost = reply.usage, reply.cost
    known = {name: n for name, n in (("reasoning", usage.reasoning), ("cached", usage.cached)) if n is not None}
    response.set_usage(input=usage.input, output=usage.output, details=known or None)
    response.set_resolved_model(reply.model or response.model.name)
    response.response_json = {
        "finish": reply.finish,
        "notes": [str(note) for note in reply.notes],
        "cost": cost and {"amount": str(cost.amount), "currency": cost.currency, "complete": cost.complete},
        "incomplete": [call.raw for call in reply.incomplete],
    }


def _shown(event: Any) -> StreamEvent | None:
    """Return what llm shows of an event."""
    if isinstance(event, cnllm.Restarted):
        raise llm.ModelError("the reply began again with other text, which a stream cannot take back")
    if isinstance(event, cnllm.TextDelta):
        return StreamEvent("text", event.text)
    return StreamEvent("reasoning", event.text) if isinstance(event, cnllm.ReasoningDelta) else None


def _tool(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _messages(message: Any) -> Iterator[dict[str, Any]]:
    """Yield a message of llm as messages of OpenAI's form, each result of a tool as one of its own."""
    content: list[dict[str, Any]] = []
    calls, reasoning = [], ""
    for part in message.parts:
        kind = type(part).__name__
        if kind == "TextPart":
            content.append({"type": "text", "text": part.text})
        elif kind == "ReasoningPart":
            reasoning += part.text
        elif kind == "AttachmentPart":
            content.append(_media(part.attachment))
        elif kind == "ToolCallPart":
            function = {"name": part.name, "arguments": json.dumps(part.arguments, ensure_ascii=False)}
            calls.append({"id": part.tool_call_id, "type": "function", "function": function})
        elif kind == "ToolResultPart":
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.output}
    if content or calls:
        out: dict[str, Any] = {"role": message.role, "content": content or None}
        yield {**out, **({"tool_calls": calls} if calls else {}), **({"reasoning": reasoning} if reasoning else {})}


def _media(attachment: Any) -> dict[str, Any]:
    kind = attachment.resolve_type()
    url = attachment.url or f"data:{kind};base64,{attachment.base64_content()}"
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if kind.startswith("audio/"):
        form = "wav" if kind.endswith("wav") else "mp3"
        return {"type": "input_audio", "input_audio": {"data": attachment.base64_content(), "format": form}}
    if kind.startswith("video/"):
        return {"type": "video_url", "video_url": {"url": url}}
    return {"type": "file", "file": {"filename": "document.pdf", "file_data": url}}
