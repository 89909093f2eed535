"""Define `cnllm verify`: what the registry claims of models, asked again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import client_factory, completion, option_types, options, probe_target
from cnllm.cli.language.messages import translate_word
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdio, stdout
from cnllm.cli.output.table import truncate_end
from cnllm.config import keys
from cnllm.errors import CnllmError
from cnllm.types.checks import plural

if TYPE_CHECKING:
    from cnllm.probe.claims import ClaimVerdict
    from cnllm.probe.state import ProbeStep
    from cnllm.probe.verify import Verification
    from cnllm.registry import Registry
    from cnllm.registry.model import Model

__all__ = [
    "verify",
]


_REQUESTS = 200
"""The most requests for one model, where the user sets no limit."""


@click.command(cls=options.Command)
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=completion.complete_models)
@flag("--all", "every", help="Every model whose key is set; needs --max-requests or --max-cost.")
@flag("--tools", help="Try scripted tasks with native tools, and with tools in the prompt.")
@flag("--simulate", help="Ask the simulator: no key, no network.")
@option_types.count("--max-requests", help="Send at most N requests in all.")
@option_types.number(
    "--max-cost",
    metavar="X",
    help="Stop where another answer of 500 tokens may pass X in all; a longer one can pass it. With --tools none can.",
)
@option_types.output(metavar="PATCH.toml", help="Write contradictions there.")
@flag("--json", "as_json", help="Print an array as JSON.")
@click.pass_context
def verify(ctx: click.Context, /, models: tuple[str, ...], *, every: bool, tools: bool, **options: Any) -> None:
    """Ask models again what the registry claims.

    Each claim is agreed, contradicted, or not asked. Contradictions are printed as a registry file. The exit status is
    0 if every claim that was asked is right, 1 if one is contradicted or an endpoint does not answer, and 3 if the
    limit came before the end. Without names, cnllm shows the plan and its cost and asks nothing.

    With --tools: 13 tasks whose end can be checked, each with native tools and with tools that the prompt describes.
    cnllm counts the tasks that end right, the calls made where one is needed, the calls that fit their schema, and
    the time. The exit status is 0 if more than 95 % of the tasks end right with native tools.

    Examples:
      cnllm verify glm-4.7 deepseek-flash
      cnllm verify --all --max-requests 2000 --json
      cnllm verify --tools glm-4.7 --max-requests 100 --json
      cnllm verify --tools glm-4.7 --simulate
    """
    from cnllm.registry import Registry

    if every and models:
        raise errors.UsageError("--all beside names of models", "leave one of them out")
    if every and options["max_requests"] is None and options["max_cost"] is None:
        raise errors.UsageError("--all without a limit", "add --max-requests N or --max-cost X")
    registry = Registry.load()
    chosen = [client_factory.choose_site(registry, name, offline=False) for name in models]
    for model in chosen:
        client_factory.print_site(model)
    if every:
        chosen = _models_with_key(registry)
    if tools:
        from cnllm.cli.commands import verify_tools

        status = verify_tools.verify_tools(registry, chosen, options) if chosen else verify_tools.print_plan()
    elif chosen:
        status = _verify_claims(registry, chosen, options)
    else:
        status = _print_plan(_models_with_key(registry))
    ctx.exit(status)


# ── the run ──────────────────────────────────────────────────────────────────


def _models_with_key(registry: Registry) -> list[Model]:
    """Return every described model whose key is set, and those that need none."""
    models = [registry.resolve(name) for name in registry.names()]
    current = [m for m in models if m.flags.status is None or m.flags.status.is_ != "retired"]
    return [m for m in current if m.flags.keys and keys.find_key(m.flags.keys) is not None]


def _print_plan(models: Sequence[Model]) -> int:
    """Print what verifying these models would take, and ask nothing."""
    from cnllm.probe.report import estimate

    stdio.print_line(f"models with a key: {len(models)}; each takes up to {_REQUESTS} requests. Nothing was asked.")
    for model in models:
        price = probe_target.price_of(model)
        currency = (model.flags.price.currency if model.flags.price is not None else None) or ""
        cost = "price unknown" if price is None else f"about {estimate(_REQUESTS, price):.2g} {currency}"
        stdout.print_message(f"{model.name}: {_REQUESTS} requests, {cost}")
    stdio.print_line("Name models, or add --all with --max-requests or --max-cost.")
    return errors.WHOLE


def _verify_claims(registry: Registry, models: Sequence[Model], options: Mapping[str, Any]) -> int:
    """Verify models one after the other, print what came of it, and return the exit status.

    0: every claim that was asked is right. 1: one is contradicted, or an endpoint does not answer. 2: a key is
    missing. 3: something was not asked. Raises `UsageError` for models whose price is needed and unknown.
    """
    if options["max_cost"] is not None:
        probe_target.require_prices(models)
    if options["output"] is not None:
        probe_target.require_own(options["output"])
    from cnllm.simulator.server import running

    with running(registry, strict=True) if options["simulate"] else contextlib.nullcontext() as simulator:
        results, status = _verify_all(registry, models, options, None if simulator is None else simulator.url)
    if options["as_json"]:
        stdout.print_json([_row(result) for result in results])
    text = "\n".join(result.patch for result in results if result.patch)
    if text and options["output"] is not None:
        probe_target.replace_own(Path(options["output"]), text.encode())
        stdio.print_line(f"{options['output']}: what was contradicted, as a registry file")
    elif text and not options["as_json"]:
        stdout.print_line(text.rstrip("\n"))
    return status


def _verify_all(
    registry: Registry, models: Sequence[Model], options: Mapping[str, Any], simulator: str | None
) -> tuple[list[Verification], int]:
    """Verify models within one allowance, and return what came of it with the exit status."""
    from cnllm.probe.run import ProbeSettings
    from cnllm.probe.verify import verify

    results: list[Verification] = []
    status, rest, money = errors.WHOLE, options["max_requests"], options["max_cost"]
    for model in models:
        if rest is not None and rest < 1:
            stdio.print_line(f"{model.name} and those after it were not asked: --max-requests is reached")
            status = errors.worst_status(status, errors.PARTIAL)
            break
        try:
            target = (
                probe_target.of_model(model) if simulator is None else probe_target.simulated_target(model, simulator)
            )
            most = min(_REQUESTS, rest) if rest is not None else _REQUESTS
            show = None if options["as_json"] else partial(_show, model.name)
            result = verify(registry, model, target, ProbeSettings(max_requests=most, max_cost=money, on_step=show))
        except CnllmError as error:
            errors.print_error(f"{model.name}: {error.message}", error.hint)
            status = errors.worst_status(status, errors.exit_status(error))
            continue
        results.append(result)
        rest = None if rest is None else rest - result.report.requests
        money = None if money is None else max(0.0, money - result.report.spent)
        own = errors.FAILED if result.contradicted else errors.PARTIAL if result.report.stopped else errors.WHOLE
        status = errors.worst_status(status, own)
        if not options["as_json"]:
            _print(result)
    return results, status


def _show(model: str, step: ProbeStep) -> None:
    stdio.print_line(truncate_end(f"{step.requests:>4}/{step.most}  {model} · {translate_word(step.question)}", 79))


# ── what is printed ──────────────────────────────────────────────────────────
def _print(result: Verification) -> None:
    stdout.print_message(
        f"{result.model}: {len(result.agreed)} claim{plural(len(result.agreed))} agreed, "
        f"{len(result.contradicted)} contradicted, "
        f"{len(result.not_asked)} not asked; {result.report.requests} request{plural(result.report.requests)}"
    )
    for verdict in result.contradicted:
        stdout.print_message(f"  {_sentence(verdict)}")
    if result.report.stopped:
        stdio.print_line(f"cnllm: {result.report.stopped}")


def _sentence(verdict: ClaimVerdict) -> str:
    claimed = json.dumps(verdict.claimed, ensure_ascii=False)
    seen = json.dumps(verdict.seen, ensure_ascii=False)
    place = f" ({verdict.where})" if verdict.where else ""
    quote = f': "{verdict.quote[:100]}"' if verdict.quote else ""
    return f"{verdict.flag}: claimed {claimed}{place}, seen {seen}{quote}"


def _row(result: Verification) -> dict[str, Any]:
    return {
        "model": result.model,
        "agreed": result.agreed,
        "contradicted": result.contradicted,
        "unclaimed": [{"flag": v.flag, "value": v.seen, "answer": v.answer} for v in result.unclaimed],
        "not_asked": result.not_asked,
        "requests": result.report.requests,
        "stopped": result.report.stopped,
    }
