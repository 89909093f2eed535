"""The options of a call, as types: for wrappers (`**options: Unpack[CallOptions]`), for editors and for the manual.

All are optional; one that is None counts as not given. A further parameter that a model's registry entry names under
`params` is an option of that name, too; type checkers do not know it, so pass it in `params`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypedDict

from cnllm.types import Step, ToolCall
from cnllm.types.parts import Content
from cnllm.types.policy import Fallback, IfCut, Limits, OnUnsupported, Recovery, TextCalls, Timeouts

if TYPE_CHECKING:
    from typing import _SpecialForm as SpecialForm

    from typing_extensions import TypeVar

    Answer = TypeVar("Answer", default=None)  # the type of `reply.parsed`; without a schema there is none
else:
    from typing import Any as SpecialForm

__all__ = ["CallOptions", "LoopOptions", "MCPTool", "RunOptions", "Schema", "TextUnit", "ToolLike"]


class MCPTool(Protocol):
    """A tool as MCP's SDK describes it."""

    @property
    def name(self) -> str:
        """Return the name."""

    @property
    def inputSchema(self) -> Any:
        """Return the JSON Schema of the arguments."""


class PlainFunction(Protocol):
    """A function whose signature a type checker has lost: one of a list of several kinds."""

    @property
    def __code__(self) -> Any:
        """Return the code."""


class SetOfTools(Protocol):
    """One value that stands for several tools: those of a server, as `cnllm.mcp` returns them."""

    @property
    def label(self) -> str:
        """Return the word that the names of the tools begin with."""

    def tools(self, label: str | None = None) -> Sequence[Any]:
        """Return the tools."""


class MixedList(Protocol):
    """A list of tools of several kinds, which a type checker sees as `list[object]`."""

    def append(self, item: object, /) -> None:
        """Append an item of any type."""

    def __len__(self) -> int:
        """Return the number of items."""


ToolLike = Callable[..., Any] | Mapping[str, Any] | MCPTool | PlainFunction | SetOfTools
"""A tool: a typed function, a `cnllm.Tool`, a definition, or the tools of a server (`cnllm.mcp`)."""

Schema = type[Any] | Mapping[str, Any] | UnionType | SpecialForm
"""A schema of an answer: a type of Python, or a JSON Schema."""

TextUnit = Literal["sentence"] | None
"""The unit in which a stream gives its text: whole sentences, or what arrives."""


