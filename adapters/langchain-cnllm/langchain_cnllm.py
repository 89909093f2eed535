"""Every model of cnllm as a chat model of LangChain: `ChatCnllm(model="glm-4.7")`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field, PrivateAttr, SecretStr

import cnllm

__all__ = ["ChatCnllm"]


class ChatCnllm(BaseChatModel):
    """A model by any name that cnllm knows. `options` are further options of a call, such as `reasoning="high"`."""

    model: str
    temperature: float | None = None
    max_tokens: int | None = None
    stop: list[str] | None = Field(default=None, alias="stop_sequences")
    timeout: float | None = None
    max_retries: int | None = None
    api_key: SecretStr | None = None
    simulate: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    model_config = ConfigDict(populate_by_name=True)
    _client: cnllm.Client = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Make the client. It opens no connection before the first call."""
        key = self.api_key.get_secret_value() if self.api_key else None
        settings: dict[str, Any] = {"api_key": key, "simulate": self.simulate}
        if self.max_retries is not None:
            settings["retry"] = cnllm.Retry(attempts=self.max_retries + 1)
        self._client = cnllm.Client(**settings)

    @property
    def _llm_type(self) -> str:
        return "cnllm"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {
            **super()._get_ls_params(stop=stop, **kwargs),
            "ls_provider": "cnllm",
            "ls_model_name": kwargs.get("model", self.model),
        }

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Offer tools: functions, pydantic models, or tools of LangChain and OpenAI."""
        offered = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=offered, **({"tool_choice": tool_choice} if tool_choice else {}), **kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        model = kwargs.pop("model", self.model)
        return _result(self._client.call(model, _history(messages), **self._options(stop, kwargs)))

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        model = kwargs.pop("model", self.model)
        with self._client.stream(model, _history(messages), **self._options(stop, kwargs)) as stream:
            yield from (ChatGenerationChunk(message=chunk) for event in stream if (chunk := _chunk(event)))
            reply = stream.reply
        last = {**_facts(reply, "incomplete: "), "additional_kwargs": {}}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", chunk_position="last", **last))

    def _options(self, stop: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {"temperature": self.temperature, "max_tokens": self.max_tokens, "timeout": self.timeout}
        own["stop"] = stop or self.stop or None
        given = {name: value for name, value in given.items() if not name.startswith("ls_")}
        return {**{name: value for name, value in own.items() if value is not None}, **self.options, **given}


def _history(messages: list[BaseMessage]) -> list[dict[str, Any]]:
    """Return the messages; one that a model of cnllm wrote goes back with all that its endpoint wants."""
    history = []
    for message in messages:
        data: Any = convert_to_openai_messages([message])[0]
        if own := message.response_metadata.get("cnllm"):
            saved, ids = cnllm.Message.from_dict(own), [call["id"] for call in getattr(message, "tool_calls", ())]
            data = own if saved.text == message.text and [call.id for call in saved.tool_calls] == ids else data
        history.append(data)
    return history


def _facts(reply: cnllm.Reply[Any], mark: str = "") -> dict[str, Any]:
    """Return what text and calls do not hold. With a mark LangChain does not close the JSON of a call in a stream."""
    usage, cost = reply.usage, reply.cost
    broken = [*reply.incomplete, *(call for call in reply.tool_calls if call.arguments is None)]
    metadata = {
        "model_name": reply.model,
        "model_provider": "cnllm",
        "finish_reason": reply.finish,
        "notes": [str(note) for note in reply.notes],
        "cost": cost and {"amount": str(cost.amount), "currency": cost.currency, "complete": cost.complete},
        "cnllm": reply.message.to_dict(),
    }
    counts = None
    if usage.input is not None and usage.output is not None:
        counts = UsageMetadata(
            input_tokens=usage.input,
            output_tokens=usage.output,
            total_tokens=usage.input + usage.output,
            input_token_details={} if usage.cached is None else {"cache_read": usage.cached},
            output_token_details={} if usage.reasoning is None else {"reasoning": usage.reasoning},
        )
    return {
        "additional_kwargs": {"reasoning_content": reply.reasoning} if reply.reasoning else {},
        "response_metadata": metadata,
        "usage_metadata": counts,
        "invalid_tool_calls": [
            invalid_tool_call(name=c.name, args=mark + c.raw, id=c.id, error=c.problem or "cut") for c in broken
        ],
    }


def _result(reply: cnllm.Reply[Any]) -> ChatResult:
    whole = [call for call in reply.tool_calls if call.arguments is not None]
    calls = [tool_call(name=call.name, args=dict(call.arguments or {}), id=call.id) for call in whole]
    message = AIMessage(content=reply.text, tool_calls=calls, **_facts(reply))
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunk(event: Any) -> AIMessageChunk | None:
    """Return what LangChain shows of an event while it comes."""
    if isinstance(event, cnllm.Restarted):
        raise RuntimeError("the reply began again with other text, which a stream of LangChain cannot take back")
    if isinstance(event, cnllm.TextDelta):
        return AIMessageChunk(content=event.text)
    if isinstance(event, cnllm.ReasoningDelta):
        return AIMessageChunk(content="", additional_kwargs={"reasoning_content": event.text})
    if isinstance(event, cnllm.ToolCallEnd) and event.call.arguments is not None and not event.call.excluded:
        args = json.dumps(event.call.arguments, ensure_ascii=False)
        whole = tool_call_chunk(name=event.call.name, args=args, id=event.call.id, index=event.index)
        return AIMessageChunk(content="", tool_call_chunks=[whole])
    return None
