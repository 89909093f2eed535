"""Model + messages + options → the request, and every change it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode import endpoint, params, prefill, strict_tools, structured
from cnllm.engine.encode import reasoning as thinking
from cnllm.engine.encode import tools as choices
from cnllm.engine.encode.call_rules import CallRules, call_rules
from cnllm.engine.encode.structured import Answer
from cnllm.engine.history import fit, media
from cnllm.engine.history import prompted_tools as prompted
from cnllm.engine.history import reasoning as replay
from cnllm.engine.options import Asked, Function, TextCalls, asked_for, option_fault
from cnllm.jsonpath import at, blend, cut, put
from cnllm.protocols import Ask, wire
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags, Patch, Prefill
from cnllm.registry.flags import Reasoning as ReasoningFlags
from cnllm.registry.flags import Recovery as RecoveryFlags
from cnllm.registry.model import Model, conditions
from cnllm.types import Message, Note, Reasoning, checks
from cnllm.types.convert import as_messages, message_fault
from cnllm.types.lenient_json import whole
from cnllm.types.policy import Limits, Recovery, Timeouts

__all__ = ["Plan", "build_request"]

_encode = msgspec.json.Encoder().encode
_STRICT = attrgetter("strict")


class Plan(Struct, frozen=True, kw_only=True):
    """A request, ready but for the key, and what it decided.

    `headers` hold the key as the placeholder `{key}`. `flags` are those of the request's mode, which the reply is read
    by; `stream` is what goes over the wire, `asked_stream` what the caller wanted; `renamed` maps function names on the
    wire back to the caller's; `timeouts` are for the transport, `limits` for whoever reads. `callable` are the tools
    that may be called, `text_calls` says what becomes of calls written as text where the caller does, `prompt` is what
    the user said last, `messages` the conversation as the caller gave it. With `prompted` the tools are described
    in the prompt, and calls come as text. `answer` is how an answer by the `schema` was asked for, `corrections` how
    often an invalid one is sent back. `recovery` says what is tried where the reply breaks off. `call_rules` say which
    calls the reply may hold; None: any. `strict_forms` has, by the caller's names, the parameters of tools that went
    out in the form of strict mode. `prefill` says how the reply can be gone on with, should it be cut. `max_output` is
    the limit of the reply's tokens that was sent, `stops` are the caller's stop texts.
    """

    method: str
    url: str
    headers: dict[str, str]
    body: dict[str, Any]
    content: bytes
    notes: list[Note]
    model: Model
    flags: Flags
    stream: bool
    asked_stream: bool
    tools: tuple[Function, ...] = ()
    renamed: dict[str, str] = {}
    schema: dict[str, Any] | None = None
    answer: Answer | None = None
    corrections: int = 0
    if_cut: str = "error"
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    text_calls: TextCalls | None = None
    callable: tuple[Function, ...] = ()
    prompt: str = ""
    messages: tuple[Message, ...] = ()
    prompted: bool = False
    call_rules: CallRules | None = None
    max_output: int | None = None
    stops: tuple[str, ...] = ()
    recovery: Recovery = Recovery()
    strict_forms: dict[str, dict[str, Any]] = {}
    prefill: Prefill | None = None

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The conversation as it stands in the body."""
        found: list[dict[str, Any]] = self.body[wire(self.model.protocol).turns]
        return found

    def shown_headers(self) -> dict[str, str]:
        """The headers as they may be shown: what a caller put there is not for show, whatever its name."""
        from cnllm.config.redact import MARK, is_plain

        return {name: value if is_plain(name, value) else MARK for name, value in self.headers.items()}

    def __repr__(self) -> str:
        return (
            f"<Plan {self.method} {self.url} {self.shown_headers()} {len(self.content)} bytes, {len(self.notes)} notes>"
        )


def build_request(model: Model, messages: Any, *, stream: bool | None = None, **options: Any) -> Plan:
    """The request for a conversation. Pure: the same input gives the same bytes; the caller's objects stay as they are.

    Options are those of the README; what is left out is as the model's `call` table says, `stream` too. Raises
    `TypeError` or `ValueError` for an option or message that means nothing, `CannotSend` for what the endpoint cannot
    take and the caller does not want adjusted.
    """
    if type(model) is not Model:
        checks.demand("model", model, Model, "a cnllm.Model, as Registry.resolve returns it,")
    call = model.flags.call or {}
    asked = asked_for(options, call, model.flags.params or ())
    if stream is None:
        stream = bool(call.get("stream"))
    elif type(stream) is not bool:
        checks.demand("stream", stream, int, "True, False or None")
        stream = bool(stream)
    turns = as_messages(messages)
    if not turns:
        raise ValueError("messages is empty; there is nothing to send")
    try:
        return _built(model, turns, stream, asked, options)
    except checks.FAILURES as error:
        if (named := _fault(turns, options)) is not None:
            raise named from error
        raise


