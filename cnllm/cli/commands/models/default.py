"""Define `cnllm models default`: show, set or remove the model of calls that name none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cnllm.cli import completion, options
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdio, stdout
from cnllm.errors import UnknownModel

if TYPE_CHECKING:
    from cnllm.registry import Registry

__all__ = ["default"]


@click.command("default", cls=options.Command)
@click.argument("model", required=False, metavar="[M]", shell_complete=completion.complete_models)
@flag("--unset", help="Forget the default model.")
def default(model: str | None, *, unset: bool) -> None:
    """Show or set the model of calls that name none.

    CNLLM_MODEL wins over it. If neither is set, the first model that has a key is asked, in the order of
    default_models in the registry.

    Examples:
      cnllm models default glm-4.7
      cnllm models default
      cnllm models default --unset
    """
    from cnllm.cli import default_model
    from cnllm.config import settings_files
    from cnllm.registry import Registry

    if model is not None and unset:
        raise errors.UsageError("--unset and a model contradict each other", "give one of them")
    if unset:
        settings_files.set_default_model(None)
        stdio.print_line("no default model is set")
        return
    registry = Registry.load()
    if model is None:
        choice = default_model.choose(registry, offline=False)
        stdout.print_line(choice.name)
        stdio.print_line(f"cnllm: {choice.reason}")
        return
    full = _full_name(registry, model.strip())
    settings_files.set_default_model(model.strip())
    stdio.print_line(f"the default model is {model.strip()}" + (f" ({full})" if full != model.strip() else ""))
    stored = settings_files.default_model()
    if stored is not None and stored[1] == settings_files.VARIABLE:
        stdio.print_line(f"cnllm: {settings_files.VARIABLE}={stored[0]} wins over it in this shell")


def _full_name(registry: Registry, name: str) -> str:
    """Return the "provider/id" of a name, or the name of a tier. Raise `UnknownModel` for neither."""
    from cnllm.registry import tiers
    from cnllm.registry.sites import choose_site

    if not name.startswith(tiers.PREFIX):
        return choose_site(registry, name).name
    if name.removeprefix(tiers.PREFIX) not in registry.tiers:
        raise UnknownModel(f"no tier is called {name.removeprefix(tiers.PREFIX)}", close=sorted(registry.tiers))
    return name
