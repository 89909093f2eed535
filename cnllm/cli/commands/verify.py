"""Define `cnllm verify`: what the registry claims of models, asked again."""

from __future__ import annotations

import click

from cnllm.cli import completion, options
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
def verify(
    ctx: click.Context,
    models: tuple[str, ...],
    every: bool,
    tools: bool,
    simulate: bool,
    max_requests: int | None,
    max_cost: float | None,
    output: str | None,
    as_json: bool,
) -> None:
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
    if every and max_requests is None and max_cost is None:
        raise errors.UsageError("--all without a limit", "add --max-requests N or --max-cost X")
    registry = Registry.load()
    resolved = [registry.resolve(name) for name in models]
    if tools:
        from cnllm.cli.commands import verify_tools

        if every:
            from cnllm.cli.commands.verify_claims import models_with_key

            resolved = models_with_key(registry)
        if not resolved:
            verify_tools.print_plan([])
            return
        ctx.exit(
            verify_tools.verify_tools(
                registry, resolved, max_requests=max_requests, max_cost=max_cost, simulate=simulate, as_json=as_json
            )
        )
    from cnllm.cli.commands import verify_claims

    if every:
        resolved = verify_claims.models_with_key(registry)
    if not resolved:
        verify_claims.print_plan(verify_claims.models_with_key(registry))
        return
    if output is not None:
        from cnllm.cli.own_files import require_own

        require_own(output)
    ctx.exit(
        verify_claims.verify_claims(
            registry,
            resolved,
            max_requests=max_requests,
            max_cost=max_cost,
            simulate=simulate,
            as_json=as_json,
            output=output,
        )
    )
