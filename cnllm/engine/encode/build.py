"""Build the request for a conversation: model, messages and options go in, a plan comes out.

The stages, in this order: options → mode and its flags → tools → structured output → history → body → plan. Each
change to what the caller asked for is noted in the ledger by the stage that makes it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode import body as bodies
from cnllm.engine.encode import other_params, params, prefill, structured, url_headers
from cnllm.engine.encode.call_rules import CallRules, call_rules
from cnllm.engine.encode.client_data import ask_for_object, fit_client_data, resolve_client_data
from cnllm.engine.encode.mode import Draft, draft, settle
from cnllm.engine.encode.plan import Plan
from cnllm.engine.encode.reasoning import plan_reasoning
from cnllm.engine.encode.strict_tools import apply_strict
from cnllm.engine.encode.structured import OutputMethod
from cnllm.engine.encode.tools import (
    adapt_tools,
    drop_unsupported,
    resolve_tool_choice,
    shorten_names,
    takes_parallel,
)
from cnllm.engine.history import media, prompted_tools
from cnllm.engine.history.fit import fit
from cnllm.engine.history.prompted_tools import PromptedTools
from cnllm.engine.history.reasoning import reasoning_gap
from cnllm.engine.options import RequestOptions, option_fault, read_options
from cnllm.protocols import EncodeInput, wire
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags
from cnllm.registry.flags import Recovery as RecoveryFlags
from cnllm.registry.model import Model
from cnllm.types import Message, Note, checks
from cnllm.types.client_data import ClientData
from cnllm.types.content import system_message
from cnllm.types.convert import as_messages
from cnllm.types.faults import message_fault
from cnllm.types.policy import Limits, Recovery

if TYPE_CHECKING:
    from cnllm.types.call_options import CallOptions
    from cnllm.types.message_types import Messages

__all__ = ["build_request"]


def build_request(
    model: Model, messages: Messages, *, stream: bool | None = None, **options: Unpack[CallOptions]
) -> Plan:
    """Build the request for a conversation. Pure: the same input gives the same bytes, and no argument is changed.

    The options are those of `Client.call`. An option that is not given is as the model's `call` table says, `stream`
    too. Raises `TypeError` or `ValueError` for an option or message that means nothing, `CannotSend` for what the
    endpoint cannot take and the caller does not want adjusted.
    """
    if type(model) is not Model:
        checks.require_type("model", model, Model, "a cnllm.Model, as Registry.resolve returns it,")
    call = model.flags.call or {}
    system = options.pop("system", None)
    given: dict[str, Any] = dict(options)
    settings, client_notes = resolve_client_data(given, model)
    wish = read_options(settings, call, model.flags.params or ())
    if stream is None:
        stream = bool(call.get("stream"))
    elif type(stream) is not bool:
        checks.require_type("stream", stream, int, "True, False or None")
        stream = bool(stream)
    turns = as_messages(messages)
    if not turns:
        raise ValueError("messages is empty; there is nothing to send")
    if system is not None:
        turns = [system_message(system), *turns]
    try:
        plan = _build(draft(model, turns, wish, stream=stream, images=media.has_media(turns)), settings, given)
        return replace(plan, notes=[*client_notes, *plan.notes]) if client_notes and plan.model is model else plan
    except checks.FAILURES as error:
        if (fault := _fault(turns, settings)) is not None:
            raise fault from error
        raise


def _build(request: Draft, arguments: dict[str, Any], given: dict[str, Any]) -> Plan:
    """Run the stages for a draft; `arguments` are the caller's options for this model, `given` those for any."""
    wish = request.options
    ledger = Ledger(request.model, wish.on_unsupported, wish.defaults)

    # Mode and flags.
    if (other := _other_wire(request)) is not None:
        return _build_over(other, request, given)
    options, prompted = drop_unsupported(wish, request.model.flags, ledger)
    request = settle(request.with_options(options), _STEPS, ledger)
    if type(wish.extra_body) is ClientData and (with_schema := ask_for_object(request)) is not request:
        arguments = {**arguments, "extra_body": with_schema.options.extra_body, "schema": with_schema.options.schema}
        request = settle(with_schema, _STEPS, ledger)
    if (other := _other_wire(request)) is not None:
        return _build_over(other, request, given)
    request = _with_mode_defaults(request, arguments, ledger)

    # Tools and structured output.
    offered = request.options.tools
    forced = request.options.choice in ("required", "named") and bool(request.tools)
    request, output = _structured_output(request, prompted, ledger)
    if request.options.other_params:
        request = replace(request, options=other_params.take_declared(request.options, request.flags))
        ledger.defaults = request.options.defaults
    options, flags, tools = request.options, request.flags, request.tools
    short_names = shorten_names(tools, flags, ledger.for_option("tools"))
    reasoning = plan_reasoning(options.reasoning, flags.reasoning, ledger.for_option("reasoning"))
    if type(options.extra_body) is ClientData:
        extra, given_params = fit_client_data(options.extra_body, options.params, flags, ledger)
        options = replace(options, extra_body=extra, params=given_params)
        request = replace(request, options=options)

    # History and body.
    history = _history(request, prompted, output, ledger)
    values, parallel, single = _params(request, ledger)
    streams = _streams(request, ledger)
    spec = wire(request.model.protocol)
    names = {name: short for short, name in short_names.items()}
    body = spec.encode_body(
        EncodeInput(
            model=request.model.id,
            messages=history,
            tools=adapt_tools(tools, flags, ledger.for_option("tools")) if tools else (),
            choice=options.choice if tools else None,
            tool_name=None if options.tool_name is None else names.get(options.tool_name, options.tool_name),
            parallel=parallel,
            names=names,
            method=None if output is None else output.method,
            schema=None if output is None else output.wire_schema,
            schema_name="answer" if output is None else output.name,
            stream=streams,
        ),
        flags,
    )
    if options.prefill:
        flags = prefill.apply_prefill(body[spec.turns], flags, ledger)
    params.apply_params(body, values, flags, ledger)
    bodies.add_patches(body, reasoning, flags, history, ledger)
    if options.other_params:
        other_params.add_other_params(body, options.other_params, flags, ledger.for_option("params"))
    bodies.add_extra_body(body, options, flags, ledger)
    body, content = bodies.encode(body, ledger)

    # The plan.
    rules = _call_rules(wish, request, prompted, forced, single)
    url, userinfo = url_headers.endpoint_url(request.model, flags, streams, ledger)
    headers = url_headers.request_headers(flags, options, streams, url_headers.basic_auth(userinfo, flags, ledger))
    continues = output is None and prompted is None and "reasoning" not in request.mode
    return Plan(
        method="POST",
        url=url,
        headers=headers,
        body=body,
        content=content,
        notes=ledger.notes,
        model=request.model,
        flags=flags,
        stream=streams,
        asked_stream=request.stream,
        tools=offered if prompted is None else prompted.tools,
        callable=prompted.tools if prompted is not None else () if options.choice == "none" else tools,
        renamed=short_names,
        strict_forms=request.strict_forms,
        call_rules=rules,
        prompted=prompted is not None,
        text_calls=options.recover_text_calls,
        schema=options.schema,
        answer=output,
        corrections=(0 if request.stream else 1) if options.corrections is None else options.corrections,
        prompt=_last_user_text(request.messages),
        messages=tuple(request.messages),
        max_output=bodies.output_limit(body, flags),
        stops=bodies.stop_texts(options, body, flags),
        limits=Limits.of(arguments.get("limits")),
        recovery=_recovery(options, flags),
        prefill=prefill.prefill_rules(flags) if continues else None,
        if_cut=options.if_cut or (flags.stream.if_cut if flags.stream else None) or "error",
    )


