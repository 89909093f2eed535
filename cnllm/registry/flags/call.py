"""The default options of a call, as a table of the registry."""

from typing import Annotated, Any, Literal

from cnllm.registry.flags.describe import Base, flag
from cnllm.types.policy import IfCut, OnUnsupported, TextCalls

__all__ = ["CallFlags"]


class CallFlags(Base, frozen=True):
    """The `call` table: the options of a call that does not set its own."""

    reasoning: Annotated[
        Literal["off", "on", "minimal", "low", "medium", "high", "xhigh", "max"] | int | None,
        flag("off, on, a level, or a number of tokens."),
    ] = None
    stream: Annotated[
        bool | None, flag("Whether the reply is streamed where the method leaves it open: `cnllm call`, `plan`.")
    ] = None
    tools: Annotated[list[dict[str, Any]] | None, flag("The tools that are offered.")] = None
    tool_choice: Annotated[str | None, flag("auto, none, required, or a tool's name.")] = None
    parallel_tool_calls: Annotated[bool | None, flag("Whether the model may call several tools at once.")] = None
    temperature: Annotated[float | None, flag("The sampling temperature.")] = None
    top_p: Annotated[float | None, flag("The probability mass of nucleus sampling.")] = None
    max_tokens: Annotated[int | None, flag("The most tokens of the reply.")] = None
    stop: Annotated[str | list[str] | None, flag("The stop texts: one text, or a list.")] = None
    seed: Annotated[int | None, flag("The seed of sampling.")] = None
    schema: Annotated[dict[str, Any] | None, flag("The JSON Schema of the answer.")] = None
    corrections: Annotated[
        int | None, flag("How often an answer that does not follow the schema is sent back for correction.")
    ] = None
    extra_body: Annotated[dict[str, Any] | None, flag("Merged into the body last, below the call's own.")] = None
    extra_headers: Annotated[dict[str, str] | None, flag("Further headers, below the call's own.")] = None
    on_unsupported: Annotated[
        OnUnsupported | None, flag("What happens to an option that the endpoint does not support.")
    ] = None
    if_cut: Annotated[IfCut | None, flag("What happens to a stream that was cut.")] = None
    pdf_text: Annotated[
        bool | None, flag("Whether the text of a PDF is sent to a model that reads no PDFs (extra `pdf`).")
    ] = None
    recover_text_calls: Annotated[TextCalls | None, flag("What happens to tool calls written as text.")] = None
