"""Adapt tools, their names, their strict form and the tool choice to what the endpoint supports."""

from __future__ import annotations

import math
import operator
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode.reasoning import can_turn_off
from cnllm.engine.history import prompted_tools
from cnllm.engine.options import RequestOptions
from cnllm.protocols import wire
from cnllm.protocols.identifiers import accepted_name, distinct_name
from cnllm.registry.flags import Flags, StrictLimits, Tools
from cnllm.schemas import adapt
from cnllm.schemas.repair import repair_schema_if_needed
from cnllm.schemas.subschemas import schemas_in
from cnllm.types.checks import plural, short_text
from cnllm.types.client_data import count_text
from cnllm.types.parts import CACHE_MARK
from cnllm.types.tools import Function, without_mark

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = [
    "adapt_answer_schema",
    "adapt_tools",
    "apply_strict",
    "closing_obstacles",
    "drop_unsupported",
    "fit_names",
    "resolve_tool_choice",
    "takes_closed_alone",
    "takes_parallel",
]

_MOST_NAMES = 20  # tools that an error names
_SEARCH = "tool_search"
"""The beginning of the types of tools that search others."""
_DEFERRED = "defer_loading"
"""The key of a tool that a search has to find first."""
Schema = dict[str, Any]
_OPEN_KEYS = ("patternProperties", "propertyNames", "unevaluatedProperties", "minProperties", "maxProperties")
_LIST_KEYS = ("anyOf", "oneOf", "allOf", "prefixItems")


def drop_unsupported(
    options: RequestOptions, flags: Flags, ledger: Ledger
) -> tuple[RequestOptions, prompted_tools.PromptedTools | None]:
    """Return the options without tools where the model supports none, and the prompt that describes the tools instead.

    A choice without tools goes, too. Raises `CannotSend` where the caller's policy asks for that.
    """
    options = _drop_repeated(options, ledger)
    if sys.flags.optimize > 1 and options.tools:
        for tool in options.tools:
            if tool.description is None and tool.definition is None:
                did = "sent without a description: python -OO removes docstrings, `tool(description=…)` stays"
                ledger.note("tool-description", "tools", tool.name, did)
    if options.tools and flags.tools.supported is False:
        if prompted_tools.is_prompted(flags, ledger.for_option("tools").policy):
            return prompted_tools.remove_tools(_check_choice(options, ledger), ledger)
        subject = f"{len(options.tools)} tool{plural(len(options.tools))}"
        if ledger.for_option("tools").may_change("tools-unsupported", "tools.supported", subject, "left out"):
            return replace(options, tools=(), choice=None, tool_name=None), None
    return _check_choice(options, ledger), None


def _drop_repeated(options: RequestOptions, ledger: Ledger) -> RequestOptions:
    """Return the options with each function once: endpoints refuse names that repeat. Of equal ones a mark stays."""
    places = [t.name if t.definition is None and t.search is None else n for n, t in enumerate(options.tools)]
    counts = Counter(places)
    if len(counts) == len(places):
        return options
    tools: dict[str | int, Function] = {}
    for place, tool in zip(places, options.tools, strict=True):
        if place not in tools or without_mark(tool) is not tool:
            tools[place] = tool
    for place, count in counts.items():
        if count > 1:
            ledger.note("tool-repeated", "tools", count_text(str(place), count), "sent once")
    return replace(options, tools=tuple(tools.values()))


def _check_choice(options: RequestOptions, ledger: Ledger) -> RequestOptions:
    """Return the options with a choice that is possible: tools are there, and the named tool is among them."""
    if options.choice is None:
        return options
    is_explicit = "tool_choice" not in options.defaults  # a default holds only for calls that it fits
    if not options.tools:
        if is_explicit and options.choice in ("required", "named"):
            subject = options.tool_name or options.choice
            ledger.refuse("tool-choice-alone", "tool_choice", f"{subject} without tools", "nothing could be called")
        return replace(options, choice=None, tool_name=None)
    if options.choice == "named" and options.tool_name not in {t.name for t in options.tools}:
        names = ", ".join(t.name for t in options.tools[:_MOST_NAMES]) + ", …" * (len(options.tools) > _MOST_NAMES)
        if not is_explicit:
            did = f"left out: it is not among the tools: {names}"
            ledger.for_option("tool_choice").note("tool-choice-alone", "call.tool_choice", options.tool_name, did)
            return replace(options, choice=None, tool_name=None)
        raise ValueError(f"tool_choice={short_text(options.tool_name)} is not among the tools: {names}")
    return options


