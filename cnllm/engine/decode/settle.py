"""Decide at the end of a reply what it is: its finish, its whole and incomplete calls, the last notes, its cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cnllm.engine.decode.collector import Collector
from cnllm.engine.decode.cost import is_off_peak
from cnllm.engine.decode.meter import limited_output
from cnllm.engine.decode.tool_calls import CallBuilder, markup_in_names
from cnllm.engine.encode.plan import Plan
from cnllm.protocols import wire
from cnllm.protocols.pieces import FINISH_RANKS
from cnllm.registry.flags import Flags, Price
from cnllm.registry.model import Model
from cnllm.schemas.adapt import remove_nulls
from cnllm.types import Finish, Media, Message, Note, Opaque, Part, Reasoning, Reply, ToolCall, Usage
from cnllm.types.checks import plural, short_text
from cnllm.types.documents import block_kind
from cnllm.types.lenient_json import decode_arguments, replace_surrogates

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["ReplyDecision", "build_reply", "price_note", "settle", "silence_note"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class ReplyDecision(Struct, frozen=True):
    """The decision about a reply. `calls` are the whole calls by the identity of their builders."""

    finish: Finish
    calls: dict[int, ToolCall]
    incomplete: list[ToolCall]
    notes: list[Note]


def settle(collector: Collector, plan: Plan, *, proven: bool) -> ReplyDecision:
    """Decide the finish from what arrived, and which calls are whole.

    `proven` means that the endpoint marked the end of the reply.
    """
    reported = collector.finish_kind
    word = collector.finish_word
    notes: list[Note] = []
    calls: dict[int, ToolCall] = {}
    incomplete: list[ToolCall] = []
    broken = not proven or collector.fault is not None or reported == "error"
    cut = reported in ("length", "content_filter")
    for call in collector.calls.all:
        found, is_whole = _read_call(call, collector, plan, notes, broken=broken, cut=cut)
        if is_whole:
            calls[id(call)] = found
        elif call.name or found.raw:
            incomplete.append(found)
    finish = _finish(collector, word, plan.flags, notes, proven=proven, has_calls=bool(calls or incomplete))
    if plan.max_output is not None:
        finish = _check_limit(collector, word, plan.max_output, finish, notes)
    if renamed := collector.calls.renamed:
        subject = f"{len(renamed)} repeated call ids, the first {renamed[0]!r}"
        notes.append(Note("ids-repeated", "tools.call_id_pattern", subject, "made unique"))
    where = collector.model.where
    if plan.call_rules is not None and finish in ("stop", "tool_calls"):
        for ignored, subject, did in plan.call_rules.ignored_wishes([call.name for call in calls.values()]):
            flag = "tools.parallel" if ignored == "parallel-ignored" else "tool_choice"
            notes.append(Note(ignored, flag, subject, did, where(flag)))
    price = plan.flags.price
    if price is not None and price.off_peak is not None:
        note = price_note(collector.model, price, collector.usage, collector.created)
        notes += [] if note is None else [note]
    if finish == "length" and collector.parts.thought and not collector.parts.text and not calls:
        did = "the whole budget went into reasoning, there is no answer: allow more tokens, or less reasoning"
        notes.append(Note("budget-spent-on-reasoning", "limits.output", "length", did))
    return ReplyDecision(finish, calls, incomplete, notes)


def _finish(
    collector: Collector, word: str | None, flags: Flags, notes: list[Note], *, proven: bool, has_calls: bool
) -> Finish:
    """Return how the reply ended, and note where that differs from the endpoint's word."""
    reported = collector.finish_kind
    if collector.fault is not None or reported == "error":
        return "error"
    if not proven:
        if word is not None and reported not in FINISH_RANKS:
            notes.append(_unproven_note(collector.model, word, reported))
        return "cut"
    if collector.refused or reported == "content_filter":
        return "content_filter"
    if reported == "length":
        return "length"
    finish: Finish = "tool_calls" if has_calls else "stop"
    # Where the wire has no word for calls, the calls themselves show that tools are called.
    is_implied = reported == "stop" and finish == "tool_calls" and "tool_calls" not in (flags.finish or {}).values()
    if word is not None and reported != finish and not is_implied:
        origin = collector.model.where(f"finish.{word}") if reported else ""
        is_known = reported in FINISH_RANKS and reported != "pause"  # after a pause the turn goes on
        code: NoteCode = "finish-follows" if is_known else _unproven_code(reported)
        notes.append(Note(code, "finish", word, finish, origin))
    return finish


def _unproven_note(model: Model, word: str, reported: str | None) -> Note:
    """Note the finish reason of a reply that was cut, where no reply ends with that reason."""
    did = "cut: this word says that the reply goes on"
    if reported is None:
        table = f"providers.{_toml_key(model.provider)}.on.{model.protocol}.finish"
        line = f'{table}.{_toml_key(word)} = "stop"'
        did = f"cut: an unknown word ends no stream. If a reply ends with it, declare it: {line}"
    return Note(_unproven_code(reported), "finish", word, did)


def _unproven_code(reported: str | None) -> NoteCode:
    """Return the code of a note on a finish reason that ends no reply."""
    return "finish-unknown" if reported is None else "finish-pending"


