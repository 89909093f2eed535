"""Build the request for a conversation: model, messages and options go in, a plan comes out.

The stages: options → what they decide (`prepare`) → history → body → plan. What the options of a call decide is the
same for all calls with these options: the model's cache keeps it, as far as it does not depend on the messages.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
from msgspec import Struct
from msgspec.structs import astuple as struct_values
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode import body as bodies
from cnllm.engine.encode import params, prefill, structured
from cnllm.engine.encode.client_data import resolve_client_data
from cnllm.engine.encode.mode import draft
from cnllm.engine.encode.plan import Plan
from cnllm.engine.encode.prepare import OtherWire, RequestTemplate, address, prepare
from cnllm.engine.encode.segments import join_segments
from cnllm.engine.history import media, prompted_tools
from cnllm.engine.history.fit import Target, fit
from cnllm.engine.options import CLIENT_OPTIONS, RequestOptions, option_fault, read_options
from cnllm.errors import CnllmError
from cnllm.jsonpath import get, merge_patch, remove
from cnllm.protocols import EncodeInput, wire
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.types import Message, Note, Reasoning, Text, checks
from cnllm.types.checks import message_fault, short_text
from cnllm.types.message import system_message
from cnllm.types.message_memory import MessageMemory, exact_bytes
from cnllm.types.messages import as_messages
from cnllm.types.policy import Limits, Timeouts
from cnllm.types.tools import Function

if TYPE_CHECKING:
    from cnllm.types.call_options import CallOptions
    from cnllm.types.messages import Messages

__all__ = ["build_request"]

_MOST_TEMPLATES = 64  # keys that a model keeps: two for most sets of options
_LARGEST_KEY = 100_000  # bytes
_CLIENT_DATA = frozenset(("extra_body", "extra_headers", "tools"))  # options that may hold what a client sent

_encode = msgspec.json.Encoder().encode


def build_request(
    model: Model,
    messages: Messages,
    *,
    stream: bool | None = None,
    memory: MessageMemory | None = None,
    **options: Unpack[CallOptions],
) -> Plan:
    """Build the request for a conversation. Pure: the same input gives the same bytes, and no argument is changed.

    `memory` remembers the messages of its owner, so that a conversation that goes on costs what is new in it.

    The options are those of `Client.call`, of which `api_key`, `fallback` and `tag` are for a client. An option that is
    not given is as the model's `call` table says, `stream` too. Raises `TypeError` or `ValueError` for an option or
    message that means nothing, `CannotSend` for what the endpoint cannot take and the caller does not want adjusted.
    """
    if type(model) is not Model:
        checks.require_type("model", model, Model, "a cnllm.Model, as Registry.resolve returns it,")
    if memory is not None:
        checks.require_type("memory", memory, MessageMemory, "a MessageMemory or None")
    system = options.pop("system", None)
    call_options: dict[str, Any] = dict(options)
    client_notes: list[Note] = []
    resolved = call_options
    if not _CLIENT_DATA.isdisjoint(call_options):
        resolved, client_notes = resolve_client_data(call_options, model, memory)
    stream = _streams(stream, model)
    key, entries = _find_in_cache(model, resolved, memory, stream=stream)
    own = _read_own(resolved, key, model) if entries is None else None
    turns, memory = _read_turns(messages, system, memory, needs_turns=not _has_input(resolved, model))
    try:
        plan = None if entries is None else _build_from_cache(entries, turns, memory)
        if plan is None:
            resolved, caller_options = own or _read_own(resolved, key, model)
            images = _has_media(turns)
            found = prepare(draft(model, turns, caller_options, stream=stream, images=images), resolved)
            if type(found) is OtherWire:
                return _notes_first(client_notes, _build_over(found, call_options), model)
            assert type(found) is RequestTemplate
            plan = _build(found, turns)
            if key is not None and not found.request.depends_on_messages:
                _add_to_cache(found, plan, key, images=images)
        if (limits := resolved.get("limits")) is not None:
            plan = replace(plan, limits=Limits.of(limits))
        if (timeout := resolved.get("timeout")) is not None:
            plan = replace(plan, timeouts=Timeouts.of(timeout))
        return _notes_first(client_notes, bodies.limit_cache_marks(plan), model)
    except checks.FAILURES as error:
        if (fault := _fault(turns, resolved)) is not None:
            raise fault from error
        raise


def _streams(stream: bool | None, model: Model) -> bool:
    """Whether the caller wants a stream: as the call says, else as the model's `call` table does."""
    if stream is None:
        return bool((model.flags.call or {}).get("stream"))
    if type(stream) is not bool:
        checks.require_type("stream", stream, int, "True, False or None")
    return bool(stream)


