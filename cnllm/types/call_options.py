"""The options of a call, as types: for wrappers (`**options: Unpack[CallOptions]`), and for the manual.

All are optional; one that is None counts as not given. A further parameter that the model's registry entry names under
`params` is an option of that name, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from cnllm.types.policy import Limits, Recovery, Timeouts

__all__ = ["CallOptions", "RunOptions"]


def _d(text: str) -> Meta:
    return Meta(description=text)


class CallOptions(TypedDict, total=False):
    """The options of `call`, `stream`, `plan`, `run`, `fit` and `engine.build_request`."""

    system: Annotated[
        str | Sequence[Any] | None, _d("a system message that goes before the messages, which are not changed")
    ]
    reasoning: Annotated[
        Literal["off", "on", "minimal", "low", "medium", "high", "xhigh", "max"] | int | None,
        _d(
            "whether and how much the model reasons: a level, or a number of tokens; left out: the endpoint's default, "
            "unless the model's `call` table has another"
        ),
    ]
    tools: Annotated[
        Sequence[Any] | None,
        _d(
            "functions, `cnllm.tool`s, the tools of MCP servers (`cnllm.mcp`), or definitions: OpenAI's, bare ones "
            "(`name`, `description`, `parameters`), or MCP's"
        ),
    ]
    tool_choice: Annotated[
        str | Mapping[str, Any] | None,
        _d(
            '`"auto"`, `"none"`, `"required"`, or a tool\'s name; the objects of the chat and messages wires are '
            "understood"
        ),
    ]
    parallel_tool_calls: Annotated[bool | None, _d("whether the model may call several tools in one reply")]
    temperature: Annotated[float | None, _d("how freely the model samples; clamped or left out with a note")]
    top_p: Annotated[float | None, _d("the share of probability it samples from; clamped or left out with a note")]
    max_tokens: Annotated[int | None, _d("the most tokens of the reply, under the name that the endpoint uses")]
    stop: Annotated[str | Sequence[str] | None, _d("a text that ends the reply, or a list of them")]
    seed: Annotated[int | None, _d("makes sampling repeatable, where the endpoint can")]
    top_k: Annotated[int | None, _d("the number of tokens it samples from")]
    presence_penalty: Annotated[float | None, _d("makes tokens that have occurred less likely")]
    frequency_penalty: Annotated[float | None, _d("makes tokens less likely each time they occur")]
    logit_bias: Annotated[Mapping[str, float] | None, _d("the bias of each token")]
    logprobs: Annotated[bool | None, _d("whether the endpoint reports log probabilities; they are in `reply.raw`")]
    top_logprobs: Annotated[int | None, _d("the number of likeliest tokens in them")]
    params: Annotated[
        Mapping[str, Any] | None,
        _d(
            "parameters by name, the endpoint's own too: they follow the registry's rules, a typing error is refused, "
            "and one that nothing is known of is sent with a note"
        ),
    ]
    schema: Annotated[
        Mapping[str, Any] | type[Any] | None,
        _d("a JSON Schema or a pydantic model that the answer follows: `reply.parsed`"),
    ]
    corrections: Annotated[
        int | None, _d("how often an answer that is not valid is sent back; left out: once, and never for a stream")
    ]
    recover_text_calls: Annotated[
        Literal["recover", "strip", "keep"] | None,
        _d("what happens to tool calls that the model wrote as text; left out: as the registry says"),
    ]
    if_cut: Annotated[
        Literal["error", "again-whole", "keep"] | None,
        _d(
            "what happens to a stream that was cut: raise `StreamCut`, ask again without streaming, or keep what came; "
            "left out: as the registry says"
        ),
    ]
    recovery: Annotated[
        Recovery | Mapping[str, Any] | None,
        _d("what is tried where a reply breaks off; what is left out of it is as the registry says (`recovery.*`)"),
    ]
    on_unsupported: Annotated[
        Literal["adjust", "error", "send"] | None,
        _d(
            "what happens to what the endpoint does not take: adjust it with a note (the default), raise `CannotSend`, "
            "or send it as it is"
        ),
    ]
    prefill: Annotated[bool | None, _d("the last message is the beginning of the reply, for the model to go on from")]
    extra_body: Annotated[
        Mapping[str, Any] | None,
        _d("merged into the body last, verbatim, whatever the endpoint takes; a note says what it refuses"),
    ]
    extra_headers: Annotated[Mapping[str, str] | None, _d("further headers, verbatim")]
    timeout: Annotated[
        float | Timeouts | None, _d("seconds, or `Timeouts(connect=, first_byte=, idle=, progress=)` in seconds each")
    ]
    limits: Annotated[
        Limits | None,
        _d("how many bytes of a reply are taken: `Limits(max_reply_bytes=, max_event_bytes=)`; 128 MiB and 64 MiB"),
    ]
    api_key: Annotated[str | None, _d("this key, wherever the call goes; left out: the environment, or the keys file")]


class RunOptions(TypedDict, total=False):
    """What `run` and `run_stream` take beside the options of a call."""

    max_steps: Annotated[int, _d("the most calls of the model")]
    max_repeats: Annotated[
        int | None,
        _d(
            "how many times the same calls may give the same results, one step after the other or in circles of up to "
            "`recovery.cycle` steps; at least 2, `None` for no limit"
        ),
    ]
    max_parallel: Annotated[int, _d("the most tools that run at a time")]
    tool_timeout: Annotated[float | None, _d("seconds for a tool without a `timeout` of its own; `None` for no limit")]
    approve: Annotated[
        Callable[..., Any] | None,
        _d("called before a tool runs: `approve(call)` → `True`, `False`, or the reason for no, in words"),
    ]
    on_step: Annotated[
        Callable[..., Any] | None,
        _d(
            "called after each step: `.calls`, `.results`, `.called`, `.returned`, `.seconds`, `.reply`, `.notes`, and "
            "`.run` on the last one"
        ),
    ]
