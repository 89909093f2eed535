"""What a `call` table may hold: the options of a call."""

from typing import Annotated, Any, Literal

from cnllm.registry.flags.describe import Base, flag

__all__ = ["Call"]


class Call(Base, frozen=True):
    """What a `call` table may hold: options that a call has unless it names its own."""

    reasoning: Annotated[
        Literal["off", "on", "minimal", "low", "medium", "high", "xhigh", "max"] | int | None,
        flag("off, on, a level, or a number of tokens."),
    ] = None
    stream: Annotated[
        bool | None, flag("Whether it is streamed where the verb does not say: `cnllm call`, `plan`.")
    ] = None
    tools: Annotated[list[dict[str, Any]] | None, flag("The tools that are offered.")] = None
    tool_choice: Annotated[str | None, flag("auto, none, required, or a tool's name.")] = None
    parallel_tool_calls: Annotated[bool | None, flag("Whether it may call several tools at once.")] = None
    temperature: Annotated[float | None, flag("How freely it samples.")] = None
    top_p: Annotated[float | None, flag("The share of probability it samples from.")] = None
    max_tokens: Annotated[int | None, flag("The most tokens of the reply.")] = None
    stop: Annotated[str | list[str] | None, flag("What ends the reply: a text, or a list of them.")] = None
    seed: Annotated[int | None, flag("What makes sampling repeatable.")] = None
    schema: Annotated[dict[str, Any] | None, flag("The JSON Schema of the answer.")] = None
    corrections: Annotated[int | None, flag("How often an answer that is not valid is sent back.")] = None
    extra_body: Annotated[dict[str, Any] | None, flag("Merged into the body last, below the call's own.")] = None
    extra_headers: Annotated[dict[str, str] | None, flag("Further headers, below the call's own.")] = None
    on_unsupported: Annotated[
        Literal["adjust", "error", "send"] | None, flag("What becomes of what a call asks for and cannot have.")
    ] = None
    if_cut: Annotated[
        Literal["error", "again-whole", "keep"] | None, flag("What becomes of a stream that was cut.")
    ] = None
    recover_text_calls: Annotated[
        Literal["recover", "strip", "keep"] | None, flag("What becomes of tool calls written as text.")
    ] = None
