"""Build the request for a conversation: model, messages and options go in, a plan comes out.

The stages: options → what they decide (`prepare`) → history → body → plan. What the options of a call decide is the
same for all calls with these options: it is kept, as far as it does not depend on the messages.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import astuple as struct_values
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode import body as bodies
from cnllm.engine.encode import other_params, prefill, structured
from cnllm.engine.encode.client_data import resolve_client_data
from cnllm.engine.encode.frame import Frame, make_frame
from cnllm.engine.encode.mode import Draft, draft
from cnllm.engine.encode.plan import Plan
from cnllm.engine.encode.prepare import Prepared, address, prepare
from cnllm.engine.history import media, prompted_tools
from cnllm.engine.history.fit import fit
from cnllm.engine.options import CLIENT_OPTIONS, Function, option_fault, read_options
from cnllm.errors import CnllmError
from cnllm.jsonpath import get, merge_patch, remove
from cnllm.protocols import EncodeInput, wire
from cnllm.registry.model import Model
from cnllm.types import Message, Note, checks
from cnllm.types.checks import short_text
from cnllm.types.content import system_message
from cnllm.types.convert import as_messages
from cnllm.types.faults import message_fault
from cnllm.types.policy import Limits

if TYPE_CHECKING:
    from cnllm.types.call_options import CallOptions
    from cnllm.types.message_types import Messages

__all__ = ["build_request"]

_MOST_PREPARED = 64  # keys that a model keeps: two for most sets of options
_LARGEST_KEY = 100_000  # bytes
_MARSHAL = 2  # the last version whose bytes depend on nothing but the values


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
    if stream is None:
        stream = bool(call.get("stream"))
    elif type(stream) is not bool:
        checks.require_type("stream", stream, int, "True, False or None")
        stream = bool(stream)
    key, kept = _find_kept(model, settings, stream)
    wish = None
    if kept is None:
        if key is not None:  # a copy, which nobody changes later
            settings = {**settings, **marshal.loads(key)[0]}
        wish = read_options(settings, call, model.flags.params or ())
    turns = as_messages(messages)
    if not turns:
        raise ValueError("messages is empty; there is nothing to send")
    if system is not None:
        turns = [system_message(system), *turns]
    images = media.has_media(turns)
    try:
        prepared = None if kept is None else kept.get(images)
        if prepared is None:
            wish = read_options(settings, call, model.flags.params or ()) if wish is None else wish
            prepared = prepare(draft(model, turns, wish, stream=stream, images=images), settings)
            if prepared.over is not None:
                return _notes_first(client_notes, _build_over(prepared.over, prepared.request, given), model)
        plan = _build(prepared, turns, Limits.of(settings.get("limits")))
        if key is not None and prepared.is_reusable and (kept is None or images not in kept):
            _keep(prepared, plan, key, images)
        return _notes_first(client_notes, plan, model)
    except checks.FAILURES as error:
        if (fault := _fault(turns, settings)) is not None:
            raise fault from error
        raise


def _notes_first(notes: list[Note], plan: Plan, model: Model) -> Plan:
    """Return the plan with notes before its own, unless the plan is for another wire, which has them."""
    return replace(plan, notes=[*notes, *plan.notes]) if notes and plan.model is model else plan


# ── what is kept ─────────────────────────────────────────────────────────────


def _find_kept(model: Model, options: dict[str, Any], stream: bool) -> tuple[bytes | None, dict[bool, Prepared] | None]:
    """Return the options as bytes, and what is kept for them. The bytes are None where no request is kept.

    `marshal` refuses everything but Python's own types, and subclasses of them. What the client reads is left out.
    Its latest version takes half the time, but its bytes also depend on which values are one object: they only serve
    to find the same options again.
    """
    plain = {name: value for name, value in options.items() if name not in CLIENT_OPTIONS}
    memo = model.memo
    try:
        quick_key = marshal.dumps((plain, stream))
        if (kept := memo.get(quick_key)) is not None:
            return quick_key, kept
        key = marshal.dumps((plain, stream), _MARSHAL)
    except ValueError:
        return None, None
    if len(key) > _LARGEST_KEY:
        return None, None
    if (kept := memo.get(key)) is not None and len(memo) < _MOST_PREPARED:
        memo[quick_key] = kept
    return key, kept


def _keep(prepared: Prepared, plan: Plan, key: bytes, images: bool) -> None:
    """Keep what the options decide, without messages, for the model's next request."""
    memo = plan.model.memo
    if len(memo) >= _MOST_PREPARED:
        memo.clear()
    kept = replace(prepared, request=replace(prepared.request, messages=[]), template=_template(prepared))
    memo.setdefault(key, {})[images] = replace(kept, frame=_frame(kept, plan))


