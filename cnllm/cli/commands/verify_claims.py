"""Run `cnllm verify`: what the registry claims of models, asked again at their endpoints."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cnllm.cli import probe_target
from cnllm.cli.output import answer, errors, stdio
from cnllm.errors import CnllmError, KeyMissing

if TYPE_CHECKING:
    from cnllm.probe.claims import Verdict
    from cnllm.probe.runner import Step
    from cnllm.probe.verify import Verification
    from cnllm.registry import Registry
    from cnllm.registry.model import Model

__all__ = ["models_with_key", "print_plan", "verify_claims"]

_REQUESTS = 200
"""The most requests for one model, where the user sets no limit."""


def models_with_key(registry: Registry) -> list[Model]:
    """Return every described model whose key is set, and those that need none."""
    from cnllm.config import keys

    models = [registry.resolve(name) for name in registry.names()]
    return [m for m in models if m.flags.keys and keys.find_key(m.flags.keys) is not None and _is_current(m)]


def _is_current(model: Model) -> bool:
    return model.flags.status is None or model.flags.status.is_ != "retired"


def print_plan(models: Sequence[Model]) -> None:
    """Print what verifying these models would take, and ask nothing."""
    from cnllm.probe.plan import estimate

    stdio.print_line(f"{len(models)} models have a key; each takes up to {_REQUESTS} requests. Nothing was asked.")
    for model in models:
        price = probe_target.price_of(model)
        cost = "price unknown" if price is None else f"about {estimate(_REQUESTS, price):.2g} {_currency(model)}"
        answer.print_line(f"{model.name}: {_REQUESTS} requests, {cost}")
    stdio.print_line("Name models, or add --all with --max-requests or --max-cost.")


def _currency(model: Model) -> str:
    return (model.flags.price.currency if model.flags.price is not None else None) or ""


def verify_claims(
    registry: Registry,
    models: Sequence[Model],
    *,
    max_requests: int | None,
    max_cost: float | None,
    simulate: bool,
    as_json: bool,
    output: str | None,
) -> int:
    """Verify models one after the other, print what came of it, and return the exit status.

    0: every claim that was asked is right. 1: one is contradicted, or an endpoint does not answer. 3: something was
    not asked.
    """
    with _simulator(registry, simulate) as url:
        results, status = _verify_all(registry, models, max_requests, max_cost, url, as_json)
    if as_json:
        answer.print_json([_row(result) for result in results])
    _patch(results, output, as_json)
    return status


@contextlib.contextmanager
def _simulator(registry: Registry, simulate: bool) -> Iterator[str | None]:
    """Run a strict simulator of every endpoint, and yield its address; None without `simulate`."""
    if not simulate:
        yield None
        return
    from cnllm.simulator.server import running

    with running(registry, strict=True) as server:
        yield server.url


def _verify_all(
    registry: Registry,
    models: Sequence[Model],
    max_requests: int | None,
    max_cost: float | None,
    simulator: str | None,
    as_json: bool,
) -> tuple[list[Verification], int]:
    """Verify models within one allowance, and return what came of it with the exit status."""
    from cnllm.probe.verify import verify

    results: list[Verification] = []
    status, left, money = errors.WHOLE, max_requests, max_cost
    for model in models:
        if left is not None and left < 1:
            stdio.print_line(f"{model.name} and those after it were not asked: --max-requests is reached")
            status = errors.worst_status(status, errors.PARTIAL)
            break
        target = _target(model, simulator)
        if target is None:
            status = errors.worst_status(status, errors.FAILED)
            continue
        if money is not None and target.price is None:
            raise errors.UsageError(f"--max-cost: the price of {model.name} is unknown", "use --max-requests")
        try:
            result = verify(
                registry,
                model,
                api_key=target.api_key,
                max_requests=min(_REQUESTS, left) if left is not None else _REQUESTS,
                max_cost=money,
                price=target.price,
                place=target.place,
                on_step=None if as_json else _show(model),
            )
        except CnllmError as error:
            errors.print_error(f"{model.name}: {error.message}", error.hint)
            status = errors.worst_status(status, errors.FAILED)
            continue
        results.append(result)
        left = None if left is None else left - result.requests
        money = None if money is None else max(0.0, money - result.spent)
        status = errors.worst_status(status, _status(result))
        if not as_json:
            _print(result)
    return results, status


def _target(model: Model, simulator: str | None) -> probe_target.ProbeTarget | None:
    """Return what to ask for a model; None where its key is missing, which is said."""
    if simulator is not None:
        return probe_target.of_simulated(model, simulator)
    try:
        return probe_target.of_model(model)
    except KeyMissing as error:
        errors.print_error(f"{model.name}: {error.message}", error.hint)
        return None


def _show(model: Model) -> Any:
    def show(step: Step) -> None:
        stdio.print_line(f"{step.requests:>4}/{step.most}  {model.name}: {step.question}"[:79])

    return show


def _status(result: Verification) -> int:
    if result.contradicted:
        return errors.FAILED
    return errors.PARTIAL if result.stopped else errors.WHOLE


# ── what is printed ──────────────────────────────────────────────────────────
def _print(result: Verification) -> None:
    answer.print_line(
        f"{result.model}: {len(result.agreed)} claims agreed, {len(result.contradicted)} contradicted, "
        f"{len(result.not_asked)} not asked; {result.requests} requests"
    )
    for verdict in result.contradicted:
        answer.print_line(f"  {_sentence(verdict)}")
    if result.stopped:
        stdio.print_line(f"cnllm: {result.stopped}")


def _sentence(verdict: Verdict) -> str:
    claimed = json.dumps(verdict.claimed, ensure_ascii=False)
    seen = json.dumps(verdict.fact.value, ensure_ascii=False)
    place = f" ({verdict.where})" if verdict.where else ""
    quote = f': "{verdict.fact.quote[:100]}"' if verdict.fact.quote else ""
    return f"{verdict.fact.flag}: claimed {claimed}{place}, seen {seen}{quote}"


def _row(result: Verification) -> dict[str, Any]:
    return {
        "model": result.model,
        "agreed": [v.fact.flag for v in result.agreed],
        "contradicted": [
            {
                "flag": v.fact.flag,
                "claimed": v.claimed,
                "seen": v.fact.value,
                "answer": v.fact.answer,
                "where": v.where,
                "quote": v.fact.quote,
            }
            for v in result.contradicted
        ],
        "unclaimed": [{"flag": v.fact.flag, "value": v.fact.value, "answer": v.fact.answer} for v in result.unclaimed],
        "not_asked": list(result.not_asked),
        "requests": result.requests,
        "stopped": result.stopped,
    }


def _patch(results: Sequence[Verification], output: str | None, as_json: bool) -> None:
    """Write the patches into the file that the user names, or print them below the table."""
    text = "\n".join(result.patch for result in results if result.patch)
    if not text:
        return
    if output is not None:
        from cnllm.cli.own_files import replace_own

        replace_own(Path(output), text.encode())
        stdio.print_line(f"{output}: what was contradicted, as a registry file")
    elif not as_json:
        answer.print_line(text.rstrip("\n"))