def _built(model: Model, turns: list[Message], stream: bool, asked: Asked, options: dict[str, Any]) -> Plan:
    pictured = media.shown(turns)
    ledger = Ledger(model, asked.on_unsupported, asked.defaults)
    given, wish = tuple(turns), asked
    if (over := _better(model, mode := _mode(asked, pictured, model, stream))) is not None:
        return _routed(model, over, mode, turns, stream, options)
    asked, spoken = choices.possible(asked, model.flags, ledger)
    mode = _mode(asked, pictured, model, stream)
    flags = model.under(mode)
    ledger.mode = mode
    if (thoughtless := _thoughtless(asked, turns, model, flags, mode, ledger)) is not asked:
        asked = thoughtless
        mode = _mode(asked, pictured, model, stream)
        flags, ledger.mode = model.under(mode), mode
    strict_forms: dict[str, dict[str, Any]] = {}
    if "strict" in mode:
        before = asked
        asked, strict_forms = strict_tools.formed(asked, flags, ledger.of("tools"))
        if asked is not before and (changed := _mode(asked, pictured, model, stream)) != mode:
            mode, flags, ledger.mode = changed, model.under(changed), changed
    before = asked
    asked, tools = choices.chosen(asked, flags, ledger)
    if asked is not before and (changed := _mode(asked, pictured, model, stream)) != mode:
        mode, flags, ledger.mode = changed, model.under(changed), changed
    if (over := _better(model, mode)) is not None:
        return _routed(model, over, mode, turns, stream, options)
    if flags.call is not model.flags.call:
        asked = _by_mode(asked, asked_for(options, flags.call, flags.params or ()))
        ledger.defaults = asked.defaults
    offered = asked.tools
    forced = asked.choice in ("required", "named") and bool(tools)
    beside = prompted.FLAG if spoken is not None else None
    answer = structured.planned(asked, flags, ledger, lambda a: model.under(_mode(a, pictured, model, stream)), beside)
    if answer is not None and answer.method == "tool":
        asked = structured.offered(asked, answer)
        tools = asked.tools
        mode = _mode(asked, pictured, model, stream)
        flags, ledger.mode = model.under(mode), mode
    renamed = choices.shortened(tools, flags, ledger.of("tools"))
    names = {long: short for short, long in renamed.items()}
    thought = thinking.planned(asked.reasoning, flags.reasoning, ledger.of("reasoning"))

    last = _last_said(turns)
    if spoken is not None:
        turns = prompted.instructed(turns, prompted.described(spoken))
    said = turns if answer is None else structured.instructed(turns, answer)
    fitted = fit.fit(said, model, flags, asked.tools, ledger, pictured)
    parallel = asked.parallel_tool_calls if tools else None
    if parallel is not None and not choices.takes_parallel(asked, flags, ledger):
        parallel = None
    single = parallel is False
    streams = _streams(stream, bool(tools), flags, ledger)
    spoken_by = wire(model.protocol)
    wanted = dict(asked.params)
    wanted.update({name: [wanted[name]] for name in spoken_by.lists if type(wanted.get(name)) is str})
    if parallel is not None and "parallel_tool_calls" in (flags.params or {}):
        wanted["parallel_tool_calls"], parallel = parallel, None
        single = single and param_rules.state((flags.params or {})["parallel_tool_calls"]) == "works"
    body = spoken_by.write(
        Ask(
            model=model.id,
            messages=fitted,
            tools=choices.offered(tools, flags, ledger.of("tools")) if tools else (),
            choice=asked.choice if tools else None,
            chosen=None if asked.chosen is None else names.get(asked.chosen, asked.chosen),
            parallel=parallel,
            names=names,
            method=None if answer is None else answer.method,
            schema=None if answer is None else answer.sent,
            schema_name="answer" if answer is None else answer.name,
            stream=streams,
        ),
        flags,
    )
    if asked.prefill:
        flags = prefill.applied(body[spoken_by.turns], flags, ledger)
    params.apply(body, wanted, flags, ledger)
    _patch(body, thought, flags, asked, fitted, ledger)
    if asked.extra_body:
        params.note_verbatim(asked.extra_body, flags, ledger.of("extra_body"))
        blend(body, asked.extra_body)
    try:
        content = _encode(body)
    except UnicodeEncodeError:
        ledger.note("text-mended", "messages", "half of a character, which no UTF-8 can hold", "replaced by U+FFFD")
        body = whole(body)
        content = _encode(body)
    except TypeError:
        body = _plain(body)
        content = _encode(body)
    standing = flags.body.set if flags.body is not None else None
    rules = call_rules(
        wish,
        tools if tools is wish.tools else [*wish.tools, *tools],
        standing or {},
        forced=forced if spoken is None else spoken.must is not None,
        single=single if spoken is None else spoken.one,
    )
    url, userinfo = endpoint.url(model, flags, streams, ledger)
    return Plan(
        method="POST",
        limits=Limits.of(options.get("limits")),
        url=url,
        headers=endpoint.headers(flags, asked, streams, endpoint.basic(userinfo, flags, ledger)),
        body=body,
        content=content,
        notes=ledger.notes,
        model=model,
        flags=flags,
        stream=streams,
        asked_stream=stream,
        tools=offered if spoken is None else spoken.tools,
        renamed=renamed,
        schema=asked.schema,
        answer=answer,
        corrections=(0 if stream else 1) if asked.corrections is None else asked.corrections,
        text_calls=asked.recover_text_calls,
        callable=spoken.tools if spoken is not None else () if asked.choice == "none" else tools,
        prompt=last,
        messages=given,
        prompted=spoken is not None,
        call_rules=rules,
        max_output=_limit(body, flags),
        stops=_stops(asked, body, flags),
        recovery=_recovery(asked, flags),
        strict_forms=strict_forms,
        prefill=None if answer is not None or spoken is not None or "reasoning" in mode else prefill.rules(flags),
        if_cut=asked.if_cut or (flags.stream.if_cut if flags.stream else None) or "error",
    )