def _frame(prepared: Prepared, plan: Plan) -> Frame | None:
    """Return the body without turns, on wires where nothing else depends on them; None where it cannot be sent so."""
    request, spec = prepared.request, wire(prepared.request.model.protocol)
    options, flags = request.options, request.flags
    if spec.encode_turns is None or options.prefill or (flags.body is not None and flags.body.rename):
        return None
    ledger = Ledger(request.model, options.on_unsupported, prepared.defaults, ())
    ledger.mode = request.mode
    try:
        body = _body(prepared, [], ledger)
    except CnllmError:
        return None
    rules = flags.reasoning
    bare = replace(plan, headers={}, body={}, content=b"", notes=[], prompt="", messages=())
    without_reasoning = rules is not None and rules.replay_patch is not None
    return make_frame(body, spec.turns, bare, ledger.notes, without_reasoning=without_reasoning)


def _template(prepared: Prepared) -> bytes:
    """Return the parts of a body that its caller could change: each request gets a copy of its own."""
    output = prepared.output
    schema = None if output is None else output.wire_schema
    return marshal.dumps(([struct_values(tool) for tool in prepared.wire_tools], schema, prepared.params), _MARSHAL)


# ── one request ──────────────────────────────────────────────────────────────


def _build(prepared: Prepared, turns: list[Message], limits: Limits) -> Plan:
    """Build the plan of a prepared request for its messages."""
    request, output = prepared.request, prepared.output
    options, flags, model, mode = request.options, request.flags, request.model, request.mode
    ledger = Ledger(model, options.on_unsupported, prepared.defaults, prepared.notes)
    ledger.mode = mode

    # History and body.
    messages = turns
    if prepared.prompted is not None:
        messages = prompted_tools.add_instruction(messages, prompted_tools.describe_tools(prepared.prompted))
    if output is not None:
        messages = structured.add_instruction(messages, output)
    history = fit(messages, model, flags, options.tools, ledger, request.images, options.pdf_text)
    ledger.extend(prepared.later_notes)
    if (filled := _fill(prepared, history)) is not None and prepared.frame is not None:
        ledger.extend(prepared.frame.notes)
        return replace(
            prepared.frame.plan,
            headers=dict(prepared.headers),
            body=filled[0],
            content=filled[1],
            notes=ledger.notes,
            prompt=_last_user_text(turns),
            messages=tuple(turns),
            limits=limits,
        )
    body, url, headers = _body(prepared, history, ledger), prepared.url, prepared.headers
    if options.prefill:
        flags = prefill.apply_prefill(body[wire(model.protocol).turns], flags, ledger)
        url, headers = address(request, flags, prepared.streams, ledger)
    max_output, stops = bodies.output_limit(body, flags), bodies.stop_texts(options, body, flags)
    body, content = bodies.encode(bodies.rename_keys(body, flags), ledger)
    continues = output is None and prepared.prompted is None and "reasoning" not in mode
    return Plan(
        method="POST",
        url=url,
        headers=dict(headers),
        body=body,
        content=content,
        notes=ledger.notes,
        model=model,
        flags=flags,
        stream=prepared.streams,
        asked_stream=request.stream,
        tools=prepared.offered,
        callable=prepared.callable,
        renamed=prepared.renamed,
        strict_forms=request.strict_forms,
        call_rules=prepared.rules,
        prompted=prepared.prompted is not None,
        text_calls=options.recover_text_calls,
        schema=options.schema,
        answer=output,
        corrections=(0 if request.stream else 1) if options.corrections is None else options.corrections,
        corrects_inputs=options.corrections != 0,
        prompt=_last_user_text(turns),
        messages=tuple(turns),
        max_output=max_output,
        stops=stops,
        limits=limits,
        recovery=prepared.recovery,
        search=prepared.search,
        echo=prepared.echo,
        prefill=prefill.prefill_rules(flags) if continues else None,
        if_cut=options.if_cut or (flags.stream.if_cut if flags.stream else None) or "error",
    )


