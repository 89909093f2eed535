"""Ask whether the model reasons, how that is switched, and where reasoning arrives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.jsonpath import get, leaves, merge_patch, nest
from cnllm.probe.exchange import Ask, Asking, ProbeAnswer
from cnllm.probe.facts import Finding
from cnllm.probe.joint import group_items, is_named
from cnllm.probe.observed import THINKING, find_tags, message_of
from cnllm.probe.question import (
    SUM,
    ProbeContext,
    Steps,
    need,
    question,
)
from cnllm.registry.model import conditions

__all__ = ["default", "late_off", "reasons", "switch_off", "switch_on"]

_SEEN = ("reasoning.fields", "reasoning.shape", "reasoning.part", "reasoning.part_form", "reasoning.tags")
"""The flags that a reply with reasoning shows."""
_NOT = re.compile(r"\bnot\b|n't\b|unsupported|cannot|never|不支持|无法|不能", re.IGNORECASE)
_ALWAYS = re.compile(
    r"always|cannot be (?:turned|switched|disabled)|can ?not (?:disable|turn)|must be enabled", re.IGNORECASE
)


def reasons(answer: ProbeAnswer) -> bool:
    """Whether the model reasoned: the reply has reasoning, or counts tokens of it."""
    return bool(answer.reasoning or answer.usage.reasoning)


def _request(context: ProbeContext, patch: dict[str, Any], why: str) -> Ask:
    return context.ask([SUM], why=why, patch=patch, control=not patch)


def _says(answer: ProbeAnswer, patch: dict[str, Any], pattern: re.Pattern[str]) -> bool:
    """Whether a refusal is about reasoning and says this in words that do not only repeat the keys of the request."""
    keys = {key for path in leaves(patch) for key in path.split(".")}
    values = {str(value) for value in leaves(patch).values() if isinstance(value, str)}
    own = "|".join(map(re.escape, sorted(keys | values, key=len, reverse=True)))
    rest = re.sub(rf"(?<!\w)(?:{own})(?!\w)", " ", answer.message)
    return answer.refused and bool(THINKING.search(rest)) and bool(pattern.search(rest))


@question(
    "reasoning by default",
    "reasoning.default",
    *_SEEN,
    requests=1,
    by_model=True,
    capable=True,
    opens=True,
)
def default(context: ProbeContext) -> Steps:
    """Ask without any switch.

    Proof: the reply has reasoning, or counts its tokens, without any switch.
    """
    first = yield context.ask([SUM], why="no switch of reasoning", patch={})
    need(first.passed)
    if not reasons(first):
        return [Finding("_quiet", True, "works")]  # that it can reason shows only beside a switch
    return [Finding("reasoning.default", "on", "works"), *_form(context, first)]


def _form(context: ProbeContext, answer: ProbeAnswer) -> Iterable[Finding]:
    """Yield where the reasoning of a reply stands."""
    if not answer.reasoning:
        return
    if not context.is_flat:
        sealed = answer.reply is not None and any(getattr(p, "seal", None) for p in answer.reply.message.parts)
        declared = context.bodies.model.flags.reasoning.shape
        if declared in ("field", "content-parts"):
            yield Finding("reasoning.shape", "seal" if sealed and declared == "field" else declared, "works")
        return
    message = message_of(answer.data)
    content = message.get("content")
    if isinstance(content, list):
        part = next((p for p in content if isinstance(p, dict) and p.get("type") not in (None, "text")), {})
        kind = part.get("type")
        if kind in part:
            yield Finding("reasoning.shape", "content-parts", "works")
            yield Finding("reasoning.part", kind, "works")
            yield Finding("reasoning.part_form", _form_of(part[kind]), "works")
        return
    fields = [f for f in context.fields if get(message, f)]
    if fields:
        yield Finding("reasoning.fields", fields, "works")
        yield Finding("reasoning.shape", "details" if isinstance(get(message, fields[0]), list) else "field", "works")
    elif isinstance(content, str) and (tags := find_tags(content)) is not None:
        yield Finding("reasoning.shape", "tags", "works")
        yield Finding("reasoning.tags", list(tags[:2]), "works")
        if tags[2]:
            yield Finding("reasoning.tags_at", "start-open", "works")


def _form_of(thought: Any) -> str:
    """Return the form of the reasoning in a part: a text, a list of texts, or a list of parts."""
    if isinstance(thought, str):
        return "text"
    return "texts" if isinstance(thought, list) and thought and isinstance(thought[0], str) else "parts"


@question(
    "reasoning off",
    "reasoning.mode",
    "reasoning.off.set",
    requests=8,
    capable=True,
    applies=lambda c: c.known.get("reasoning.default") == "on",
)
def switch_off(context: ProbeContext) -> Steps:
    """Try the known switches for off until reasoning is gone.

    Proof: reasoning is gone with the switch and there without it; or no switch does that, and a refusal says that
    reasoning cannot be turned off, in other words than the keys of the request.
    """
    found, refusals = yield from _search_switch(context, "off", lambda answer: not reasons(answer))
    if found is not None:
        patch = found[0]
        return [Finding("reasoning.mode", "toggle", "works", by=patch), Finding("reasoning.off.set", patch, "works")]
    proof = next(((patch, answer) for patch, answer in refusals if _says(answer, patch, _ALWAYS)), None)
    return [] if proof is None else [Finding("reasoning.mode", "always", "refused", proof[1].message, by=proof[0])]


@question(
    "reasoning on",
    "reasoning.mode",
    "reasoning.default",
    "reasoning.on.set",
    *_SEEN,
    requests=8,
    capable=True,
    applies=lambda c: "_quiet" in c.known,
)
def switch_on(context: ProbeContext) -> Steps:
    """Try the known switches for on until reasoning appears.

    Proof: reasoning is there with the switch and not without it; or each switch is refused or idle, and a refusal says
    that the model has none, in other words than the keys of the request, or what the wire has for such models alone is
    refused.
    """
    found, refusals = yield from _search_switch(context, "on", reasons)
    if found is not None:
        patch, answer = found
        toggle = Finding("reasoning.mode", "toggle", "works", by=patch)
        own = yield from _with_own_keys(context)
        default = [Finding("reasoning.default", "off", "works")] if own is None or own.refused else []
        return [*default, toggle, Finding("reasoning.on.set", patch, "works"), *_form(context, answer)]
    proof = next(((patch, answer) for patch, answer in refusals if _says(answer, patch, _NOT)), None)
    if proof is None:
        own = yield from _with_own_keys(context)
        first = next(iter(_candidates(context, "on")), None)
        proof = (first, own) if own is not None and own.refused and first is not None else None
    return [] if proof is None else [Finding("reasoning.mode", "never", "refused", proof[1].message, by=proof[0])]


Switched = tuple[dict[str, Any], ProbeAnswer]
"""A change of the body, and the answer to a request with it."""
_Search = Asking[tuple[Switched | None, list[Switched]]]


def _search_switch(context: ProbeContext, side: str, works: Callable[[ProbeAnswer], bool]) -> _Search:
    """Return the first known switch to a side, on or off, that works, and the refusals of others."""
    why = f"reasoning {side} by"
    return _search(_candidates(context, side), lambda p: _request(context, p, f"{why} {_describe(p)}"), works)


def _search(
    patches: Iterable[dict[str, Any]], ask: Callable[[dict[str, Any]], Ask], works: Callable[[ProbeAnswer], bool]
) -> _Search:
    """Return the first patch that works, and the refusals of others.

    Patches of different keys are tried together, and those that a refusal names after the rest, alone. Where it names
    none, the first that is refused alone may be the only one.
    """
    refusals: list[Switched] = []

    def single(patch: dict[str, Any]) -> Asking[Switched | None]:
        answer = yield ask(patch)
        if answer.refused:
            refusals.append((patch, answer))
        return (patch, answer) if answer.passed and works(answer) else None

    def within(group: list[dict[str, Any]], *, is_known: bool = False) -> Asking[Switched | None]:
        if len(group) == 1:
            return (yield from single(group[0]))
        if not is_known:
            answer = yield ask(_merge_patches(group))
            if answer.passed and not works(answer):
                return None
            if not answer.passed:
                hits = [p for p in group if _is_about(answer, p)]
                rest = [p for p in group if p not in hits]
                found = (yield from within(rest)) if hits and rest else None
                return found or (yield from one_by_one(hits or group, answer))
        half = len(group) // 2
        found = yield from within(group[:half])
        return found or (yield from within(group[half:], is_known=True))

    def one_by_one(group: list[dict[str, Any]], every: ProbeAnswer) -> Asking[Switched | None]:
        is_only = True
        for number, patch in enumerate(group):
            count = len(refusals)
            found = yield from single(patch)
            if found is not None:
                return found
            rest = group[number + 1 :]
            alike = refusals[count:] and _bare(refusals[-1][1], group) == _bare(every, group)
            if alike and all(_is_about(every, p) for p in group):  # the same words that name all of them
                refusals.extend((p, every) for p in rest)
                return None
            if alike and is_only and len(rest) > 1:
                is_only = False
                answer = yield ask(_merge_patches(rest))
                if answer.passed:
                    return (yield from within(rest, is_known=True)) if works(answer) else None
        return None

    for group in group_items(patches, _is_apart):
        found = yield from within(group)
        if found is not None:
            return found, refusals
    return None, refusals


def _merge_patches(patches: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return one patch with what all of these set."""
    together: dict[str, Any] = {}
    for patch in patches:
        merge_patch(together, patch)
    return together


