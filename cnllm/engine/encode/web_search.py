"""Ask the endpoint to search the web, in the form that the registry has for it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode.mode import Draft
from cnllm.engine.options import RequestOptions
from cnllm.jsonpath import contains, merge_patch, set_value
from cnllm.registry.flags import WebSearchFlags
from cnllm.registry.web_search import usable_search
from cnllm.types.tools import SEARCH, Function, WebSearch

__all__ = ["SearchPlan", "is_search", "place_search", "tool_type", "turn_off_reasoning"]

_FLAG = "web_search"


class SearchPlan(Struct, frozen=True):
    """A request with its search: `patch` are the keys of the body, `echo` is the function that is answered at once.

    `rules` are those of the search that was requested; None where there is none.
    """

    request: Draft
    patch: dict[str, Any] = {}
    echo: str | None = None
    rules: WebSearchFlags | None = None


def tool_type(tool: dict[str, Any]) -> str:
    """Return the word by which an endpoint's own tool is told: its type, or its first key."""
    kind = tool.get("type") or next(iter(tool), "")
    return kind if isinstance(kind, str) else ""


def is_search(tool: dict[str, Any], rules: WebSearchFlags) -> bool:
    """Whether the endpoint itself takes a tool as a web search."""
    kind = tool_type(tool)
    own = (
        rules.tool is not None and tool_type(rules.tool) == kind and tool.get("function") == rules.tool.get("function")
    )
    return own or any(fnmatchcase(kind, pattern) for pattern in rules.forms or ())


def place_search(request: Draft, ledger: Ledger) -> SearchPlan:
    """Put the search of the options into the endpoint's form; it is left out with a note where there is none."""
    options, rules = request.options, usable_search(request.flags)
    search = options.search
    if search is None:
        return SearchPlan(request, rules=rules if rules is not None and _has_own_search(options, rules) else None)
    ledger.mode = request.mode
    ledger = ledger.for_option("tools")
    if rules is None:
        _change(ledger, _FLAG, SEARCH, "left out: the registry knows no web search of this model")
        return SearchPlan(request.with_options(replace(_without_choice(options, _FLAG, ledger), search=None)))
    if options.choice == "none" and rules.tool is None:
        ledger.note("web-search", _FLAG, "tool_choice='none'", "the search is not turned on")
        return SearchPlan(request.with_options(replace(options, search=None)))
    is_beside = search.is_offer and bool(options.tools) and not _is_forced(options)
    if is_beside and rules.reasoning is False and "reasoning" in request.mode:  # as agents offer it in every request
        did = "left out: the endpoint does not search while the model reasons; demand the search, or turn reasoning off"
        _change(ledger, f"{_FLAG}.reasoning", SEARCH, did)
        return SearchPlan(request.with_options(replace(options, search=None)))
    patch: dict[str, Any] = {}
    merge_patch(patch, rules.set or {})
    if rules.with_functions is not None and any(tool.definition is None for tool in options.tools):
        merge_patch(patch, rules.with_functions)
        options = replace(options, choice=None if options.choice == "auto" else options.choice)
    tool: dict[str, Any] | None = None
    if rules.tool is not None:
        merge_patch(tool := {}, rules.tool)
    target = patch if tool is None else tool
    _set_wishes(target, search, rules, ledger)
    if _is_forced(options):
        if rules.force is not None:
            merge_patch(target, rules.force)
            options = replace(options, choice=None, tool_name=None)
        elif rules.choice is not None and _may_force(request):
            patch["tool_choice"] = rules.choice
            options = replace(options, choice=None, tool_name=None)
        else:
            options = _without_choice(options, f"{_FLAG}.force", ledger)
    if tool is not None:
        options = replace(options, tools=(*options.tools, Function(SEARCH, definition=tool)))
    return SearchPlan(request.with_options(options), patch, rules.echo, rules)


def turn_off_reasoning(request: Draft, ledger: Ledger) -> Draft:
    """Turn reasoning off where the endpoint does not search while the model reasons."""
    rules = usable_search(request.flags)
    is_beside = rules is None or rules.reasoning is not False or "reasoning" not in request.mode
    if request.options.search is None or is_beside:
        return request
    did = "reasoning is off for this call"
    if "reasoning" in ledger.defaults or request.options.reasoning is None:  # the caller set no reasoning
        ledger.note("web-search", f"{_FLAG}.reasoning", SEARCH, did)
    elif not ledger.may_change("web-search", f"{_FLAG}.reasoning", SEARCH, did):
        return request
    return request.with_options(replace(request.options, reasoning="off"))


def _set_wishes(target: dict[str, Any], search: WebSearch, rules: WebSearchFlags, ledger: Ledger) -> None:
    """Write the number of results and the domains into the tool or the body; note what has no place there."""
    wishes: tuple[tuple[str, Any, str | None], ...] = (
        ("count", search.count, rules.count),
        ("domains", None if search.domains is None else list(search.domains), rules.domains),
    )
    for name, value, path in wishes:
        if value is None:
            continue
        if path is None:
            _change(ledger, _FLAG, f"{name}={value}", "left out: the search of this endpoint has no such setting")
        elif name == "domains" and rules.one_domain and len(value) > 1:
            _change(ledger, f"{_FLAG}.one_domain", f"{name}={value}", "left out: it searches one domain or all")
        else:
            set_value(target, path, value[0] if name == "domains" and rules.one_domain else value)
    for name in search.other_settings:
        _change(ledger, _FLAG, name, "left out: other endpoints have no such setting of a search")


def _change(ledger: Ledger, flag: str, subject: str, did: str) -> None:
    """Note what has no form that could be sent. Raises `CannotSend` where the policy is "error"."""
    if not ledger.may_change("web-search", flag, subject, did):
        ledger.note("web-search", flag, subject, did)


def _has_own_search(options: RequestOptions, rules: WebSearchFlags) -> bool:
    """Whether the caller asks for a search in the endpoint's own form, or the model searches in any case."""
    definitions = [tool.definition for tool in options.tools if tool.definition is not None]
    in_body = rules.set is not None and contains(options.extra_body, rules.set)
    return bool(rules.always) or in_body or any(is_search(tool, rules) for tool in definitions)


def _is_forced(options: RequestOptions) -> bool:
    """Whether the choice demands a search."""
    by_name = options.choice == "named" and options.tool_name == SEARCH
    return by_name or (options.choice == "required" and not options.tools)


def _may_force(request: Draft) -> bool:
    """Whether the endpoint accepts a choice that names a tool, in this mode."""
    allowed = request.flags.tool_choice.allowed
    return allowed is None or "named" in allowed


def _without_choice(options: RequestOptions, flag: str, ledger: Ledger) -> RequestOptions:
    """Return the options without a choice that demands a search, with a note."""
    if not _is_forced(options):
        return options
    subject = f"tool_choice={options.tool_name or options.choice!r}"
    did = "left out: the model decides whether it searches" if flag != _FLAG else "left out: no search is offered"
    if not ledger.may_change("tool-choice", flag, subject, did):
        ledger.note("tool-choice", flag, subject, did)
    return replace(options, choice=None, tool_name=None)
