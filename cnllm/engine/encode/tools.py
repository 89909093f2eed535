"""Adapt tools, their names and the tool choice to what the endpoint supports."""

from __future__ import annotations

import sys

import msgspec

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history import prompted_tools
from cnllm.engine.options import Function, RequestOptions
from cnllm.registry.flags import Flags, Tools
from cnllm.schemas import adapt

__all__ = ["adapt_tools", "drop_unsupported", "resolve_tool_choice", "shorten_names", "takes_parallel"]

_SEARCH = "tool_search"
"""The beginning of the types of tools that search others."""
_DEFERRED = "defer_loading"
"""The key of a tool that a search has to find first."""


def drop_unsupported(
    options: RequestOptions, flags: Flags, ledger: Ledger
) -> tuple[RequestOptions, prompted_tools.PromptedTools | None]:
    """Return the options without tools where the model supports none, and the prompt that describes the tools instead.

    A choice without tools goes, too. Raises `CannotSend` where the caller's policy asks for that.
    """
    if sys.flags.optimize > 1 and options.tools:
        for tool in options.tools:
            if tool.description is None and tool.definition is None:
                did = "sent without a description: python -OO removes docstrings, `tool(description=…)` stays"
                ledger.note("tool-description", "tools", tool.name, did)
    if options.tools and flags.tools is not None and flags.tools.supported is False:
        if prompted_tools.is_prompted(flags, ledger.for_option("tools").policy):
            return prompted_tools.remove_tools(_check_choice(options, ledger), ledger)
        subject = f"{len(options.tools)} tools"
        if ledger.for_option("tools").may_change("tools-unsupported", "tools.supported", subject, "left out"):
            return msgspec.structs.replace(options, tools=(), choice=None, tool_name=None), None
    return _check_choice(options, ledger), None


def _check_choice(options: RequestOptions, ledger: Ledger) -> RequestOptions:
    """Return the options with a choice that is possible: tools are there, and the named tool is among them."""
    if options.choice is None:
        return options
    is_explicit = "tool_choice" not in options.defaults  # a default holds only for calls that it fits
    if not options.tools:
        if is_explicit and options.choice in ("required", "named"):
            subject = options.tool_name or options.choice
            ledger.refuse("tool-choice-alone", "tool_choice", f"{subject} without tools", "nothing could be called")
        return msgspec.structs.replace(options, choice=None, tool_name=None)
    if options.choice == "named" and options.tool_name not in {t.name for t in options.tools}:
        names = ", ".join(t.name for t in options.tools)
        if not is_explicit:
            did = f"left out: it is not among the tools: {names}"
            ledger.for_option("tool_choice").note("tool-choice-alone", "call.tool_choice", options.tool_name, did)
            return msgspec.structs.replace(options, choice=None, tool_name=None)
        raise ValueError(f"tool_choice={options.tool_name!r} is not among the tools: {names}")
    return options


def resolve_tool_choice(
    options: RequestOptions, flags: Flags, ledger: Ledger
) -> tuple[RequestOptions, tuple[Function, ...]]:
    """Return the options with a choice that the endpoint supports, and the tools to offer with it."""
    rules = flags.tool_choice
    allowed = rules.allowed if rules else None
    if options.choice is None or allowed is None or options.choice in allowed:
        return options, options.tools
    subject = options.tool_name or options.choice
    flag = "tool_choice.allowed"
    by_default = ledger.defaults
    ledger = ledger.for_option("tool_choice")
    if options.choice == "none":
        if ledger.may_change("tool-choice", flag, subject, "no tools are offered"):
            return msgspec.structs.replace(options, choice=None), ()
        return options, options.tools
    otherwise = (rules.otherwise if rules else None) or "auto"
    if otherwise == "error" and ledger.cannot("tool-choice", flag, subject, f"it takes {', '.join(allowed)}"):
        return msgspec.structs.replace(options, choice=None, tool_name=None), options.tools
    is_off = "no-reasoning" in ledger.mode  # there is no reasoning to turn off
    # A default must not cost the reasoning.
    if otherwise == "reasoning-off" and not is_off and "tool_choice" not in by_default:
        did = "kept, with reasoning off for this call"
        if "reasoning" in by_default:  # the caller set no reasoning
            ledger.note("tool-choice", flag, subject, did)
        elif not ledger.may_change("tool-choice", flag, subject, did):
            return options, options.tools
        return msgspec.structs.replace(options, reasoning="off"), options.tools
    tools = options.tools
    if options.choice == "named" and "required" in allowed:
        if ledger.may_change("tool-choice", flag, subject, "required, with that tool alone"):
            matches = tuple(t for t in tools if t.name == options.tool_name)
            return msgspec.structs.replace(options, choice="required", tool_name=None), matches
        return options, tools
    did = "auto"
    if otherwise == "narrow" and options.choice == "named":
        did = "auto, with that tool alone"
    if not ledger.may_change("tool-choice", flag, subject, did):
        return options, tools
    if otherwise == "narrow" and options.choice == "named":
        tools = tuple(t for t in tools if t.name == options.tool_name)
    return msgspec.structs.replace(options, choice="auto" if "auto" in allowed else None, tool_name=None), tools


