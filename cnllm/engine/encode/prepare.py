"""Prepare a request as far as its options decide it, whatever its messages say.

The stages, in this order: mode and its flags → tools → structured output → reasoning → parameters → URL and headers.
Each change to what the caller asked for is noted in the ledger by the stage that makes it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode import params, structured, url_headers
from cnllm.engine.encode.client_data import ask_for_object, fit_client_data
from cnllm.engine.encode.mode import Draft, settle
from cnllm.engine.encode.plan import CallRules, Plan
from cnllm.engine.encode.reasoning import ReasoningPlan, can_turn_off, plan_reasoning
from cnllm.engine.encode.structured import OutputMethod
from cnllm.engine.encode.tools import (
    adapt_answer_schema,
    adapt_tools,
    apply_strict,
    drop_unsupported,
    fit_names,
    resolve_tool_choice,
    takes_parallel,
)
from cnllm.engine.encode.web_search import place_search, turn_off_reasoning
from cnllm.engine.history import prompted_tools
from cnllm.engine.history.prompted_tools import PromptedTools
from cnllm.engine.history.reasoning import reasoning_gap
from cnllm.engine.options import RequestOptions, read_options
from cnllm.jsonpath import merge_patch
from cnllm.protocols import wire
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags, RecoveryFlags
from cnllm.registry.model import Model
from cnllm.types import Note
from cnllm.types.client_data import ClientData
from cnllm.types.policy import Recovery
from cnllm.types.tools import Function

__all__ = ["OtherWire", "RequestTemplate", "address", "prepare"]

_TOOL_KEYS = frozenset({"tools", "tool_choice", "functions", "function_call", "toolConfig", "tool_config"})
"""Keys of a body that offer or choose tools, on any wire."""


class OtherWire(Struct, frozen=True):
    """A request whose mode needs another wire of the endpoint: that of `model`."""

    request: Draft
    model: Model


class RequestTemplate(Struct, frozen=True, kw_only=True):
    """A request without its messages: `plan` has everything but what they decide.

    `notes` come before those on the messages, `later_notes` after them. `params` are the keys of the body for the
    parameters, `wire_tools` the tools as the endpoint takes them, `wire_schema` the schema of the answer in its form.
    """

    request: Draft
    plan: Plan
    notes: tuple[Note, ...]
    later_notes: tuple[Note, ...]
    prompted: PromptedTools | None
    wire_tools: tuple[Function, ...]
    wire_schema: dict[str, Any] | None
    reasoning: ReasoningPlan
    names: dict[str, str]
    params: dict[str, Any]
    parallel: bool | None


def prepare(request: Draft, arguments: dict[str, Any]) -> RequestTemplate | OtherWire:
    """Run the stages for a draft; `arguments` are the caller's options for this model.

    Raises `CannotSend`, `TypeError` or `ValueError` for options that the endpoint cannot take.
    """
    caller_options = request.options
    ledger = Ledger(request.model, caller_options.on_unsupported, caller_options.defaults)

    # Mode and flags.
    if (other := _other_wire(request)) is not None:
        return OtherWire(request, other)
    search = place_search(request, ledger)
    caller_options, ledger.mode = search.request.options, search.request.mode
    options, prompted = drop_unsupported(caller_options, search.request.flags, ledger)
    request = settle(search.request.with_options(options), _STEPS, ledger)
    if (with_schema := ask_for_object(request, ledger)) is not request:
        arguments = {**arguments, "extra_body": with_schema.options.extra_body, "schema": with_schema.options.schema}
        request = settle(with_schema, _STEPS, ledger)
    if (other := _other_wire(request)) is not None:
        return OtherWire(request, other)
    request = _with_mode_defaults(request, arguments, ledger)

    # Tools and structured output.
    offer = request.options.tools
    forced = request.options.choice in ("required", "named") and bool(request.tools)
    request, output = _structured_output(request, prompted, ledger)
    request = settle(request, (_wire_stream,), ledger)  # the answer may be a tool's arguments
    if request.options.other_params:
        request = replace(request, options=params.take_declared(request.options, request.flags))
        ledger.defaults = request.options.defaults
    renamed = fit_names(request.tools, request.flags, ledger.for_option("tools"))
    reasoning = plan_reasoning(request.options.reasoning, request.flags.reasoning, ledger.for_option("reasoning"))
    if type(request.options.extra_body) is ClientData:
        extra, values = fit_client_data(request.options.extra_body, request.options.params, request.flags, ledger)
        request = replace(request, options=replace(request.options, extra_body=extra, params=values))
    options, flags, tools = request.options, request.flags, request.tools

    # Parameters, URL and headers.
    notes = tuple(ledger.notes)
    values, parallel, single = _params(request, ledger)
    wire_tools = adapt_tools(tools, flags, ledger.for_option("tools")) if tools else ()
    body: dict[str, Any] = {}
    params.apply_params(body, values, flags, ledger)
    merge_patch(body, search.patch)
    rules = _call_rules(caller_options, request, prompted, forced=forced, single=single)
    if rules is not None and output is not None and output.method == "tool":
        rules = replace(rules, answer=output.name)
    url, headers = ("", {}) if options.prefill else address(request, flags, ledger, streams=request.streams)
    later_notes = tuple(ledger.notes[len(notes) :])
    continues = output is None and prompted is None and "reasoning" not in request.mode
    plan = Plan(
        method="POST",
        url=url,
        headers=headers,
        content=b"",
        notes=[],
        model=request.model,
        flags=flags,
        stream=request.streams,
        tools=offer if prompted is None else prompted.tools,
        callable=prompted.tools if prompted is not None else () if options.choice == "none" else tools,
        renamed=renamed,
        strict_forms=request.strict_forms,
        call_rules=rules,
        prompted=prompted is not None,
        text_calls=options.recover_text_calls,
        schema=options.schema,
        answer=output,
        corrections=(0 if request.stream else 1) if options.corrections is None else options.corrections,
        corrects_inputs=options.corrections != 0,
        recovery=_recovery(options, flags),
        search=search.rules,
        echo=search.echo,
        prefill=flags.messages.prefill if continues else None,
        if_cut=options.if_cut or flags.stream.if_cut or "error",
    )
    return RequestTemplate(
        request=request,
        plan=plan,
        notes=notes,
        later_notes=later_notes,
        prompted=prompted,
        wire_tools=tuple(wire_tools),
        wire_schema=None if output is None else output.wire_schema,
        reasoning=reasoning,
        names={name: short for short, name in renamed.items()},
        params=body,
        parallel=parallel,
    )


def address(request: Draft, flags: Flags, ledger: Ledger, *, streams: bool) -> tuple[str, dict[str, str]]:
    """Return the URL and the headers of a request. Raises `CannotSend` where there is no valid URL."""
    url, userinfo = url_headers.endpoint_url(request.model, flags, ledger, stream=streams)
    basic = url_headers.basic_auth(userinfo, flags, ledger)
    return url, url_headers.request_headers(flags, request.options, basic, stream=streams)


# ── mode and flags ───────────────────────────────────────────────────────────


def _reasoning_off(request: Draft, ledger: Ledger) -> Draft:
    """Turn reasoning off where the turn that continues has none of this model's, and the endpoint refuses that."""
    rules = request.flags.reasoning
    if rules.if_missing != "reasoning-off" or "reasoning" not in request.mode or not can_turn_off(rules):
        return request
    request = replace(request, depends_on_messages=True)
    index = reasoning_gap(request.messages, request.model)
    if index is None:
        return request
    subject, did = f"messages[{index}] has no reasoning of this model", "reasoning is off for this call"
    ledger = ledger.for_option("reasoning")
    if not ledger.may_change("reasoning-missing", "reasoning.if_missing", subject, did):
        return request
    return request.with_options(replace(request.options, reasoning="off"))