# ── mode and flags ───────────────────────────────────────────────────────────


def _reasoning_off(request: Draft, ledger: Ledger) -> Draft:
    """Turn reasoning off where the turn that continues has none of this model's, and the endpoint refuses that."""
    rules = request.flags.reasoning
    if rules is None or rules.if_missing != "reasoning-off" or "reasoning" not in request.mode:
        return request
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


_STEPS = (_reasoning_off, _strict_tools, _tool_choice)


def _other_wire(request: Draft) -> Model | None:
    """Return the model over the wire that takes this mode; None where its own does, or the caller chose the wire."""
    model, protocol = request.model, request.flags.protocol
    return None if model.over is None or protocol in (None, model.protocol) else model.over(str(protocol))


def _build_over(other: Model, request: Draft, arguments: dict[str, Any]) -> Plan:
    """Build the request over another wire of the endpoint, with a note."""
    model, mode = request.model, request.mode
    subject = f"{'+'.join(sorted(atom for atom in mode if not atom.startswith('no-')))} over {model.protocol}"
    note = Note("wire-routed", "protocol", subject, f"sent over {other.protocol}", model.where("protocol", mode))
    plan = build_request(other, request.messages, stream=request.stream, **arguments)
    return replace(plan, notes=[*plan.notes, note])