def _read_own(resolved: dict[str, Any], key: bytes | None, model: Model) -> tuple[dict[str, Any], RequestOptions]:
    """Return the options of a call, checked, and as plain values. With a key they are a copy that nobody changes."""
    if key is not None:
        resolved = {**resolved, **marshal.loads(key)[0]}
    return resolved, read_options(resolved, model.flags.call or {}, model.flags.params or ())


def _read_turns(
    messages: Messages, system: Any, memory: MessageMemory | None, *, needs_turns: bool
) -> tuple[list[Message], MessageMemory | None]:
    """Return the messages with the system's, and the memory where it has them. Raises `ValueError` without any."""
    turns = None if memory is None else memory.messages(messages)
    if turns is None:
        turns, memory = as_messages(messages), None
    if (not turns and needs_turns) or (isinstance(messages, str) and not messages.strip()):
        raise ValueError("messages is empty; there is nothing to send")
    if system is not None:
        turns = [system_message(system), *turns]
        if memory is not None:
            turns = memory.messages(turns) or turns
    return turns, memory


def _has_input(options: Mapping[str, Any], model: Model) -> bool:
    """Whether the body names input that the endpoint has already: a stored prompt, for example."""
    extra = options.get("extra_body")
    return isinstance(extra, Mapping) and not wire(model.protocol).reference_keys.isdisjoint(extra)


def _notes_first(notes: list[Note], plan: Plan, model: Model) -> Plan:
    """Return the plan with notes before its own, unless the plan is for another wire, which has them.

    A note on a client's key speaks of each place that has it: of the plan's own note on the same key it needs the line
    of the registry alone. The plan's own one may be about a message where the client's is about a part of a part.
    """
    if not notes or plan.model is not model:
        return plan
    own = {key: note for note in plan.notes if (key := _key_of(note)) is not None}
    known = {key for note in notes if note.flag in _INSIDE and (key := _key_of(note)) in own}
    first = [_joined(note, own[key]) if (key := _key_of(note)) in known else note for note in notes]
    return replace(plan, notes=[*first, *(note for note in plan.notes if _key_of(note) not in known)])


def _joined(note: Note, own: Note) -> Note:
    """Return one note for a client's note on a key and the plan's own one on the same key."""
    is_deep = note.said.count("[]") > 2  # lists within lists: messages, parts of one, parts of a result
    return replace(note, said=f"{note.said}, {own.said}" if is_deep else note.said, where=own.where)


_INSIDE = ("messages", "tools")
_OF_KEYS = ("key-foreign", "cache-mark")


def _key_of(note: Note) -> tuple[str, str] | None:
    """Return the key that a note says was left out, with the list that it stood in; None for any other note."""
    path, _, rest = note.said.partition(" ")
    if note.code not in _OF_KEYS or (rest and not rest.endswith(" times)")):
        return None
    return note.flag.partition(".")[0], path.rpartition(".")[2]


# ── the cache ────────────────────────────────────────────────────────────────