class BaseOptions(TypedDict, total=False):
    """The options of a call but `schema`, which decides the type of `reply.parsed`."""

    system: Content | None
    """a system message that goes before the messages, which are not changed"""

    reasoning: Literal["off", "on", "none", "minimal", "low", "medium", "high", "xhigh", "max"] | int | None
    """whether and how much the model reasons: `"off"`, `"on"`, a level from `"minimal"` to `"max"`, or a number of
    tokens; left out: the endpoint's default, unless the model's `call` table has another"""

    tools: Sequence[ToolLike] | MixedList | None
    """functions, plain or under `@cnllm.tool`, the tools of MCP servers (`cnllm.mcp`), or definitions: OpenAI's, bare
    ones (`name`, `description`, `parameters`), or MCP's"""

    tool_choice: str | Mapping[str, Any] | None
    """`"auto"`, `"none"`, `"required"`, or a tool's name; the objects of the chat and messages wires are understood"""

    parallel_tool_calls: bool | None
    """whether the model may call several tools in one reply"""

    temperature: float | None
    """how freely the model samples; clamped or left out with a note"""

    top_p: float | None
    """the share of probability it samples from; clamped or left out with a note"""

    max_tokens: int | None
    """the most tokens of the reply, under the name that the endpoint uses"""

    stop: str | Sequence[str] | None
    """a text that ends the reply, or a list of them"""

    seed: int | None
    """makes sampling repeatable, where the endpoint can"""

    top_k: int | None
    """the number of tokens it samples from"""

    presence_penalty: float | None
    """makes tokens that have occurred less likely"""

    frequency_penalty: float | None
    """makes tokens less likely each time they occur"""

    logit_bias: Mapping[str, float] | None
    """the bias of each token"""

    logprobs: bool | None
    """whether the endpoint reports log probabilities; they are in `reply.extra` as `logprobs`"""

    top_logprobs: int | None
    """the number of likeliest tokens in them"""

    reasoning_effort: str | None
    """the endpoint's own word for how much the model reasons, where its registry entry names this parameter;
    `reasoning` works everywhere"""

    params: Mapping[str, Any] | None
    """parameters by name, the endpoint's own too: they follow the registry's rules, a typing error and what the call
    sets itself (`model`, `messages`, `stream`) are refused, and one that nothing is known of is sent with a note"""

    corrections: int | None
    """how often an answer that is not valid is sent back; left out: once, and never for a stream"""

    recover_text_calls: TextCalls | None
    """what happens to tool calls that the model wrote as text; left out: as the registry says"""

    if_cut: IfCut | None
    """what happens to a stream that was cut: raise `StreamCut`, ask again without streaming, or keep what came; left
    out: as the registry says"""

    recovery: Recovery | Mapping[str, Any] | None
    """what is tried where a reply breaks off; what is left out of it is as the registry says (`recovery.*`)"""

    on_unsupported: OnUnsupported | None
    """how to treat a value that the endpoint does not take: adjust it with a note (the default), raise `CannotSend`, or
    send it as it is"""

    prefill: bool | None
    """the last message is the beginning of the reply, for the model to go on from"""

    pdf_text: bool | None
    """whether the text of a PDF is sent to a model that reads no PDFs (extra `pdf`)"""

    extra_body: Mapping[str, Any] | None
    """merged into the body last, verbatim, whatever the endpoint takes; a note says what it refuses, or what of the
    call's own it replaces"""

    extra_headers: Mapping[str, str] | None
    """further headers, verbatim"""

    timeout: float | Timeouts | None
    """seconds, or `Timeouts(connect=, first_byte=, idle=, progress=)` in seconds each"""

    limits: Limits | None
    """how many bytes of a reply are taken: `Limits(max_reply_bytes=, max_event_bytes=)`; 128 MiB and 64 MiB"""

    api_key: str | None
    """this key, wherever the call goes; left out: the environment, or the keys file"""

    tag: str | None
    """a name by which `cnllm logs cost` groups calls, of up to 100 printable characters; it is never sent"""

    fallback: list[str] | tuple[str, ...] | Fallback | Mapping[str, Any] | None
    """the models that take over where the first one fails: a list of names, or a `Fallback` with further rules; an
    empty list switches the client's off"""


class CallOptions(BaseOptions, total=False):
    """The options of `call`, `stream`, `plan`, `run`, `fit` and `engine.build_request`."""

    schema: Schema | None
    """what the answer follows, as `reply.parsed`: a pydantic model, a dataclass, another type of Python, or a JSON
    Schema"""


class LoopOptions(TypedDict, total=False):
    """The options that `run` and `run_stream` take beside those of a call."""

    max_steps: int
    """the most calls of the model"""

    max_repeats: int | None
    """how many times the same calls may give the same results, one step after the other or in circles of up to
    `recovery.cycle` steps; at least 2, `None` for no limit"""

    max_parallel: int
    """the most tools that run at a time"""

    tool_timeout: float | None
    """seconds for a tool without a `timeout` of its own; `None` for no limit"""

    approve: Callable[[ToolCall], bool | str | Awaitable[bool | str | None] | None] | None
    """called before a tool runs: `approve(call)` → `True`, `False`, or the reason for no, in words"""

    on_step: Callable[[Step], object] | None
    """called after each step: `.calls`, `.results`, `.called`, `.returned`, `.seconds`, `.reply`, `.notes`, and `.run`
    on the last one"""


class RunOptions(CallOptions, LoopOptions, total=False):
    """The options of `run` and `run_stream`."""


if TYPE_CHECKING:  # a generic class of options would import more at run time

    class TypedOptions(BaseOptions, Generic[Answer], total=False):
        """The options of a call whose schema is a type, which `reply.parsed` has then."""

        schema: type[Answer] | None

    class TypedRunOptions(TypedOptions[Answer], LoopOptions, total=False):
        """The options of a tool loop whose schema is a type."""