def _with_mode_defaults(request: Draft, arguments: dict[str, Any], ledger: Ledger) -> Draft:
    """Return the draft with the defaults of its own mode. Those that decide the mode were read before it."""
    call = request.flags.call
    if call is request.model.flags.call:
        return request
    late = read_options(arguments, call, request.flags.params or ())
    ledger.defaults = late.defaults
    options = replace(
        request.options,
        params=late.params,
        other_params=late.other_params,
        parallel_tool_calls=late.parallel_tool_calls,
        extra_body=late.extra_body,
        extra_headers=late.extra_headers,
        if_cut=late.if_cut,
        recover_text_calls=late.recover_text_calls,
        corrections=late.corrections,
        defaults=late.defaults,
    )
    return replace(request, options=options)


# ── tools and structured output ──────────────────────────────────────────────


def _structured_output(
    request: Draft, prompted: PromptedTools | None, ledger: Ledger
) -> tuple[Draft, OutputMethod | None]:
    """Choose the method for an answer by a schema. For a tool, offer the tool whose arguments are the answer."""
    flag = prompted_tools.FLAG if prompted is not None else None
    output = structured.choose_method(
        request.options, request.flags, ledger, lambda options: request.with_options(options).flags, flag
    )
    if output is not None and output.method == "tool":
        options = structured.add_answer_tool(request.options, output)
        request = replace(request.with_options(options), tools=options.tools)
        ledger.mode = request.mode
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
    wish: RequestOptions, request: Draft, prompted: PromptedTools | None, forced: bool, single: bool
) -> CallRules | None:
    """Return the rules for the calls of the reply, by the caller's own options and what went out."""
    patch = request.flags.body.set if request.flags.body is not None else None
    tools = request.tools if request.tools is wish.tools else [*wish.tools, *request.tools]
    if prompted is not None:
        forced, single = prompted.must is not None, prompted.single
    return call_rules(wish, tools, patch or {}, forced=forced, single=single)


# ── history and body ─────────────────────────────────────────────────────────


def _history(
    request: Draft, prompted: PromptedTools | None, output: OutputMethod | None, ledger: Ledger
) -> list[Message]:
    """Return the messages as this endpoint takes them, with the instructions for prompted tools and for the output."""
    messages = request.messages
    if prompted is not None:
        messages = prompted_tools.add_instruction(messages, prompted_tools.describe_tools(prompted))
    if output is not None:
        messages = structured.add_instruction(messages, output)
    return fit(messages, request.model, request.flags, request.options.tools, ledger, request.images)


def _streams(request: Draft, ledger: Ledger) -> bool:
    """Whether the wire streams, whatever the caller iterates over."""
    rules, stream = request.flags.stream, request.stream
    if rules is None:
        return stream
    if stream and request.tools and rules.tools is False:
        ledger.note("stream-whole", "stream.tools", "a stream with tools", "called whole, delivered as events")
        return False
    if not stream and rules.required:
        ledger.note("stream-collected", "stream.required", "a whole reply", "streamed, and collected")
        return True
    return stream


def _last_user_text(messages: list[Message]) -> str:
    return next((text for message in reversed(messages) if message.role == "user" and (text := message.text)), "")


# ── the plan ─────────────────────────────────────────────────────────────────


def _recovery(options: RequestOptions, flags: Flags) -> Recovery:
    """Return what is tried when the reply breaks off: as the call says, else as the registry does."""
    declared = _declared_recovery(flags.recovery or RecoveryFlags())
    return declared if options.recovery is None else options.recovery.with_defaults(declared)


@lru_cache(maxsize=64)
def _declared_recovery(flags: RecoveryFlags) -> Recovery:
    return Recovery(steps=flags.steps, streams=flags.streams, resume=flags.resume, cycle=flags.cycle)


def _fault(messages: list[Message], options: dict[str, Any]) -> Exception | None:
    """Return the error for the message or option that made building fail; None where it is none of them."""
    for index, message in enumerate(messages):
        if (fault := message_fault(f"messages[{index}].", message)) is not None:
            return fault
    return option_fault(options)