class _Frame(Struct, frozen=True):
    """The bytes of a body around its turns, on wires where nothing else depends on them.

    `plan` has what the body decides, `notes` are those on the body. `without_reasoning` says that the frame holds only
    for conversations without reasoning: for others the endpoint wants a further setting. `joins`: the turns are the
    segments of a conversation, one after the other. `key` is equal to that of no other frame.
    """

    plan: Plan
    encode_turns: Callable[..., list[dict[str, Any]]]
    before: bytes
    after: bytes
    notes: tuple[Note, ...]
    without_reasoning: bool
    joins: bool
    key: object

    def fill(self, history: list[Message], names: dict[str, str]) -> bytes | None:
        """Return the body of a fitted conversation; None where the frame does not hold for it."""
        if self.without_reasoning and any(type(p) is Reasoning for m in history for p in m.parts):
            return None
        turns = self.encode_turns(history, self.plan.flags, names)
        try:
            return b"%b%b%b" % (self.before, _encode(turns), self.after)
        except (UnicodeEncodeError, TypeError):  # the turns hold more than plain JSON
            return None


class _CacheEntry(Struct, frozen=True):
    """Holds what the options of a call decided, without messages.

    `parts` are the parts of a body that its caller could change, as bytes: each request gets a copy of its own.
    """

    template: RequestTemplate
    parts: bytes
    frame: _Frame | None = None

    def copy(self) -> RequestTemplate:
        """Return the template, with parts that nobody else has."""
        tools, schema, params = marshal.loads(self.parts)
        wire_tools = tuple([Function(*field) for field in tools])
        return replace(self.template, wire_tools=wire_tools, wire_schema=schema, params=params)


def _find_in_cache(
    model: Model, options: dict[str, Any], memory: MessageMemory | None, *, stream: bool
) -> tuple[bytes | None, dict[bool, _CacheEntry] | None]:
    """Return the options as bytes, and what is kept for them. The bytes are None where no request is kept.

    `marshal` refuses everything but Python's own types, and subclasses of them. What the client reads is left out.
    Its latest version takes half the time, but its bytes also depend on which values are one object: they only serve
    to find the same options again. Behind them stands the digest of tools that the memory has.
    """
    plain = {name: value for name, value in options.items() if name not in CLIENT_OPTIONS}
    memo = model.memo
    try:
        digest = b""
        if memory is not None and memory.has_list(plain.get("tools")):
            digest = memory.made_of(plain.pop("tools"), _digest)
        quick_key = marshal.dumps((plain, stream)) + digest
        if (entries := memo.get(quick_key)) is not None:
            return quick_key, entries
        key = exact_bytes((plain, stream)) + digest
    except ValueError:
        return None, None
    if len(key) > _LARGEST_KEY:
        return None, None
    if (entries := memo.get(key)) is not None and len(memo) < _MOST_TEMPLATES:
        memo[quick_key] = entries
    return key, entries


def _digest(tools: list[Any]) -> bytes:
    """Return the digest of tools. Raises `ValueError` for values that are not Python's own, and for long tools."""
    import hashlib  # loads OpenSSL, so only where it is needed

    data = exact_bytes(tools)
    if len(data) > _LARGEST_KEY:
        raise ValueError("the tools are too long")
    return hashlib.blake2b(data, digest_size=32).digest()


def _add_to_cache(template: RequestTemplate, plan: Plan, key: bytes, *, images: bool) -> None:
    """Keep what the options decide, without messages, for the model's next request."""
    memo = plan.model.memo
    if len(memo) >= _MOST_TEMPLATES:
        memo.clear()
    parts = ([struct_values(tool) for tool in template.wire_tools], template.wire_schema, template.params)
    entry = _CacheEntry(
        replace(template, request=replace(template.request, messages=[])),
        exact_bytes(parts),
    )
    memo.setdefault(key, {})[images] = replace(entry, frame=_frame(entry, plan))


