"""Complete models, key names and conversations in the shell, and print the script that installs completion."""

from __future__ import annotations

import click

__all__ = [
    "complete_aliases",
    "complete_conversations",
    "complete_key_names",
    "complete_mcp_servers",
    "complete_models",
    "complete_providers",
    "complete_templates",
    "completion",
]

SHELLS = ("bash", "zsh", "fish")


def complete_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return short names and PROVIDER/ID with this prefix. Empty if the registry is broken: `check` reports that."""
    from cnllm.errors import CnllmError
    from cnllm.registry import summary

    try:
        return summary.names().complete(incomplete)
    except CnllmError:
        return []


def complete_key_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return providers and stored key names with this prefix."""
    from cnllm.config import keys
    from cnllm.errors import CnllmError
    from cnllm.registry import summary

    try:
        return [name for name in [*summary.names().providers, *keys.key_names()] if name.startswith(incomplete)]
    except CnllmError:
        return []


def complete_mcp_servers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the user's MCP servers with this prefix."""
    from cnllm.registry.mcp_servers import mcp_server_names

    return [name for name in mcp_server_names() if name.startswith(incomplete)]


def complete_providers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return providers with this prefix."""
    from cnllm.errors import CnllmError
    from cnllm.registry import summary

    try:
        return [name for name in summary.names().providers if name.startswith(incomplete)]
    except CnllmError:
        return []


def complete_aliases(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return aliases with this prefix."""
    from cnllm.errors import CnllmError
    from cnllm.registry import summary

    try:
        return [name for name in summary.names().aliases if name.startswith(incomplete)]
    except CnllmError:
        return []


def complete_templates(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return templates with this prefix."""
    from cnllm.config import templates

    return [name for name in templates.template_names() if name.startswith(incomplete)]


def complete_conversations(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of conversations with this prefix."""
    from cnllm.errors import CnllmError
    from cnllm.store import Store

    try:
        with Store.open() as store:
            return store.ids(incomplete)
    except CnllmError:
        return []


EPILOG = """\b
To install:
  bash   echo 'eval "$(cnllm completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(cnllm completion zsh)"' >> ~/.zshrc
  fish   cnllm completion fish > ~/.config/fish/completions/cnllm.fish
Then open a new shell.

\b
Example:
  cnllm call --model glm<Tab>
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets your shell complete cnllm.

    It completes commands, options, models and providers.
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(ctx.find_root().command, {}, "cnllm", "_CNLLM_COMPLETE").source()
    click.echo(script)
