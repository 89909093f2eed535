"""Ask an endpoint again what the registry claims of a model."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from cnllm.probe.claims import ClaimVerdict, judge_facts
from cnllm.probe.facts import FlagFact
from cnllm.probe.overlay import overlay
from cnllm.probe.place import EndpointPlace, ProbeTarget
from cnllm.probe.questions import QUESTIONS
from cnllm.probe.run import ProbeSettings, Report, run_target
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry

__all__ = ["Verification", "place_of", "verify"]

_OURS = (".otherwise", ".step", ".default", ".drop", "_budgets")
"""Endings of flags that say what cnllm does, which no endpoint can be asked."""


class Verification(Struct, frozen=True):
    """The results for the claims about a model, from the report of a probe.

    `not_asked` are claims that a question is about and no two runs answered; `patch` is a registry file with what was
    contradicted, "" where nothing was.
    """

    model: str
    report: Report
    agreed: tuple[str, ...]
    contradicted: tuple[ClaimVerdict, ...]
    unclaimed: tuple[ClaimVerdict, ...]
    not_asked: tuple[str, ...]
    patch: str


def place_of(model: Model) -> EndpointPlace:
    """Return the place of a model's endpoint, as the registry has it."""
    flags = model.flags
    header = flags.auth.header if flags.auth is not None else None
    auth = None if not header else (header.lower(), (flags.auth and flags.auth.value) or "{key}")
    return EndpointPlace(model.protocol, flags.base_url or "", flags.path, auth, flags.stream_path)


def verify(registry: Registry, model: Model, target: ProbeTarget, settings: ProbeSettings) -> Verification:
    """Ask the questions of a probe, the model's own switches first, and compare. Raises as `run` does."""
    report = run_target(replace(target, provider=model.provider, claims=model), registry, settings)
    verdicts = judge_facts(model, report.facts)
    wrong, patch = verdicts["contradicted"], ""
    if wrong and report.found is not None:
        facts = [FlagFact(verdict.flag, verdict.seen, verdict.answer, quote=verdict.quote) for verdict in wrong]
        patch = overlay(report.found, facts, model.provider)
    return Verification(
        model.name,
        report,
        agreed=tuple(verdict.flag for verdict in verdicts["agreed"]),
        contradicted=tuple(wrong),
        unclaimed=tuple(verdicts["unclaimed"]),
        not_asked=tuple(_not_asked(model, report.facts)),
        patch=patch,
    )


def _not_asked(model: Model, facts: Iterable[FlagFact]) -> Iterable[str]:
    """Yield the claimed flags that a question is about and that no two runs answered."""
    known = {fact.flag for fact in facts if fact.answer != "unknown"}
    about = {flag for question in QUESTIONS for flag in question.flags}
    for fact in model.explain():
        if fact.layer == "defaults" or fact.flag in known or fact.flag.endswith(_OURS):
            continue
        if fact.flag in about or fact.flag.rpartition(".")[0] in about:
            yield fact.flag