def _is_about(refusal: ProbeAnswer, patch: dict[str, Any]) -> bool:
    """Whether a refusal names a key of a patch, its first one or its last one."""
    return any(is_named(key, refusal.message) for path in leaves(patch) for key in (path, path.partition(".")[0]))


def _bare(refusal: ProbeAnswer, patches: list[dict[str, Any]]) -> set[str]:
    """Return the words of a refusal without the keys of patches."""
    keys = {key for patch in patches for path in leaves(patch) for key in path.split(".")}
    return set(re.findall(r"\w+", refusal.message)) - keys


def _with_own_keys(context: ProbeContext) -> Asking[ProbeAnswer | None]:
    """Return the answer to a request with what only one with reasoning may have; None where the wire has no such keys.

    A model that does not reason refuses it.
    """
    flags = context.bodies.model.flags_for(conditions(reasoning=False))
    if not flags.body.drop:
        return None
    ask = _request(context, {}, "no switch of reasoning, with its keys")
    body = replace(context.bodies, drop=()).build([SUM], stream=ask.stream, reasons=True)
    return (yield replace(ask, body=body, control=False))


def _candidates(context: ProbeContext, side: str) -> Sequence[dict[str, Any]]:
    """Return the patches to try for on or off: the one that decided the first run, or all."""
    hint, known = context.hints.get("reasoning.mode"), context.candidates
    return [hint.by] if hint is not None else known.on if side == "on" else known.off