def _strict_tools(request: Draft, ledger: Ledger) -> Draft:
    """Put strict tools into strict form, or take `strict` away."""
    if "strict" not in request.mode:
        return request
    options, forms = apply_strict(request.options, request.flags, ledger.for_option("tools"))
    if options == request.options:
        return request
    return replace(request.with_options(options), strict_forms={**forms, **request.strict_forms})


def _tool_choice(request: Draft, ledger: Ledger) -> Draft:
    """Replace a tool choice that the endpoint does not take."""
    options, tools = resolve_tool_choice(request.options, request.flags, ledger)
    return request if options is request.options else replace(request.with_options(options), tools=tools)


def _wire_stream(request: Draft, ledger: Ledger) -> Draft:
    """Ask for a stream or a whole reply as the endpoint can, whatever the caller iterates over."""
    rules = request.flags.stream
    if request.streams != request.stream:
        return request
    if request.stream and request.tools and rules.tools is False:
        ledger.note("stream-whole", "stream.tools", "a stream with tools", "called whole, delivered as events")
    elif not request.stream and rules.required:
        ledger.note("stream-collected", "stream.required", "a whole reply", "streamed, and collected")
    else:
        return request
    return request.with_streams(streams=not request.stream)


_STEPS = (_reasoning_off, turn_off_reasoning, _strict_tools, _tool_choice, _wire_stream)


