"""The default options of a call, as a table of the registry."""

from typing import Any, Literal

from cnllm.registry.flags.describe import Base
from cnllm.types.policy import IfCut, OnUnsupported, TextCalls

__all__ = ["CallFlags"]


class CallFlags(Base, frozen=True):
    """The `call` table: the options of a call that does not set its own."""

    reasoning: Literal["off", "on", "minimal", "low", "medium", "high", "xhigh", "max"] | int | None = None
    """off, on, a level, or a number of tokens."""
    stream: bool | None = None
    """Whether the reply is streamed where the method leaves it open: `cnllm call`, `plan`."""
    tools: list[dict[str, Any]] | None = None
    """The tools that are offered."""
    tool_choice: str | None = None
    """auto, none, required, or a tool's name."""
    parallel_tool_calls: bool | None = None
    """Whether the model may call several tools at once."""
    temperature: float | None = None
    """The sampling temperature."""
    top_p: float | None = None
    """The probability mass of nucleus sampling."""
    max_tokens: int | None = None
    """The most tokens of the reply."""
    stop: str | list[str] | None = None
    """The stop texts: one text, or a list."""
    seed: int | None = None
    """The seed of sampling."""
    schema: dict[str, Any] | None = None
    """The JSON Schema of the answer."""
    corrections: int | None = None
    """How often an answer that does not follow the schema is sent back for correction."""
    extra_body: dict[str, Any] | None = None
    """Merged into the body last, below the call's own."""
    extra_headers: dict[str, str] | None = None
    """Further headers, below the call's own."""
    on_unsupported: OnUnsupported | None = None
    """What happens to an option that the endpoint does not support."""
    if_cut: IfCut | None = None
    """What happens to a stream that was cut."""
    pdf_text: bool | None = None
    """Whether the text of a PDF is sent to a model that reads no PDFs (extra `pdf`)."""
    recover_text_calls: TextCalls | None = None
    """What happens to tool calls written as text."""
