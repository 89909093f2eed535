"""What `--json` of each listing prints. null is unknown."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from cnllm.batch.dry_run import Estimate
from cnllm.batch.report import Report
from cnllm.cli.output.json_types import Alias, Card, FlagDifference, Key, KeyTest, ModelRow
from cnllm.comparison import HostFigures, Verdict
from cnllm.model_facts.known_issues import KnownIssue
from cnllm.probe.claims import ClaimVerdict
from cnllm.registry.model import Fact
from cnllm.registry.problem import Problem
from cnllm.registry_files.compare import Disagreement
from cnllm.registry_files.sources import CitedSource, UnsourcedFlag
from cnllm.registry_files.updates.changes import Change
from cnllm.tool_trial import TrialReport
from cnllm.types import Quote


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
    "batch": Report,
    "call-quote": Quote,
    "batch-dry-run": Estimate,
    "verify-tools": list[TrialReport],
    "probe": Probed,
    "compare": Compared,
    "verify": list[Verified],
}
"""The command → the type of its `--json`."""