def _describe(patch: dict[str, Any]) -> str:
    return ", ".join(f"{path}={value}" for path, value in leaves(patch).items())


@question(
    "reasoning off beside another switch",
    "reasoning.off.set",
    requests=8,
    capable=True,
    applies=lambda c: "_quiet" in c.known and c.known.get("reasoning.mode") == "toggle",
)
def late_off(context: ProbeContext) -> Steps:
    """Try the known switches for off beside another switch that makes the model reason.

    Proof: reasoning is gone with both, and there with the other switch alone.
    """
    known = context.known
    switches = {"reasoning.effort.at": known.get("reasoning.effort.high"), "reasoning.budget.at": 4096}
    on = [known.get("reasoning.on.set") or {}]
    on += [nest(known[at], value) for at, value in switches.items() if at in known and value is not None]
    groups: dict[int, list[dict[str, Any]]] = {}
    for off in context.candidates_for("reasoning.off.set", context.candidates.off):
        index = next((n for n, p in enumerate(on) if p and _is_apart(p, off)), None)
        if index is not None:
            groups.setdefault(index, []).append(off)
    for number, offs in groups.items():
        beside = on[number]
        control = yield replace(_request(context, beside, f"reasoning on by {_describe(beside)}"), control=True)
        if not control.passed or not reasons(control):
            continue

        def ask(off: dict[str, Any], beside: dict[str, Any] = beside) -> Ask:
            return _request(context, _merge_patches((beside, off)), f"reasoning off by {_describe(off)} beside it")

        found, _ = yield from _search(offs, ask, lambda answer: not reasons(answer))
        if found is not None:
            return [Finding("reasoning.off.set", found[0], "works")]
    return []


def _is_apart(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two patches set no value of the body both."""
    return leaves(first).keys().isdisjoint(leaves(second))