def resolve_tool_choice(
    options: RequestOptions, flags: Flags, ledger: Ledger
) -> tuple[RequestOptions, tuple[Function, ...]]:
    """Return the options with a choice that the endpoint supports, and the tools to offer with it."""
    rules = flags.tool_choice
    allowed = rules.allowed
    if options.choice is None or allowed is None or options.choice in allowed:
        return options, options.tools
    subject = options.tool_name or options.choice
    flag = "tool_choice.allowed"
    by_default = ledger.defaults
    ledger = ledger.for_option("tool_choice")
    selection = tuple(tool for tool in options.tools if tool.name == options.tool_name)
    auto: Literal["auto"] | None = "auto" if "auto" in allowed else None
    otherwise = rules.otherwise or "auto"
    choice: Literal["auto", "required"] | None
    tools: tuple[Function, ...]
    if options.choice == "none":
        choice, tools, did = None, (), "no tools are offered"
    elif otherwise == "error" and ledger.cannot("tool-choice", flag, subject, f"it takes {', '.join(allowed)}"):
        return replace(options, choice=None, tool_name=None), options.tools
    # There may be no reasoning to turn off, and a default must not cost the reasoning.
    elif (
        otherwise == "reasoning-off"
        and "no-reasoning" not in ledger.mode
        and "tool_choice" not in by_default
        and can_turn_off(flags.reasoning)
    ):
        did = "kept, with reasoning off for this call"
        if "reasoning" in by_default:  # the caller set no reasoning
            ledger.note("tool-choice", flag, subject, did)
        elif not ledger.may_change("tool-choice", flag, subject, did):
            return options, options.tools
        return replace(options, reasoning="off"), options.tools
    elif options.choice == "named" and "required" in allowed:
        choice, tools, did = "required", selection, "required, with that tool alone"
    elif options.choice == "named" and otherwise == "narrow":
        choice, tools, did = auto, selection, "auto, with that tool alone"
    else:
        choice, tools, did = auto, options.tools, "auto"
    if not ledger.may_change("tool-choice", flag, subject, did):
        return options, options.tools
    return replace(options, choice=choice, tool_name=None), tools


def takes_parallel(options: RequestOptions, flags: Flags, ledger: Ledger) -> bool:
    """Whether the request may contain `parallel_tool_calls`."""
    if flags.tools.parallel is not False:
        return True
    subject, did = f"parallel_tool_calls={options.parallel_tool_calls}", "left out: the endpoint does not take it"
    return not ledger.for_option("parallel_tool_calls").may_change("param-dropped", "tools.parallel", subject, did)


def fit_names(tools: tuple[Function, ...], flags: Flags, ledger: Ledger) -> dict[str, str]:
    """Map each changed tool name to the caller's name, for names that the endpoint does not accept."""
    rules = flags.tools
    out: dict[str, str] = {}
    for tool in tools:
        if tool.definition is not None or (form := accepted_name(tool.name, rules)) is None:
            continue
        new, flag = form
        if out.get(new, tool.name) != tool.name or any(other.name == new for other in tools):
            new = distinct_name(tool.name, rules)
        if ledger.may_change("tool-renamed", flag, tool.name, new):
            out[new] = tool.name
    return out


def adapt_tools(tools: tuple[Function, ...], flags: Flags, ledger: Ledger) -> tuple[Function, ...]:
    """Return the tools in the form that the endpoint supports.

    That is without a search of tools where it has none, and with schemas in its subset of JSON Schema. Parameters
    without a type are an object, and keywords of a wrong form are repaired: many endpoints refuse the request else.
    """
    rules = flags.tools
    if rules.search is not True:
        tools = _without_search(tools, ledger)
    _note_lost_keys(tools, ledger)
    if rules.custom is not True:
        tools = tuple([t if t.custom is None else replace(t, custom=None) for t in tools])
    tools = tuple([_repaired(tool, ledger) for tool in tools])
    if "root-object" not in (rules.schema or ()):
        tools = tuple([_with_type(tool, ledger) for tool in tools])
    return tuple(_adapt_tool(t, rules, ledger) for t in tools) if rules.schema or rules.schema_drop else tools


def adapt_answer_schema(schema: Schema, flags: Flags, ledger: Ledger) -> Schema:
    """Return the schema of an answer in the subset that the endpoint supports. Its root is an object already."""
    own, tools = flags.schema, flags.tools
    rules = replace(
        tools,
        schema=[*(rule for rule in tools.schema or () if rule != "root-object"), *(own.rules or ())],
        schema_drop=[*(tools.schema_drop or ()), *(own.drop or ())],
    )
    return _adapt_schema(schema, rules, ledger, "the schema of the answer", "schema.rules" if own.rules else None)