def _param_path(name: str, flags: Flags) -> str:
    """Where a parameter stands in the body."""
    return param_rules.path(name, (flags.params or {}).get(name))


def _limit(body: dict[str, Any], flags: Flags) -> int | None:
    """The limit of the reply's tokens, as it is sent."""
    limit = at(body, _param_path("max_tokens", flags))
    return limit if type(limit) is int else None


def _stops(asked: Asked, body: dict[str, Any], flags: Flags) -> tuple[str, ...]:
    """The stop texts that the caller gave, as an option or in the body."""
    if not asked.extra_body and "stop" not in asked.params:
        return ()
    given = [asked.params.get("stop"), at(body, _param_path("stop", flags)) if asked.extra_body else None]
    texts = [text for one in given for text in (one if isinstance(one, list | tuple) else [one])]
    return tuple(dict.fromkeys(text for text in texts if type(text) is str and text))


def _recovery(asked: Asked, flags: Flags) -> Recovery:
    """What is tried where the reply breaks off: as the call says, else as the registry does."""
    declared = _declared(flags.recovery or RecoveryFlags())
    return declared if asked.recovery is None else asked.recovery.over(declared)


@lru_cache(maxsize=64)
def _declared(flags: RecoveryFlags) -> Recovery:
    return Recovery(steps=flags.steps, streams=flags.streams, resume=flags.resume, cycle=flags.cycle)


def _plain(value: Any) -> Any:
    """A body of JSON's own types, where a caller gave a subclass or a look-alike of one."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(inner) for inner in value]
    return value


def _fault(turns: list[Message], options: dict[str, Any]) -> Exception | None:
    """Return which message or option made a request fail; None where it is none of them."""
    for index, turn in enumerate(turns):
        if (found := message_fault(f"messages[{index}].", turn)) is not None:
            return found
    return option_fault(options)


def _better(model: Model, mode: frozenset[str]) -> Model | None:
    """The model over the wire that takes what this one refuses; None where the caller chose the wire."""
    wanted = model.under(mode).protocol
    return None if model.over is None or wanted in (None, model.protocol) else model.over(str(wanted))


def _thoughtless(
    asked: Asked, turns: list[Message], model: Model, flags: Flags, mode: frozenset[str], ledger: Ledger
) -> Asked:
    """Without reasoning where the turn that goes on began without it, and the endpoint takes no such turn."""
    rules = flags.reasoning
    if rules is None or rules.if_missing != "reasoning-off" or "reasoning" not in mode:
        return asked
    index = replay.lacking(turns, model)
    said, did = f"messages[{index}] has no reasoning of this model", "reasoning is off for this call"
    if index is None or not ledger.of("reasoning").may_change("reasoning-missing", "reasoning.if_missing", said, did):
        return asked
    return msgspec.structs.replace(asked, reasoning="off")


def _routed(
    model: Model, over: Model, mode: frozenset[str], turns: list[Message], stream: bool, options: dict[str, Any]
) -> Plan:
    """The request over the wire of the endpoint that takes this combination."""
    said = f"{'+'.join(sorted(a for a in mode if not a.startswith('no-')))} over {model.protocol}"
    note = Note("wire-routed", "protocol", said, f"sent over {over.protocol}", model.where("protocol", mode))
    plan = build_request(over, turns, stream=stream, **options)
    return msgspec.structs.replace(plan, notes=[*plan.notes, note])


def _by_mode(asked: Asked, late: Asked) -> Asked:
    """With the defaults of the call's own mode, but for those that decide the mode: these were taken before it."""
    return msgspec.structs.replace(
        asked,
        params=late.params,
        parallel_tool_calls=late.parallel_tool_calls,
        extra_body=late.extra_body,
        extra_headers=late.extra_headers,
        if_cut=late.if_cut,
        recover_text_calls=late.recover_text_calls,
        corrections=late.corrections,
        defaults=late.defaults,
    )


