"""Define `cnllm verify`: what the registry claims of models, asked again."""

from __future__ import annotations

import click

from cnllm.cli import completion, options
from cnllm.cli.output import errors

__all__ = ["verify"]

EXAMPLES = options.examples(
    "cnllm verify --tools glm-4.7 deepseek-flash",
    "cnllm verify --tools glm-4.7 --max-requests 100 --json",
    "cnllm verify --tools glm-4.7 --simulate",
)


@click.command(cls=options.Command, epilog=EXAMPLES)
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=completion.complete_models)
@click.option("--tools", is_flag=True, help="Try scripted tasks with native tools, and with tools in the prompt.")
@click.option("--simulate", is_flag=True, help="Ask the simulator: no key, no network.")
@click.option("--max-requests", metavar="N", type=click.IntRange(min=1), help="Send at most N requests in all.")
@click.option(
    "--max-cost", metavar="X", type=click.FloatRange(min=0), help="Send nothing that might cost more than X in all."
)
@click.option("--json", "as_json", is_flag=True, help="Print an array as JSON.")
@click.pass_context
def verify(
    ctx: click.Context,
    models: tuple[str, ...],
    tools: bool,
    simulate: bool,
    max_requests: int | None,
    max_cost: float | None,
    as_json: bool,
) -> None:
    """Ask models again what the registry claims.

    With --tools: 13 tasks whose end can be checked, each with native tools and with tools that the prompt describes.
    cnllm counts the tasks that end right, the calls that belong where they are, the calls that fit their schema, and
    the time. The exit status is 0 if more than 95 % of the tasks end right with native tools.
    """
    from cnllm.cli.commands.verify_tools import print_plan, verify_tools
    from cnllm.registry import Registry

    if not tools:
        raise errors.UsageError("nothing to verify", "add --tools")
    registry = Registry.load()
    resolved = [registry.resolve(name) for name in models]
    if not resolved:
        print_plan([])
        return
    ctx.exit(
        verify_tools(
            registry, resolved, max_requests=max_requests, max_cost=max_cost, simulate=simulate, as_json=as_json
        )
    )