def _frame(entry: _CacheEntry, plan: Plan) -> _Frame | None:
    """Return the body without turns; None where it cannot be sent so."""
    template, codec = entry.copy(), wire(plan.model.protocol)
    options, flags = template.request.options, plan.flags
    if codec.encode_turns is None or options.prefill or flags.body.rename:
        return None
    ledger = _ledger(template, ())
    key = codec.turns
    try:
        body = _body(template, [], ledger)
        if body.get(key) != [] or type(body[key]) is not list:  # a setting has changed the turns
            return None
        names = list(body)
        place = names.index(key)
        first = {name: body[name] for name in names[:place]}
        rest = {name: body[name] for name in names[place + 1 :]}
        head, tail = _encode(first)[1:-1], _encode(rest)[1:-1]
    except (CnllmError, ValueError, TypeError):  # a value of the caller's own type, or half of a character
        return None
    return _Frame(
        plan=replace(plan, headers=dict(plan.headers), content=b"", notes=[], messages=()),
        encode_turns=codec.encode_turns,
        before=b"{%b%b%b:" % (head, b"," if head else b"", _encode(key)),
        after=b"%b%b}" % (b"," if tail else b"", tail),
        notes=tuple(ledger.notes),
        without_reasoning=flags.reasoning.replay_patch is not None,
        joins=template.prompted is None and plan.answer is None and flags.tools.supported is not False,
        key=object(),
    )


# ── one request ──────────────────────────────────────────────────────────────


def _ledger(template: RequestTemplate, notes: tuple[Note, ...]) -> Ledger:
    """Return a ledger with notes to begin with, for what the messages decide."""
    request, options = template.request, template.request.options
    return Ledger(request.model, options.on_unsupported, options.defaults, notes, request.mode)


def _target(template: RequestTemplate, flags: Flags) -> Target:
    """Return what the messages of a request are fitted to."""
    request = template.request
    options = request.options
    return Target(
        model=request.model, flags=flags, tools=options.tools, has_media=request.images, pdf_text=options.pdf_text
    )


def _build(template: RequestTemplate, turns: list[Message], entry: _CacheEntry | None = None) -> Plan:
    """Build the plan of a request from its template and its messages."""
    request, plan = template.request, template.plan
    options, flags, model = request.options, request.flags, request.model
    target = _target(template, flags)
    ledger = _ledger(template, template.notes)

    # History and body.
    messages = turns
    if template.prompted is not None:
        messages = prompted_tools.add_instruction(messages, prompted_tools.describe_tools(template.prompted))
    if plan.answer is not None:
        messages = structured.add_instruction(messages, plan.answer)
    own = ledger.empty()
    history = fit(messages, target, own)
    ledger.extend(own.notes)
    if template.later_notes:
        ledger.extend(template.later_notes)
    frame = None if entry is None else entry.frame
    content = None if frame is None else frame.fill(history, template.names)
    if frame is not None and content is not None:
        if frame.notes:
            ledger.extend(frame.notes)
        plan = frame.plan
    else:
        body = _body(template if entry is None else entry.copy(), history, ledger)
        if options.prefill:
            flags = prefill.apply_prefill(body[wire(model.protocol).turns], flags, ledger)
            url, headers = address(request, flags, ledger, streams=plan.stream)
            plan = replace(plan, flags=flags, url=url, headers=headers)
        plan = replace(
            plan,
            max_output=bodies.output_limit(body, flags),
            most_output=bodies.most_output(body, flags),
            stops=bodies.stop_texts(options, body, flags),
        )
        content = bodies.encode(bodies.rename_keys(body, flags), ledger)
    return _with_turns(plan, content, ledger, turns)


def _build_from_cache(
    entries: dict[bool, _CacheEntry], turns: list[Message], memory: MessageMemory | None
) -> Plan | None:
    """Build the plan from what is kept for its options; None where that is not kept for these messages."""
    if memory is not None and (entry := entries.get(False)) is not None:
        plan = _build_joined(entry, turns, memory)
        if plan is not None:
            return plan
    entry = entries.get(_has_media(turns))
    return None if entry is None else _build(entry.template, turns, entry)


def _has_media(turns: list[Message]) -> bool:
    """Whether a message holds media. Most hold texts alone, which are seen at a look."""
    for turn in turns:
        for part in turn.parts:
            if type(part) is not Text:
                return media.has_media(turns)
    return False


