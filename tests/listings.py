"""What `--json` of each listing prints. null is unknown."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from cnllm.batch.dry_run import Estimate
from cnllm.batch.report import BatchReport
from cnllm.cli.commands.aliases import Alias
from cnllm.cli.key_test import KeyTest
from cnllm.comparison import HostFigures, Verdict
from cnllm.model_facts.known_issues import KnownIssue
from cnllm.probe.claims import ClaimVerdict
from cnllm.registry.flags import Price
from cnllm.registry.model import Fact
from cnllm.registry.param_rules import State
from cnllm.registry.problem import Problem
from cnllm.registry_files.compare import Disagreement
from cnllm.registry_files.sources import CitedSource, UnsourcedFlag
from cnllm.registry_files.updates.changes import Change
from cnllm.tool_trial import TrialReport
from cnllm.types import Note, Quote


class ModelRow(TypedDict):
    """A model in `models list`."""

    name: str
    id: str
    provider: str
    protocol: str
    short: list[str]
    title: str | None
    context: int | None
    input_limit: int | None
    output: int | None
    input: list[str] | None
    reasoning: Literal["unknown", "never", "toggle", "always"] | None
    price: Price | None
    status: Literal["current", "preview", "retired"] | None
    capabilities: dict[str, bool | None]


class Card(ModelRow):
    """A model in `models show`: with the state of each parameter by mode, every flag and all notes.

    The modes are "reasoning" and "no-reasoning", or "any" where it is unknown whether the model can reason.
    """

    parameters: dict[str, dict[str, State]]
    flags: dict[str, Any]
    notes: list[Note]


class FlagFact(TypedDict):
    """The value of a flag for one of two models, and its origin."""

    value: Any
    layer: str
    where: str
    source: str | None
    seen: str | None
    how: str | None


class FlagDifference(TypedDict):
    """A flag that differs between two models. null if nothing is known about it."""

    flag: str
    a: FlagFact | None
    b: FlagFact | None


class Key(TypedDict):
    """A stored key, which one is used (the file's, or the variable of the same name), and which providers read it."""

    name: str
    used: Literal["file", "environment"]
    providers: list[str]


class ClientKey(TypedDict):
    """A key of a gateway's client, or a team of keys: its limits and what is used of them.

    Times are seconds since 1970, amounts are texts by currency. `spent` is what counts against the budget: of this
    period where it has one; `spent_before` is that of the periods before.
    """

    name: str
    created: float
    revoked: float | None
    models: list[str]
    rpm: int | None
    tpm: int | None
    budgets: dict[str, str]
    expires: float | None
    periods: dict[str, str]
    soft_budgets: dict[str, str]
    time_zone: str
    concurrency: int | None
    team: str | None
    assumed_price: list[str | float] | None
    kind: str
    state: str
    last_use: float | None
    calls: int
    tokens: int
    spent: dict[str, str]
    spent_before: dict[str, str]
    reserved: dict[str, str]
    period_starts: dict[str, int]
    period_ends: dict[str, int]
    minute_requests: int
    minute_tokens: int
    in_flight: int
    unpriced_calls: int


class ProbedFlag(TypedDict):
    """The knowledge of a probe about a flag."""

    flag: str
    value: Any
    answer: Literal["works", "refused", "ignored", "unknown"]


class Probed(TypedDict):
    """The facts that `probe` found, and the number of its requests."""

    facts: list[ProbedFlag]
    requests: int


class Verified(TypedDict):
    """The results of `verify` for a model: flags that agreed, contradictions, new facts, flags that were not asked."""

    model: str
    agreed: list[str]
    contradicted: list[ClaimVerdict]
    unclaimed: list[ProbedFlag]
    not_asked: list[str]
    requests: int
    stopped: str


class Compared(TypedDict):
    """The figures of hosts that `compare` measured, the verdicts on them, and what was spent, by currency."""

    figures: list[HostFigures]
    verdicts: list[Verdict]
    spent: dict[str, str]


LISTINGS: dict[str, Any] = {
    "models-list": list[ModelRow],
    "models-show": Card,
    "models-show-explain": list[Fact],
    "models-show-issues": list[KnownIssue],
    "models-diff": list[FlagDifference],
    "registry-check": list[Problem],
    "registry-check-older": list[CitedSource],
    "registry-check-unbacked": list[UnsourcedFlag],
    "registry-check-against": list[Disagreement],
    "registry-path": list[str],
    "registry-update": list[Change],
    "keys-list": list[Key],
    "keys-test": KeyTest,
    "aliases-list": list[Alias],
    "prefer": list[str],
    "templates-list": list[str],
    "serve-keys-list": list[ClientKey],
    "batch": BatchReport,
    "call-quote": Quote,
    "batch-dry-run": Estimate,
    "verify-tools": list[TrialReport],
    "probe": Probed,
    "compare": Compared,
    "verify": list[Verified],
}
"""The command → the type of its `--json`."""