def _toml_key(key: str) -> str:
    """Return a key as TOML writes it."""
    return key if _BARE_KEY.fullmatch(key) else msgspec.json.encode(key).decode()


def _check_limit(collector: Collector, word: str | None, limit: int, finish: Finish, notes: list[Note]) -> Finish:
    """Compare the tokens with the limit, and return the finish.

    A reply that reached its limit may not be whole, even if the endpoint reports a normal end.
    """
    output = limited_output(collector.usage, collector.flags, thought=bool(collector.parts.thought))
    if output is None or output < limit or not limit or finish not in ("stop", "tool_calls"):
        return finish
    subject = f"{output} token{plural(output)} of at most {limit}, and {word or 'no finish reason'}"
    if finish == "stop" and not wire(collector.model.protocol).reports_length:
        notes.append(Note("limit-reached", "finish", subject, "length: the reply ended at its limit"))
        return "length"
    notes.append(Note("limit-reached", "finish", subject, f"kept as {finish}, but the reply may be incomplete"))
    return finish


def _read_call(
    call: CallBuilder, collector: Collector, plan: Plan, notes: list[Note], *, broken: bool, cut: bool
) -> tuple[ToolCall, bool]:
    """Decode a call; return it, and whether it is whole."""
    raw = call.raw
    arguments, problem = decode_arguments(raw)
    empty = raw.strip() in ("", "null")
    if call.late is not None:
        call.extra.update(replace_surrogates(call.late()) or {})
    extra = collector.parts.seal_of(call.extra) if call.extra else None
    name = plan.renamed.get(call.name, call.name)
    if arguments is not None and name in plan.strict_forms:
        arguments = remove_nulls(arguments, plan.strict_forms[name])
    whole = not broken and bool(name) and not (cut and (problem is not None or empty))
    if whole and call.is_whole is False:
        whole, problem = False, problem or "the endpoint marked it as unfinished"
    if whole and (markup := markup_in_names(name, arguments)):
        arguments, problem = None, f"it contains markup: {markup}"
    exclusion = None if plan.call_rules is None else plan.call_rules.exclusion(name)
    is_excluded = exclusion is not None and bool(name)
    if not whole:
        return ToolCall(call.call_id, name, None, raw, call.via, problem or "it was cut off", extra, is_excluded), False
    if exclusion is not None:
        arguments, problem = None, exclusion.reason
        did = f"never executed: {exclusion.reason}"
        origin = collector.model.where(exclusion.flag)
        notes.append(Note(exclusion.code, exclusion.flag, f"a call of {name!a}", did, origin))
    return ToolCall(call.call_id, name, arguments, raw, call.via, problem, extra, is_excluded), True


def price_note(model: Model, price: Price, usage: Usage, created: float | None) -> Note | None:
    """Return a note where the price depends on an unknown time or unknown peak hours."""
    if is_off_peak(price, created) is not None or (usage.input is None and usage.output is None):
        return None
    unknown = "the time of the reply is" if created is None else "the peak hours of its day are"
    flag = "price.off_peak"
    did = f"the cost is a lower bound, without the dearer price of peak hours: {unknown} not known"
    return Note("price-peak", flag, "cheaper outside the peak hours", did, model.where(flag))


def silence_note(collector: Collector, parts: Sequence[Part]) -> Note | None:
    """Return a note for a reply without text that ends normally: it may hold nothing that answers."""
    kinds = {type(part) for part in parts}
    if Media in kinds:
        return None
    if blocks := dict.fromkeys(block_kind(part.data) for part in parts if type(part) is Opaque):
        if collector.finish_kind == "pause":  # the turn goes on
            return None
        subject = f"{', '.join(map(short_text, blocks))} without text or a call"
        return Note("answer-missing", "messages", subject, "kept as blocks of the endpoint's own, which hold no answer")
    if not (collector.parts.thought or Reasoning in kinds):
        return None
    subject, did = "reasoning without text or a call", "the reply is incomplete: ask again, or with less reasoning"
    return Note("answer-missing", "reasoning", subject, did)


def build_reply(
    collector: Collector, settled: ReplyDecision, parts: tuple[Part, ...], plan: Plan, notes: list[Note]
) -> Reply:
    """Build the Reply. `notes` are those of the request and come first."""
    reply = Reply(
        text="".join(collector.parts.text),
        reasoning="".join(collector.parts.thought),
        tool_calls=list(settled.calls.values()),
        finish=settled.finish,
        raw_finish=collector.finish_word,
        usage=collector.usage,
        cost=None,
        model=collector.reported_model,
        id=collector.id,
        notes=[*notes, *collector.notes.all],
        message=Message("assistant", parts, by=collector.model.name),
        incomplete=settled.incomplete,
        raw=collector.raw,
        registry=collector.model.data_version,
        citations=collector.citations.all,
        extra=collector.extra,
    )
    is_cut = settled.finish in ("cut", "error") or collector.has_uncounted
    paid, invalid = collector.paid_calls, collector.invalid_counts
    cost = collector.meter.cost(reply, plan, collector.created, paid, is_cut=is_cut, invalid=invalid)
    return msgspec.structs.replace(reply, cost=cost)