def _build_joined(entry: _CacheEntry, turns: list[Message], memory: MessageMemory) -> Plan | None:
    """Build the plan from the segments of a conversation that `memory` has; None where it is built as a whole."""
    frame, template = entry.frame, entry.template
    if frame is None or not frame.joins:
        return None
    flags = frame.plan.flags
    ledger = _ledger(template, template.notes)
    by_user = flags.reasoning.replay == "since-user"
    target = _target(template, flags)

    def write(part: Sequence[Message], own: Ledger, *, before_user: bool) -> tuple[list[Message], list[dict[str, Any]]]:
        fitted = fit(part, target, own, before_user=before_user)
        return fitted, frame.encode_turns(fitted, flags, template.names)

    segments = join_segments(turns, memory, frame.key, write, ledger.empty(), by_user=by_user)
    if segments is None or (frame.without_reasoning and segments.has_reasoning):
        return None
    for notes in (segments.notes, template.later_notes, frame.notes):
        ledger.extend(notes)
    content = b"%b[%b]%b" % (frame.before, segments.content, frame.after)
    return _with_turns(frame.plan, content, ledger, turns)


def _with_turns(plan: Plan, content: bytes, ledger: Ledger, turns: list[Message]) -> Plan:
    """Return the plan with what the messages decide. Its headers are a copy: the caller may change them."""
    return replace(
        plan,
        headers=dict(plan.headers),
        content=content,
        notes=ledger.notes,
        messages=tuple(turns),
    )


def _body(template: RequestTemplate, history: list[Message], ledger: Ledger) -> dict[str, Any]:
    """Return the body: what the wire writes, then parameters, settings of the endpoint, the caller's own."""
    request, output = template.request, template.plan.answer
    options, flags, model = request.options, request.flags, request.model
    body = wire(model.protocol).encode_body(
        EncodeInput(
            model=model.id,
            messages=history,
            tools=template.wire_tools,
            choice=options.choice if request.tools else None,
            tool_name=None if options.tool_name is None else template.names.get(options.tool_name, options.tool_name),
            parallel=template.parallel,
            names=template.names,
            method=None if output is None else output.method,
            schema=template.wire_schema,
            schema_name=options.schema_name,
            schema_keys=options.schema_keys,
            stream=template.plan.stream,
        ),
        flags,
    )
    merge_patch(body, template.params)
    bodies.add_patches(body, template.reasoning, flags, history, ledger)
    if options.other_params:
        params.add_other_params(body, options.other_params, flags, ledger.for_option("params"))
    bodies.add_extra_body(body, options, flags, ledger)
    _require_one_reply(body, model, ledger)
    return body


def _require_one_reply(body: dict[str, Any], model: Model, ledger: Ledger) -> None:
    """Refuse a request for several replies: one comes back, and all are paid for."""
    for path in wire(model.protocol).count_paths:
        count = get(body, path)
        if count is None or count == 1:
            continue
        reason = "a request has one reply; send it once for each reply"
        if ledger.cannot("choice-dropped", "n", f"{path} = {short_text(count)}", reason):
            remove(body, path)


def _build_over(other_wire: OtherWire, arguments: dict[str, Any]) -> Plan:
    """Build the request over another wire of the endpoint, with a note."""
    request, other = other_wire.request, other_wire.model
    model, mode = request.model, request.mode
    subject = f"{'+'.join(sorted(atom for atom in mode if not atom.startswith('no-')))} over {model.protocol}"
    note = Note("wire-routed", "protocol", subject, f"sent over {other.protocol}", model.where("protocol", mode))
    plan = build_request(other, request.messages, stream=request.stream, **arguments)
    return replace(plan, notes=[*plan.notes, note])


def _fault(messages: list[Message], options: dict[str, Any]) -> Exception | None:
    """Return the error for the message or option that made building fail; None where it is none of them."""
    for index, message in enumerate(messages):
        if (fault := message_fault(f"messages[{index}].", struct_values(message))) is not None:
            return fault
    return option_fault(options)
