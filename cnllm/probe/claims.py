"""Compare the facts that a probe saw with the registry's claims about a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.jsonpath import get
from cnllm.probe.facts import USUAL, Finding, FlagFact, split_mode
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model, conditions

__all__ = ["ClaimVerdict", "is_assumed", "is_same", "judge_facts"]

Word = Literal["agreed", "contradicted", "unclaimed"]
_JSON = {"json_schema", "json_object"}
_PLACES = ("auth.", "simulator.")
_STREAMED = ("limits.",)
"""The flags for which the questions ask in a stream."""


class ClaimVerdict(Struct, frozen=True):
    """A claim and what was seen. `where` is the line that makes the claim, `quote` are the endpoint's words."""

    flag: str
    claimed: Any
    seen: Any
    answer: Literal["works", "refused", "ignored"]
    where: str
    quote: str


def judge_facts(model: Model, facts: Iterable[FlagFact]) -> dict[Word, list[ClaimVerdict]]:
    """Return a verdict on every fact that a probe of the model proved."""
    verdicts: dict[Word, list[ClaimVerdict]] = {"agreed": [], "contradicted": [], "unclaimed": []}
    for fact in facts:
        if fact.answer != "unknown" and not fact.flag.startswith(_PLACES):
            word, verdict = _judge(model, fact)
            verdicts[word].append(verdict)
    return verdicts


def _judge(model: Model, fact: FlagFact) -> tuple[Word, ClaimVerdict]:
    """Return whether the registry claims the same, something else, or nothing."""
    word: Word
    mode, flag = split_mode(fact.flag)
    atoms = _atoms(model, mode, flag) | (conditions(stream=True) if flag.startswith(_STREAMED) else frozenset())
    flags = msgspec.to_builtins(model.flags_for(atoms))
    claimed = get(flags, flag)
    where = model.where(flag, atoms)
    if flag.startswith("params."):
        word, claimed = _parameter(model, atoms, flag, fact)
    elif claimed is None or model.layer(flag, atoms) == "defaults" or claimed == "unknown":
        word = "agreed" if claimed == fact.value and claimed is not None else "unclaimed"
    else:
        word = "agreed" if is_same(flag, claimed, fact) else "contradicted"
    return word, ClaimVerdict(fact.flag, claimed, fact.value, fact.answer, where, fact.quote)  # type: ignore[arg-type]


def _atoms(model: Model, mode: str, flag: str) -> frozenset[str]:
    """Return the mode in which a fact was seen.

    Facts about reasoning are those of a model that reasons; others were asked without it, where the model can do that.
    """
    kind = model.flags.reasoning.mode
    if mode in ("reasoning", "no-reasoning"):
        return conditions(reasoning=mode == "reasoning")
    if mode:
        return frozenset(mode.split("+"))
    if kind == "toggle" and flag.startswith("reasoning."):
        return conditions(reasoning=True)
    return conditions(reasoning=kind == "always") if kind in ("always", "never", "toggle") else frozenset()


def is_same(flag: str, claimed: Any, fact: FlagFact | Finding) -> bool:
    """Whether two values mean the same on the wire."""
    seen = fact.value
    if flag == "schema.methods":
        return _ways(claimed) == _ways(seen)
    if flag == "reasoning.fields" or flag.startswith("usage."):
        return bool(seen) and seen[0] in claimed
    if flag == "messages.fields":
        return set(seen) >= set(claimed) - {"name"}
    if isinstance(claimed, list) and isinstance(seen, list):
        return sorted(map(str, claimed)) == sorted(map(str, seen))
    return bool(claimed == seen)


def is_assumed(flags: Flags, fact: FlagFact | Finding) -> bool:
    """Whether these flags of any endpoint of the wire say the same, or the protocols' documentation does."""
    kind, _, rest = fact.flag.partition(".")
    if kind == "params":
        name, _, key = rest.partition(".")
        rule = (flags.params or {}).get(name)
        if fact.answer == "refused" and not key:
            return rule is False
        return key in ("", "as") and rule is not False and param_rules.path(name, rule) == fact.value
    known = get(msgspec.to_builtins(flags), fact.flag)
    if known is None:
        known = USUAL.get(fact.flag)
    return known is not None and is_same(fact.flag, known, fact)


def _ways(methods: list[str]) -> set[str]:
    """Return the endpoint's own ways to JSON; one that takes a schema takes a bare object, too."""
    own = set(methods) & _JSON
    return _JSON if "json_schema" in own else own


def _parameter(model: Model, atoms: frozenset[str], flag: str, fact: FlagFact) -> tuple[Word, Any]:
    """Judge a fact on a parameter: whether it works, and between which bounds."""
    _, name, *rest = flag.split(".")
    rule = (model.flags_for(atoms).params or {}).get(name)
    state = param_rules.state(rule)
    if state == "unknown":
        return "unclaimed", None
    if not rest or rest == ["as"]:
        works = fact.answer == "works"
        is_same = state == fact.answer and (not works or param_rules.path(name, rule) == fact.value)
        return ("agreed" if is_same else "contradicted"), msgspec.to_builtins(rule)
    if state == "refused":
        return "contradicted", False
    bound = getattr(rule, rest[0], None)
    if bound is None:
        return "unclaimed", None
    return ("agreed" if bound == fact.value else "contradicted"), bound
