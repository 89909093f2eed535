"""Define `cnllm prefer`: the providers that short names prefer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cnllm.cli import completion, options
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.cli.output.suggestion import provider_hint, same_name
from cnllm.cli.own_registry import change_file

if TYPE_CHECKING:
    from cnllm.registry import Registry
    from cnllm.registry.model import Model

__all__ = ["prefer"]

_SHOWN = 4  # changed names that are printed


@click.command(cls=options.Command)
@click.argument("providers", nargs=-1, metavar="[PROVIDER]...", shell_complete=completion.complete_providers)
@flag("--remove", help="Stop preferring these providers.")
@options.as_json("an array, the preferred providers,")
def prefer(providers: tuple[str, ...], *, remove: bool, as_json: bool) -> None:
    """Let short names mean the models of a provider.

    A built-in short name then means the same model at the first PROVIDER that serves it. Providers that you preferred
    before come after the new ones. Without PROVIDER, list the preferred ones.

    Examples:
      cnllm prefer zhipuai moonshotai-cn
      cnllm prefer
      cnllm prefer --remove zhipuai
    """
    from cnllm.registry import Registry

    registry = Registry.load()
    old = registry.preferred_providers
    new: list[str] = []
    if providers:
        names = list(dict.fromkeys(_provider(name, registry) for name in providers))
        new = _store(registry, names, remove=remove)
    elif remove:
        raise errors.UsageError("--remove needs a provider", "for example: cnllm prefer --remove PROVIDER")
    if as_json:
        stdout.print_json(new if providers else old)
    elif not providers and old:
        stdout.print_line("\n".join(map(terminal.escape, old)))
    elif not providers:
        stdio.print_line("no provider is preferred; cnllm prefer PROVIDER prefers one")


def _provider(name: str, registry: Registry) -> str:
    found = same_name(name, registry.providers)
    if found is None:
        raise errors.UsageError(f"no provider is called {name}", provider_hint(name, registry, catalogue=False))
    return found


def _store(registry: Registry, names: list[str], *, remove: bool) -> list[str]:
    """Add providers to the preferred ones, or remove them. Return the preferred ones."""
    from cnllm.registry import Registry
    from cnllm.registry_files.edit import set_preference

    old: list[str] = []
    new: list[str] = []

    def change(text: str, label: str) -> str:
        nonlocal old, new
        old = Registry.load().preferred_providers  # read anew: another process may have changed them
        if remove and (missing := [name for name in names if name not in old]):
            raise errors.UsageError(f"{missing[0]} is not preferred", "cnllm prefer lists the preferred providers")
        rest = [name for name in old if name not in names]
        new = rest if remove else [*names, *rest]
        return text if old == new else set_preference(text, new, label)

    path = change_file(change)
    if old == new:
        stdio.print_line(f"preferred already: {', '.join(new)}")
        return new
    before = {alias: registry.resolve(alias).name for alias in registry.aliases}
    line = f"preferred: {', '.join(new)}, in {path}" if new else f"no provider is preferred now, in {path}"
    stdio.print_line(terminal.escape(line))
    now = Registry.load()
    after = {alias: now.resolve(alias) for alias in before}
    changed = [alias for alias, name in before.items() if after[alias].name != name]
    changed.sort(key=lambda alias: _rank(before[alias], after[alias], registry.default_models))
    lines = [f"  {alias} means {after[alias].name} now" for alias in changed[:_SHOWN]]
    if len(changed) > _SHOWN:
        lines.append(f"  and {len(changed) - _SHOWN} more: cnllm models list shows them")
    stdio.print_line(terminal.escape("\n".join(lines or ["  no short name changes: they serve none of these models"])))
    return new


def _rank(old: str, model: Model, default_models: Sequence[str]) -> tuple[bool, bool, int]:
    """Return the sort key of a name that changes: default models first, then current ones, the newest first."""
    status = model.flags.status
    released = None if status is None else status.released
    is_default = old in default_models or model.name in default_models
    return not is_default, status is not None and status.is_ == "retired", -released.toordinal() if released else 0