def _other_wire(request: Draft) -> Model | None:
    """Return the model over the wire that takes this mode; None where its own does, or the caller chose the wire."""
    model, protocol = request.model, request.flags.protocol
    return None if model.over is None or protocol in (None, model.protocol) else model.over(str(protocol))


def _with_mode_defaults(request: Draft, arguments: dict[str, Any], ledger: Ledger) -> Draft:
    """Return the draft with the defaults of its own mode. Those that decide the mode were read before it."""
    call = request.flags.call
    if call is request.model.flags.call:
        return request
    late = read_options(arguments, call, request.flags.params or ())
    ledger.defaults = late.defaults
    options = replace(request.options, **{name: getattr(late, name) for name in _LATE})
    return replace(request, options=options)


_LATE = (
    *("params", "other_params", "parallel_tool_calls", "extra_body", "extra_headers", "if_cut", "recover_text_calls"),
    *("corrections", "defaults"),
)
"""The options whose defaults may depend on the mode."""


# ── tools and structured output ──────────────────────────────────────────────


def _structured_output(
    request: Draft, prompted: PromptedTools | None, ledger: Ledger
) -> tuple[Draft, OutputMethod | None]:
    """Choose the method for an answer by a schema. For a tool, offer the tool whose arguments are the answer."""
    flag = prompted_tools.FLAG if prompted is not None else None
    output = structured.choose_method(request, ledger, flag)
    if output is not None and output.method == "tool":
        options = structured.add_answer_tool(request.options, output)
        request = replace(request.with_options(options), tools=options.tools)
        ledger.mode = request.mode
    elif output is not None and output.method == "json_schema":
        schema = adapt_answer_schema(output.wire_schema, request.flags, ledger.for_option("schema"))
        output = replace(output, wire_schema=schema)
    return request, output


def _params(request: Draft, ledger: Ledger) -> tuple[dict[str, Any], bool | None, bool]:
    """Return the parameters, `parallel_tool_calls` where the wire has a place for it, and whether calls come singly."""
    options, flags = request.options, request.flags
    parallel = options.parallel_tool_calls if request.tools else None
    if parallel is not None and not takes_parallel(options, flags, ledger):
        parallel = None
    single = parallel is False
    values = dict(options.params)
    for name in wire(request.model.protocol).list_params:
        if type(values.get(name)) is str:
            values[name] = [values[name]]
    declared = flags.params or {}
    if parallel is not None and "parallel_tool_calls" in declared:
        values["parallel_tool_calls"], parallel = parallel, None
        single = single and param_rules.state(declared["parallel_tool_calls"]) == "works"
    return values, parallel, single


def _call_rules(
    caller_options: RequestOptions, request: Draft, prompted: PromptedTools | None, *, forced: bool, single: bool
) -> CallRules | None:
    """Return the rules for the calls of the reply; None where the request has none.

    They follow from the caller's own choice, before an endpoint's limits changed it. There are none where the caller's
    own body offers or chooses the tools.
    """
    all_tools = request.tools if request.tools is caller_options.tools else [*caller_options.tools, *request.tools]
    own_body = not _TOOL_KEYS.isdisjoint(caller_options.extra_body)
    if own_body or (caller_options.choice is None and not all_tools):
        return None
    patch = request.flags.body.set
    names = [tool.name for tool in all_tools if tool.definition is None]
    has_builtin = len(names) < len(all_tools) or not _TOOL_KEYS.isdisjoint(patch or {})
    return CallRules(
        names=frozenset(names) if names and not has_builtin else None,
        choice=caller_options.choice,
        tool_name=caller_options.tool_name,
        forced=forced if prompted is None else prompted.must is not None,
        single=single if prompted is None else prompted.single,
    )


def _recovery(options: RequestOptions, flags: Flags) -> Recovery:
    """Return what is tried when the reply breaks off: as the call says, else as the registry does."""
    declared = _declared_recovery(flags.recovery)
    return declared if options.recovery is None else options.recovery.with_defaults(declared)


@lru_cache(maxsize=64)
def _declared_recovery(flags: RecoveryFlags) -> Recovery:
    return Recovery(steps=flags.steps, streams=flags.streams, resume=flags.resume, cycle=flags.cycle)
