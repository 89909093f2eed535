"""Every model of cnllm as a model of smolagents: `CodeAgent(tools=[], model=CnllmModel("glm-4.7"))`."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

from smolagents.models import (
    ChatMessage,
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
    MessageRole,
    Model,
    remove_content_after_stop_sequences,
)
from smolagents.monitoring import TokenUsage

import cnllm

__all__ = ["CnllmModel"]


class CnllmModel(Model):
    """A model by any name that cnllm knows. `raw` of a message is the reply: reasoning, notes, cost.

    `client` are options of `cnllm.Client`, such as `{"simulate": True}`; further options are those of a call.
    """

    def __init__(self, model_id: str, client: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(model_id=model_id, **options)
        self._client = cnllm.Client(**(client or {}))

    @property
    def supports_stop_parameter(self) -> bool:
        return False  # not every endpoint takes it: what follows a stop sequence is removed here

    def generate(
        self,
        messages: list[Any],
        stop_sequences: list[str] | None = None,
        response_format: dict[str, Any] | None = None,
        tools_to_call_from: list[Any] | None = None,
        **kwargs: Any,
    ) -> ChatMessage:
        """Call the model. Raises `ValueError` where the arguments of a call are incomplete."""
        history, options = self._request(messages, response_format, tools_to_call_from, kwargs)
        reply = self._client.call(self.model_id, history, **options)
        calls = [
            ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), identity, "function")
            for name, arguments, identity in _calls(reply)
        ]
        text = remove_content_after_stop_sequences(reply.text, stop_sequences) if stop_sequences else reply.text
        return ChatMessage(MessageRole.ASSISTANT, text, calls or None, raw=reply, token_usage=_usage(reply))

    def generate_stream(
        self,
        messages: list[Any],
        stop_sequences: list[str] | None = None,
        response_format: dict[str, Any] | None = None,
        tools_to_call_from: list[Any] | None = None,
        **kwargs: Any,
    ) -> Generator[ChatMessageStreamDelta]:
        """Yield the text as it comes, and the calls when the reply is known to be whole."""
        history, options = self._request(messages, response_format, tools_to_call_from, kwargs)
        shown = ""
        with self._client.stream(self.model_id, history, **options) as stream:
            for event in stream:
                if isinstance(event, cnllm.Restarted):
                    raise RuntimeError("the reply began again with other text, which a stream cannot take back")
                if isinstance(event, cnllm.TextDelta):
                    whole = shown + event.text
                    whole = remove_content_after_stop_sequences(whole, stop_sequences) if stop_sequences else whole
                    if len(whole) > len(shown):
                        yield ChatMessageStreamDelta(content=whole[len(shown) :])
                        shown = whole
            reply = stream.reply
        calls = [
            ChatMessageToolCallStreamDelta(
                index, identity, "function", ChatMessageToolCallFunction(json.dumps(arguments), name)
            )
            for index, (name, arguments, identity) in enumerate(_calls(reply))
        ]
        yield ChatMessageStreamDelta(content="", tool_calls=calls or None, token_usage=_usage(reply))

    def _request(self, messages: list[Any], schema: Any, tools: Any, given: dict[str, Any]) -> tuple[Any, Any]:
        options = self._prepare_completion_kwargs(
            messages=messages, tools_to_call_from=tools, convert_images_to_image_urls=True, **given
        )
        if schema is not None:
            options["schema"] = schema["json_schema"]["schema"]
        return options.pop("messages"), options


def _calls(reply: cnllm.Reply[Any]) -> list[tuple[str, dict[str, Any], str]]:
    if broken := [call for call in [*reply.incomplete, *reply.tool_calls] if call.arguments is None]:
        raise ValueError(f"the call of {broken[0].name} is incomplete: {broken[0].problem or 'cut'}")
    return [(call.name, dict(call.arguments or {}), call.id) for call in reply.tool_calls]


def _usage(reply: cnllm.Reply[Any]) -> TokenUsage | None:
    usage = reply.usage
    return None if usage.input is None or usage.output is None else TokenUsage(usage.input, usage.output)
