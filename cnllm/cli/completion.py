"""Complete models, key names and conversations in the shell, and write the script that installs completion."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from cnllm.model_facts.summary import Names

__all__ = [
    "SHELLS",
    "complete_aliases",
    "complete_conversations",
    "complete_files",
    "complete_key_names",
    "complete_mcp_servers",
    "complete_models",
    "complete_providers",
    "complete_templates",
    "completion_script",
]

SHELLS = ("bash", "zsh", "fish", "powershell")

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def completer(names: Callable[[str], Iterable[str]]) -> Completer:
    """Return a completion of the names for a prefix that begin with it; of none where they cannot be read.

    The command itself reports what is broken.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        try:
            return [name for name in names(incomplete) if name.startswith(incomplete)]
        except CnllmError:
            return []

    return complete


def _registry() -> Names:
    from cnllm.model_facts import summary

    return summary.names()


def _key_names(prefix: str) -> list[str]:
    from cnllm.config import keys

    return [*_registry().providers, *keys.key_names()]


def _mcp_servers(prefix: str) -> list[str]:
    from cnllm.registry.mcp_servers import mcp_server_names

    return mcp_server_names()


def _templates(prefix: str) -> list[str]:
    from cnllm.config import templates

    return templates.template_names()


def _conversations(prefix: str) -> list[str]:
    from cnllm.store import Store

    with Store.open() as store:
        return store.ids(prefix)


complete_models = completer(lambda prefix: _registry().complete(prefix))
complete_providers = completer(lambda prefix: _registry().providers)
complete_aliases = completer(lambda prefix: _registry().aliases)
complete_key_names = completer(_key_names)
complete_mcp_servers = completer(_mcp_servers)
complete_templates = completer(_templates)
complete_conversations = completer(_conversations)


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the names of files."""
    return click.Path().shell_complete(ctx, param, incomplete)


def complete_word(command: click.Command, shell: str) -> None:
    """Print the completions of the words that a shell passes.

    Most shells pass `--model=x` as one word, and replace it whole. Bash passes three, and replaces the last.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    shell_class = None if shell == "powershell" else get_completion_class(shell)
    complete = (shell_class or ShellComplete)(command, {}, "cnllm", "_CNLLM_COMPLETE")
    words, word = complete.get_completion_args() if shell_class else _powershell_words()
    if words[-1:] == ["="]:
        words.pop()
    option = word[: word.index("=") + 1] if word.startswith("--") and "=" in word else ""
    for item in complete.get_completions(words, word):
        item.value = f"{option}{item.value}"
        click.echo(complete.format_completion(item) if shell_class else f"{item.value}\t{item.help or ''}")


def _powershell_words() -> tuple[list[str], str]:
    """Return the words before the one to complete, and that one."""
    from click.shell_completion import split_arg_string

    word = os.environ.get("COMP_WORD", "")
    words = split_arg_string(os.environ.get("COMP_WORDS", ""))[1:]
    if word and words and words[-1] == word:
        words.pop()
    return words, word


def completion_script(command: click.Command, shell: str) -> str:
    """Return the script that lets a shell complete a command."""
    if shell == "powershell":
        from pathlib import Path

        return Path(__file__).with_suffix(".ps1").read_text(encoding="utf-8")
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    source = completion_class(command, {}, "cnllm", "_CNLLM_COMPLETE").source()
    # zsh: a path behind the name of an option
    return source.replace("_path_files", "\n".join((r"compset -P 1 --\*=", "_path_files")))
