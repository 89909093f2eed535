"""Set up the builder of a reply, by the decisions of its request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.engine.decode.reply_builder import ReplyBuilder
from cnllm.engine.decode.text_tool_calls import TextCalls, Then, text_call_filters
from cnllm.engine.encode.call_rules import CallRules
from cnllm.engine.encode.plan import Plan
from cnllm.engine.history.prompted_tools import is_prompted
from cnllm.engine.options import read_options
from cnllm.protocols import wire
from cnllm.protocols.call_ids import ReplyIds
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model

__all__ = ["reply_builder", "text_reply_builder"]


def reply_builder(model: Model, flags: Flags, tools: Sequence[Any] | None, plan: Plan | None) -> ReplyBuilder:
    """Return the builder for the reply to a request; without `plan` as if `tools` had been offered."""
    builder = ReplyBuilder(
        model,
        flags,
        plan.renamed if plan is not None else {},
        _call_filters(flags, tools, plan, is_offer_known=plan is not None or tools is not None),
        wire(model.protocol).ordered,
        _reply_ids(flags, plan),
        _reply_rules(plan),
    )
    if plan is not None:
        builder.expect(plan.max_output, plan.stops)
        builder.strict_forms = plan.strict_forms
        builder.expect_search(plan.search, plan.echo)
    return builder


def text_reply_builder(
    model: Model, tools: Sequence[Any] | None = None, then: Then | None = None, script: str | None = None
) -> ReplyBuilder:
    """Return a builder for a text that the model wrote: feed it with `ReplyBuilder.add_piece`, then end it.

    `then` and `script`: see `cnllm.engine.decode.text_tool_calls`.
    """
    builder = ReplyBuilder(model, model.flags, {}, _call_filters(model.flags, tools, None, then, script))
    builder.whole = True
    return builder


def _call_filters(
    flags: Flags,
    tools: Sequence[Any] | None,
    plan: Plan | None,
    then: Then | None = None,
    script: str | None = None,
    is_offer_known: bool = True,
) -> TextCalls | None:
    """Return the filters for calls in text: those of the request, or as if `tools` had been offered."""
    if plan is None:
        offered = read_options({"tools": tools}).tools
        then = then or (flags.call or {}).get("recover_text_calls")
        return text_call_filters(
            flags,
            offered,
            {},
            then,
            prompted=is_prompted(flags, "adjust"),
            script=script,
            is_offer_known=is_offer_known,
        )
    filters = text_call_filters(
        flags, plan.callable, plan.renamed, plan.text_calls, plan.prompt, plan.prompted, messages=plan.messages
    )
    if filters is not None and plan.call_rules is not None and plan.call_rules.choice == "none":
        filters.excluded = "tool_choice='none' excludes calls"
    return filters


def _reply_rules(plan: Plan | None) -> CallRules | None:
    """Return the rules for the calls of the reply; None where every call is allowed."""
    if plan is None or plan.call_rules is None or plan.answer is None or plan.answer.method != "tool":
        return None if plan is None else plan.call_rules
    return replace(plan.call_rules, answer=plan.answer.name)


def _reply_ids(flags: Flags, plan: Plan | None) -> ReplyIds | None:
    """Return the ids for the reply's calls, which differ from all ids in the request."""
    if plan is None:
        return None
    return ReplyIds(flags.tools.call_id_pattern if flags.tools else None, plan.messages, plan.content)