def _adapt_schema(schema: Schema, rules: Tools, ledger: Ledger, subject: str, flag: str | None = None) -> Schema:
    """Return a schema in the subset that the endpoint supports; `subject` names it in the note, and `flag` the rule."""
    new = adapt.adapt_schema_if_needed(schema, rules.schema or (), rules.schema_drop or ())
    if new is None:
        return schema
    did = "put into the subset of JSON Schema that the endpoint takes"
    flag = flag or ("tools.schema" if rules.schema else "tools.schema_drop")
    return new if ledger.may_change("schema-adapted", flag, subject, did) else schema


def _note_lost_keys(tools: tuple[Function, ...], ledger: Ledger) -> None:
    """Note the keys beside functions that the wire has no place for. One that is null says nothing."""
    written = wire(ledger.model.protocol).tool_keys
    if written is None:
        return
    counts = Counter(
        key for tool in tools for key, value in (tool.extra or {}).items() if key not in written and value is not None
    )
    for key, count in counts.items():
        code: NoteCode = "cache-mark" if key == CACHE_MARK else "key-foreign"
        ledger.note(code, "tools", count_text(f"tools[].{key}", count), "left out: the wire has no place for it")


def _without_search(tools: tuple[Function, ...], ledger: Ledger) -> tuple[Function, ...]:
    """Return the tools with all of them offered in full, and without the endpoint's own tools that search them."""
    searches = [t for t in tools if t.definition is not None and t.name.startswith(_SEARCH)]
    deferred = [t for t in tools if t.extra is not None and _DEFERRED in t.extra]
    if not searches and not deferred:
        return tools
    subject = f"{len(deferred)} tool{plural(len(deferred))} with {_DEFERRED}" if deferred else searches[0].name
    did = "offered in full: it is not known that the endpoint searches tools"
    if not ledger.may_change("tools-loaded", "tools.search", subject, did):
        return tools
    return tuple([_without_deferral(t) for t in tools if t not in searches])


def _without_deferral(tool: Function) -> Function:
    """Return a tool that is offered in full."""
    if tool.extra is None or _DEFERRED not in tool.extra:
        return tool
    extra = {key: value for key, value in tool.extra.items() if key != _DEFERRED}
    return replace(tool, extra=extra or None)


def _repaired(tool: Function, ledger: Ledger) -> Function:
    """Return a tool whose parameters have no keyword of a form that JSON Schema does not have."""
    if not tool.parameters or tool.definition is not None:
        return tool
    parameters = repair_schema_if_needed(tool.parameters)
    if parameters is None:
        return tool
    subject = f"the parameters of {tool.name} are no valid JSON Schema"
    if not ledger.may_change("schema-adapted", "tools", subject, "the keywords of a wrong form are repaired"):
        return tool
    return replace(tool, parameters=parameters)


def _with_type(tool: Function, ledger: Ledger) -> Function:
    """Return a tool whose parameters say that they are an object."""
    parameters = tool.parameters
    if parameters is None or tool.definition is not None or parameters.get("type") is not None:
        return tool
    empty: Schema = {} if any(value is not None for value in parameters.values()) else {"properties": {}}
    ledger.note("schema-adapted", "tools", f"the parameters of {tool.name} have no type", "sent as an object")
    return replace(tool, parameters={**parameters, "type": "object", **empty})


def _adapt_tool(tool: Function, rules: Tools, ledger: Ledger) -> Function:
    """Return a tool whose schema is in the subset that the endpoint supports."""
    if not tool.parameters:
        return tool
    schema = _adapt_schema(tool.parameters, rules, ledger, f"the parameters of {tool.name}")
    return tool if schema is tool.parameters else replace(tool, parameters=schema)


# ── strict mode ──────────────────────────────────────────────────────────────


def apply_strict(options: RequestOptions, flags: Flags, ledger: Ledger) -> tuple[RequestOptions, dict[str, Schema]]:
    """Return the options with strict tools in strict form, and the caller's schemas of the tools that changed.

    A tool whose parameters have no such form is sent without `strict`. Where the endpoint takes all tools strict or
    none, the other tools follow. The form is that of OpenAI; an endpoint that takes closed schemas alone for answers
    has one grammar for both.
    """
    rules = flags.tools
    if rules.strict is False:
        subject = ", ".join(tool.name for tool in options.tools if tool.strict)
        if not ledger.may_change("strict-dropped", "tools.strict", subject, "sent without strict"):
            return options, {}
        return replace(options, tools=tuple(map(_without_strict, options.tools))), {}
    if rules.strict is None or ledger.policy == "send":  # the endpoint's requirements are unknown
        return options, {}
    obstacles = {
        t.name: reason
        for t in options.tools
        if _is_affected(t, rules) and (reason := _strict_obstacle(t.parameters, flags)) is not None
    }
    if obstacles:
        subject = "; ".join(f"{name}: {reason}" for name, reason in obstacles.items())
        did = "no tool is strict: the endpoint takes all or none" if rules.strict_all else "sent without strict"
        ledger.may_change("strict-dropped", "tools.strict_all" if rules.strict_all else "tools.strict", subject, did)
    if obstacles and rules.strict_all:
        return replace(options, tools=tuple(map(_without_strict, options.tools))), {}
    strict = {
        t.name: _strict_form(t, flags) for t in options.tools if _is_affected(t, rules) and t.name not in obstacles
    }
    if left_out := _beyond_limits(strict, rules.strict_limits):
        did = "sent without strict: all of them are too large together"
        ledger.may_change("strict-dropped", "tools.strict_limits", ", ".join(left_out), did)
    tools: list[Function] = []
    forms: dict[str, Schema] = {}
    for tool in options.tools:
        if not _is_affected(tool, rules):
            tools.append(tool)
        elif tool.name in obstacles or tool.name in left_out:
            tools.append(_without_strict(tool))
        else:
            tools.append(_to_strict(tool, strict[tool.name], flags, forms, ledger))
    return replace(options, tools=tuple(tools)), forms


