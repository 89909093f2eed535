"""Define `cnllm completion`: the script that lets a shell complete cnllm."""

from __future__ import annotations

import click

from cnllm.cli import options
from cnllm.cli.completion import SHELLS, completion_script

__all__ = ["completion"]

_SETUP = """\b
To install:
  bash   echo 'eval "$(cnllm completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(cnllm completion zsh)"' >> ~/.zshrc
  fish   cnllm completion fish > ~/.config/fish/completions/cnllm.fish
  PowerShell   cnllm completion powershell >> $PROFILE
Then open a new shell.
"""

EXAMPLES = options.examples("cnllm call --model glm<Tab>")


@click.command(epilog=f"{_SETUP}\n{EXAMPLES}")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets your shell complete cnllm.

    It completes commands, options, models and providers.
    """
    click.echo(completion_script(ctx.find_root().command, shell))