def _fill(prepared: Prepared, history: list[Message]) -> tuple[dict[str, Any], bytes] | None:
    """Return the body and its bytes by the frame that was kept; None where there is none that fits."""
    request, frame = prepared.request, prepared.frame
    encode_turns = wire(request.model.protocol).encode_turns
    if frame is None or encode_turns is None or not frame.fits(history):
        return None
    return frame.fill(encode_turns(history, request.flags, prepared.names))


def _body(prepared: Prepared, history: list[Message], ledger: Ledger) -> dict[str, Any]:
    """Return the body: what the wire writes, then parameters, settings of the endpoint, the caller's own."""
    request, output = prepared.request, prepared.output
    options, flags, model = request.options, request.flags, request.model
    tools, schema, values = prepared.wire_tools, None if output is None else output.wire_schema, prepared.params
    if prepared.template is not None:
        fields, schema, values = marshal.loads(prepared.template)
        tools = tuple([Function(*field) for field in fields])
    body = wire(model.protocol).encode_body(
        EncodeInput(
            model=model.id,
            messages=history,
            tools=tools,
            choice=options.choice if request.tools else None,
            tool_name=None if options.tool_name is None else prepared.names.get(options.tool_name, options.tool_name),
            parallel=prepared.parallel,
            names=prepared.names,
            method=None if output is None else output.method,
            schema=schema,
            schema_name="answer" if output is None else output.name,
            schema_keys=options.schema_keys,
            stream=prepared.streams,
        ),
        flags,
    )
    merge_patch(body, values)
    bodies.add_patches(body, prepared.reasoning, flags, history, ledger)
    if options.other_params:
        other_params.add_other_params(body, options.other_params, flags, ledger.for_option("params"))
    bodies.add_extra_body(body, options, flags, ledger)
    _require_one_reply(body, model, ledger)
    return body


def _require_one_reply(body: dict[str, Any], model: Model, ledger: Ledger) -> None:
    """Refuse a request for several replies: one comes back, and all are paid for."""
    path = wire(model.protocol).count_path
    count = None if path is None else get(body, path)
    if path is None or count is None or count == 1:
        return
    reason = "one reply to a request is all there is; send the request once for each"
    if ledger.cannot("choice-dropped", "n", f"{path} = {short_text(count)}", reason):
        remove(body, path)


def _build_over(other: Model, request: Draft, arguments: dict[str, Any]) -> Plan:
    """Build the request over another wire of the endpoint, with a note."""
    model, mode = request.model, request.mode
    subject = f"{'+'.join(sorted(atom for atom in mode if not atom.startswith('no-')))} over {model.protocol}"
    note = Note("wire-routed", "protocol", subject, f"sent over {other.protocol}", model.where("protocol", mode))
    plan = build_request(other, request.messages, stream=request.stream, **arguments)
    return replace(plan, notes=[*plan.notes, note])


def _last_user_text(messages: list[Message]) -> str:
    """Return the text of the user's last message."""
    for message in reversed(messages):
        if message.role == "user" and (text := message.text):
            return text
    return ""


def _fault(messages: list[Message], options: dict[str, Any]) -> Exception | None:
    """Return the error for the message or option that made building fail; None where it is none of them."""
    for index, message in enumerate(messages):
        if (fault := message_fault(f"messages[{index}].", message)) is not None:
            return fault
    return option_fault(options)