def _beyond_limits(forms: Mapping[str, Schema], limits: StrictLimits | None) -> list[str]:
    """Return the functions for which one request has no room beside those before them."""
    out: list[str] = []
    if limits is None:
        return out
    most = [math.inf if most is None else most for most in (limits.functions, limits.optional, limits.unions)]
    taken = [0, 0, 0]
    for name, form in forms.items():
        nodes = list(schemas_in(form))
        optional = sum(len((node.get("properties") or {}).keys() - set(node.get("required") or ())) for node in nodes)
        unions = sum("anyOf" in node or isinstance(node.get("type"), list) for node in nodes)
        sums = [taken[0] + 1, taken[1] + optional, taken[2] + unions]
        if all(map(operator.le, sums, most)):
            taken = sums
        else:
            out.append(name)
    return out


def _is_affected(tool: Function, rules: Tools) -> bool:
    """Whether a tool must be strict."""
    return tool.definition is None and bool(tool.strict or rules.strict_all)


def _without_strict(tool: Function) -> Function:
    """Return a tool without `strict`."""
    return replace(tool, strict=None) if tool.strict else tool


def _strict_form(tool: Function, flags: Flags) -> Schema:
    """Return the parameters of a tool in strict form."""
    parameters = tool.parameters or {}
    whole = {**parameters, "type": "object", "properties": parameters.get("properties") or {}}
    if takes_closed_alone(flags):
        return adapt.adapt_schema(whole, flags.schema.rules or (), flags.schema.drop or ())
    form: Schema = adapt.make_strict(whole)
    return form


def _to_strict(tool: Function, form: Schema, flags: Flags, forms: dict[str, Schema], ledger: Ledger) -> Function:
    """Return a tool in strict form, with a note on each change."""
    if not tool.strict:
        ledger.may_change("strict-added", "tools.strict_all", tool.name, "strict: the endpoint takes all tools or none")
    if form == tool.parameters:
        return tool if tool.strict else replace(tool, strict=True)
    if tool.parameters:  # an empty schema needs no note
        flag, did = "tools.strict", "closed, every property required, optional ones nullable"
        if takes_closed_alone(flags):
            flag, did = "schema.rules", "closed"
        ledger.may_change("strict-form", flag, f"the parameters of {tool.name}", did)
        forms[tool.name] = tool.parameters
    return replace(tool, strict=True, parameters=form)


# ── schemas without a strict form ────────────────────────────────────────────


def _strict_obstacle(schema: Schema | None, flags: Flags) -> str | None:
    """Return why parameters have no strict form; None where they have one."""
    if not schema:
        return None
    if schema.get("type", "object") != "object" or any(key in schema for key in _LIST_KEYS) or "$ref" in schema:
        return "its parameters are not a plain object"
    if not schema.get("properties") and schema.get("additionalProperties") in (None, False):
        return None  # it takes no arguments
    return next(closing_obstacles(schema, flags), None)


def takes_closed_alone(flags: Flags) -> bool:
    """Whether the grammar of an endpoint, for answers and strict tools, has closed objects alone."""
    return "closed" in (flags.schema.rules or ())


def closing_obstacles(schema: Schema, flags: Flags) -> Iterator[str]:
    """Yield the reasons why the objects of a schema cannot be closed as an endpoint wants it."""
    if takes_closed_alone(flags) and adapt.is_recursive(schema):
        yield "the schema is recursive"
    for node in schemas_in(schema):
        kind = node.get("type")
        is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
        if isinstance(node.get("additionalProperties"), dict) or any(key in node for key in _OPEN_KEYS):
            yield "an object in it has names that the schema does not list"
        elif is_object and not node.get("properties") and node.get("additionalProperties") is not False:
            yield "an object in it has no list of properties"
