"""Which tools go out, under which names and with which choice: what the endpoint takes of what was asked."""

from __future__ import annotations

import msgspec

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history import prompted_tools
from cnllm.engine.options import Function, RequestOptions
from cnllm.registry.flags import Flags, Tools
from cnllm.schemas import adapt

__all__ = ["adapt_tools", "drop_unsupported", "resolve_tool_choice", "shorten_names", "takes_parallel"]


def drop_unsupported(
    asked: RequestOptions, flags: Flags, ledger: Ledger
) -> tuple[RequestOptions, prompted_tools.PromptedTools | None]:
    """No tools where the model takes none, but what is said of them instead; no choice where there are no tools."""
    if asked.tools and flags.tools is not None and flags.tools.supported is False:
        if prompted_tools.is_prompted(flags, ledger.for_option("tools").policy):
            return prompted_tools.remove_tools(_chosen_among(asked, ledger), ledger)
        said = f"{len(asked.tools)} tools"
        if ledger.for_option("tools").may_change("tools-unsupported", "tools.supported", said, "left out"):
            return msgspec.structs.replace(asked, tools=(), choice=None, chosen=None), None
    return _chosen_among(asked, ledger), None


def _chosen_among(asked: RequestOptions, ledger: Ledger) -> RequestOptions:
    """A choice that means something: there are tools, and the named one is among them."""
    if asked.choice is None:
        return asked
    given = "tool_choice" not in asked.defaults  # a default is for calls that it fits
    if not asked.tools:
        if given and asked.choice in ("required", "named"):
            said = asked.chosen or asked.choice
            ledger.refuse("tool-choice-alone", "tool_choice", f"{said} without tools", "nothing could be called")
        return msgspec.structs.replace(asked, choice=None, chosen=None)
    if asked.choice == "named" and asked.chosen not in {t.name for t in asked.tools}:
        offered = ", ".join(t.name for t in asked.tools)
        if not given:
            did = f"left out: it is not among the tools: {offered}"
            ledger.for_option("tool_choice").note("tool-choice-alone", "call.tool_choice", asked.chosen, did)
            return msgspec.structs.replace(asked, choice=None, chosen=None)
        raise ValueError(f"tool_choice={asked.chosen!r} is not among the tools: {offered}")
    return asked


def resolve_tool_choice(
    asked: RequestOptions, flags: Flags, ledger: Ledger
) -> tuple[RequestOptions, tuple[Function, ...]]:
    """The choice the endpoint takes, and the tools to offer with it."""
    rules = flags.tool_choice
    allowed = rules.allowed if rules else None
    if asked.choice is None or allowed is None or asked.choice in allowed:
        return asked, asked.tools
    said = asked.chosen or asked.choice
    flag = "tool_choice.allowed"
    by_default = ledger.defaults
    ledger = ledger.for_option("tool_choice")
    if asked.choice == "none":
        if ledger.may_change("tool-choice", flag, said, "no tools are offered"):
            return msgspec.structs.replace(asked, choice=None), ()
        return asked, asked.tools
    otherwise = (rules.otherwise if rules else None) or "auto"
    if otherwise == "error" and ledger.cannot("tool-choice", flag, said, f"it takes {', '.join(allowed)}"):
        return msgspec.structs.replace(asked, choice=None, chosen=None), asked.tools
    off = "no-reasoning" in ledger.mode  # nothing is left to turn off
    if (
        otherwise == "reasoning-off" and not off and "tool_choice" not in by_default
    ):  # no default is worth the reasoning
        did = "kept, with reasoning off for this call"
        if "reasoning" in by_default:  # which nobody asked for
            ledger.note("tool-choice", flag, said, did)
        elif not ledger.may_change("tool-choice", flag, said, did):
            return asked, asked.tools
        return msgspec.structs.replace(asked, reasoning="off"), asked.tools
    tools = asked.tools
    if asked.choice == "named" and "required" in allowed:
        if ledger.may_change("tool-choice", flag, said, "required, with that tool alone"):
            only = tuple(t for t in tools if t.name == asked.chosen)
            return msgspec.structs.replace(asked, choice="required", chosen=None), only
        return asked, tools
    did = "auto"
    if otherwise == "narrow" and asked.choice == "named":
        did = "auto, with that tool alone"
    if not ledger.may_change("tool-choice", flag, said, did):
        return asked, tools
    if otherwise == "narrow" and asked.choice == "named":
        tools = tuple(t for t in tools if t.name == asked.chosen)
    return msgspec.structs.replace(asked, choice="auto" if "auto" in allowed else None, chosen=None), tools


def takes_parallel(asked: RequestOptions, flags: Flags, ledger: Ledger) -> bool:
    """May the request say whether calls may be parallel?"""
    if flags.tools is None or flags.tools.parallel is not False:
        return True
    said, did = f"parallel_tool_calls={asked.parallel_tool_calls}", "left out: the endpoint does not take it"
    return not ledger.for_option("parallel_tool_calls").may_change("param-dropped", "tools.parallel", said, did)


def shorten_names(tools: tuple[Function, ...], flags: Flags, ledger: Ledger) -> dict[str, str]:
    """Names the endpoint finds too long: name on the wire → the caller's. The same each time, so that caches hit."""
    longest = flags.tools.name_max_length if flags.tools else None
    out: dict[str, str] = {}
    for tool in tools:
        if longest is not None and len(tool.name) > longest and tool.definition is None:
            import hashlib  # it brings OpenSSL along

            digest = hashlib.sha256(tool.name.encode()).hexdigest()[:8]
            short = f"{tool.name[: longest - 9]}_{digest}" if longest > 9 else digest[:longest]
            if ledger.may_change("tool-renamed", "tools.name_max_length", tool.name, short):
                out[short] = tool.name
    return out


def adapt_tools(tools: tuple[Function, ...], flags: Flags, ledger: Ledger) -> tuple[Function, ...]:
    """The tools without `strict` where that is refused, their schemas in the subset the endpoint takes."""
    rules = flags.tools
    if rules is None:
        return tools
    if (
        rules.strict is False
        and any(t.strict for t in tools)
        and ledger.may_change("strict-dropped", "tools.strict", "strict tools", "sent without strict")
    ):
        tools = tuple(msgspec.structs.replace(t, strict=None) for t in tools)
    if rules.schema or rules.schema_drop:
        tools = tuple(_in_dialect(t, rules, ledger) for t in tools)
    return tools


def _in_dialect(tool: Function, rules: Tools, ledger: Ledger) -> Function:
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
