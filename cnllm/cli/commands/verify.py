"""Define `cnllm verify`: what the registry claims of models, asked again."""

from __future__ import annotations

from typing import Any

import click

from cnllm.cli import client_factory, completion, options
from cnllm.cli.commands import verify_claims
from cnllm.cli.output import errors

__all__ = ["verify"]

EXAMPLES = options.examples(
    "cnllm verify glm-4.7 deepseek-flash",
    "cnllm verify --all --max-requests 2000 --json",
    "cnllm verify --tools glm-4.7 --max-requests 100 --json",
    "cnllm verify --tools glm-4.7 --simulate",
)


@click.command(cls=options.Command, epilog=EXAMPLES)
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=completion.complete_models)
@click.option("--all", "every", is_flag=True, help="Every model whose key is set; needs --max-requests or --max-cost.")
@click.option("--tools", is_flag=True, help="Try scripted tasks with native tools, and with tools in the prompt.")
@click.option("--simulate", is_flag=True, help="Ask the simulator: no key, no network.")
@click.option("--max-requests", metavar="N", type=click.IntRange(min=1), help="Send at most N requests in all.")
@click.option(
    "--max-cost", metavar="X", type=click.FloatRange(min=0), help="Send nothing that might cost more than X in all."
)
@click.option("-o", "output", metavar="PATCH.toml", type=click.Path(dir_okay=False), help="Write contradictions there.")
@click.option("--json", "as_json", is_flag=True, help="Print an array as JSON.")
@click.pass_context
def verify(ctx: click.Context, /, models: tuple[str, ...], *, every: bool, tools: bool, **options: Any) -> None:
    """Ask models again what the registry claims.

    Each claim is agreed, contradicted, or not asked. Contradictions are printed as a registry file. The exit status is
    0 if every claim that was asked is right, 1 if one is contradicted or an endpoint does not answer, and 3 if the
    limit came before the end. Without names, cnllm shows the plan and its cost and asks nothing.

    With --tools: 13 tasks whose end can be checked, each with native tools and with tools that the prompt describes.
    cnllm counts the tasks that end right, the calls that belong where they are, the calls that fit their schema, and
    the time. The exit status is 0 if more than 95 % of the tasks end right with native tools.
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
        chosen = verify_claims.models_with_key(registry)
    if tools:
        from cnllm.cli.commands import verify_tools

        status = verify_tools.verify_tools(registry, chosen, options) if chosen else verify_tools.print_plan()
    elif chosen:
        status = verify_claims.verify_claims(registry, chosen, options)
    else:
        status = verify_claims.print_plan(verify_claims.models_with_key(registry))
    ctx.exit(status)