def takes_parallel(options: RequestOptions, flags: Flags, ledger: Ledger) -> bool:
    """Whether the request may contain `parallel_tool_calls`."""
    if flags.tools is None or flags.tools.parallel is not False:
        return True
    subject, did = f"parallel_tool_calls={options.parallel_tool_calls}", "left out: the endpoint does not take it"
    return not ledger.for_option("parallel_tool_calls").may_change("param-dropped", "tools.parallel", subject, did)


def shorten_names(tools: tuple[Function, ...], flags: Flags, ledger: Ledger) -> dict[str, str]:
    """Map each shortened tool name to the caller's name, for names that are too long for the endpoint.

    A name gets the same short form each time, so that prompt caches hit.
    """
    longest = flags.tools.name_max_length if flags.tools else None
    out: dict[str, str] = {}
    for tool in tools:
        if longest is not None and len(tool.name) > longest and tool.definition is None:
            import hashlib  # loads OpenSSL, so only where it is needed

            digest = hashlib.sha256(tool.name.encode()).hexdigest()[:8]
            short = f"{tool.name[: longest - 9]}_{digest}" if longest > 9 else digest[:longest]
            if ledger.may_change("tool-renamed", "tools.name_max_length", tool.name, short):
                out[short] = tool.name
    return out


def adapt_tools(tools: tuple[Function, ...], flags: Flags, ledger: Ledger) -> tuple[Function, ...]:
    """Return the tools in the form that the endpoint supports.

    That is without `strict` or a search of tools where it has none, and with schemas in its subset of JSON Schema.
    """
    rules = flags.tools
    if rules is None or rules.search is not True:
        tools = _without_search(tools, ledger)
    if rules is None or rules.custom is not True:
        tools = tuple([t if t.custom is None else msgspec.structs.replace(t, custom=None) for t in tools])
    if rules is None:
        return tools
    if (
        rules.strict is False
        and any(t.strict for t in tools)
        and ledger.may_change("strict-dropped", "tools.strict", "strict tools", "sent without strict")
    ):
        tools = tuple(msgspec.structs.replace(t, strict=None) for t in tools)
    if rules.schema or rules.schema_drop:
        tools = tuple(_adapt_tool(t, rules, ledger) for t in tools)
    return tools


def _without_search(tools: tuple[Function, ...], ledger: Ledger) -> tuple[Function, ...]:
    """Return the tools with all of them offered in full, and without the endpoint's own tools that search them."""
    searches = [t for t in tools if t.definition is not None and t.name.startswith(_SEARCH)]
    deferred = [t for t in tools if t.extra is not None and _DEFERRED in t.extra]
    if not searches and not deferred:
        return tools
    subject = f"{len(deferred)} tools with {_DEFERRED}" if deferred else searches[0].name
    did = "offered in full: it is not known that the endpoint searches tools"
    if not ledger.may_change("tools-loaded", "tools.search", subject, did):
        return tools
    return tuple([_without_deferral(t) for t in tools if t not in searches])


def _without_deferral(tool: Function) -> Function:
    """Return a tool that is offered in full."""
    if tool.extra is None or _DEFERRED not in tool.extra:
        return tool
    extra = {key: value for key, value in tool.extra.items() if key != _DEFERRED}
    return msgspec.structs.replace(tool, extra=extra or None)


def _adapt_tool(tool: Function, rules: Tools, ledger: Ledger) -> Function:
    """Return a tool whose schema is in the subset that the endpoint supports."""
    if not tool.parameters:
        return tool
    schema = adapt.adapt_schema_if_needed(tool.parameters, rules.schema or (), rules.schema_drop or ())
    if schema is None:
        return tool
    did = "put into the subset of JSON Schema that the endpoint takes"
    flag = "tools.schema" if rules.schema else "tools.schema_drop"
    if not ledger.may_change("schema-adapted", flag, f"the parameters of {tool.name}", did):
        return tool
    return msgspec.structs.replace(tool, parameters=schema)