def _mode(asked: Asked, pictured: bool, model: Model, stream: bool) -> frozenset[str]:
    return conditions(
        reasoning=thinking.is_on(asked.reasoning, model.flags.reasoning),
        tools=bool(asked.tools),
        stream=stream,
        schema=asked.schema is not None,
        strict=any(map(_STRICT, asked.tools)),
        forced=asked.choice in ("required", "named"),
        images=pictured,
    )


def _last_said(turns: list[Message]) -> str:
    """What the user said last."""
    for turn in reversed(turns):
        if turn.role == "user" and (said := turn.text):
            return said
    return ""


# ── the rest of the body ─────────────────────────────────────────────────────


def _streams(stream: bool, tools: bool, flags: Flags, ledger: Ledger) -> bool:
    """What goes over the wire, whatever the caller iterates over."""
    rules = flags.stream
    if rules is None:
        return stream
    if stream and tools and rules.tools is False:
        ledger.note("stream-whole", "stream.tools", "a stream with tools", "called whole, delivered as events")
        return False
    if not stream and rules.required:
        ledger.note("stream-collected", "stream.required", "a whole reply", "streamed, and collected")
        return True
    return stream


def _patch(
    body: dict[str, Any],
    thought: thinking.Thinking,
    flags: Flags,
    asked: Asked,
    fitted: list[Message],
    ledger: Ledger,
) -> None:
    """The endpoint's standing patches, then those for reasoning."""
    if flags.body is not None:
        blend(body, flags.body.set or {})
        for path in flags.body.drop or ():
            cut(body, path)
    reasoning = flags.reasoning
    patches = list(thought.patches)
    if reasoning is not None and reasoning.replay_patch is not None and _replays(fitted):
        patches.append(reasoning.replay_patch)
    for patch in patches:
        blend(body, patch.set or {})
        for path in patch.drop or ():
            cut(body, path)
    for path, value in thought.puts:
        put(body, path, value)
    budget = thought.budget or _standing(body, patches, reasoning)
    if budget is not None:
        _budget(body, budget, flags, ledger.of("reasoning"))


def _standing(body: dict[str, Any], patches: list[Patch], reasoning: ReasoningFlags | None) -> tuple[str, int] | None:
    """A budget that a patch brings along."""
    where = reasoning.budget.at if reasoning is not None and reasoning.budget is not None else None
    tokens = at(body, where) if patches and where else None
    return (where, tokens) if where is not None and type(tokens) is int else None


def _replays(messages: list[Message]) -> bool:
    return any(type(p) is Reasoning and (p.text or p.seal) for m in messages if m.role == "assistant" for p in m.parts)


def _budget(body: dict[str, Any], budget: tuple[str, int], flags: Flags, ledger: Ledger) -> None:
    """A token budget, below the parameter it must stay below."""
    path, tokens = budget
    under = flags.reasoning.budget.under if flags.reasoning and flags.reasoning.budget else None
    if under is not None:
        ceiling: Any = body
        for key in _param_path(under, flags).split("."):
            ceiling = ceiling.get(key) if type(ceiling) is dict else None
        if type(ceiling) is int and tokens >= ceiling:
            fitted = max(ceiling - 1, 0)
            least = flags.reasoning.budget.min if flags.reasoning and flags.reasoning.budget else None
            if least is not None and fitted < least and flags.reasoning and flags.reasoning.off is not None:
                did = f"off: {under} leaves no room for the {least} tokens that it takes at least"
                if ledger.may_change("reasoning-budget", "reasoning.budget.min", tokens, did):
                    cut(body, path)
                    blend(body, flags.reasoning.off.set or {})
                    return
            elif ledger.may_change("reasoning-budget", "reasoning.budget.under", tokens, f"{fitted}: below {under}"):
                tokens = fitted
    put(body, path, tokens)
