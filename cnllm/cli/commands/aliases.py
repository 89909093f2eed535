"""Define `cnllm aliases`: short names in the user's own registry file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from cnllm.cli import completion, options
from cnllm.cli.language.messages import localize
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.cli.output.suggestion import same_name, suggest
from cnllm.cli.output.table import table
from cnllm.cli.own_registry import change_file
from cnllm.errors import UnknownModel
from cnllm.registry.read import overlay_paths, read

if TYPE_CHECKING:
    from cnllm.registry import Registry

__all__ = ["Alias", "aliases"]


class Alias(TypedDict):
    """A short name, its model, and the file that sets it. null: it is built in."""

    alias: str
    model: str
    file: str | None


@click.group(cls=options.Group)
def aliases() -> None:
    """Short names for models, in your own registry file.

    The rest of the file stays as it is, comments too.

    Example:
      cnllm aliases set fast deepseek-flash
    """


@aliases.command("set")
@click.argument("name")
@click.argument("model", shell_complete=completion.complete_models)
def set_(name: str, model: str) -> None:
    """Let NAME stand for MODEL. This also replaces an alias of yours, and wins over a built-in one.

    Examples:
      cnllm aliases set fast deepseek-flash
      cnllm call -m fast 'Say hi'
    """
    from cnllm.registry import Registry, tiers
    from cnllm.registry_files.edit import set_alias

    bad = not name or "/" in name or any(c.isspace() or not c.isprintable() for c in name)
    if bad or name.startswith(("-", tiers.PREFIX)):
        raise errors.UsageError(f"{name!r} is not a short name", "use one word without a slash")
    registry = Registry.load()
    target = registry.resolve(model).name
    if target not in registry.names():
        provider, _, id = target.partition("/")
        hint = f"describe it first: cnllm models add --provider {provider} --id {id}"
        raise errors.UsageError(f"{target} is not described", hint)
    before = _meaning(registry, name)
    path = change_file(lambda text, label: set_alias(text, name, target, label))
    instead = f" instead of {before}" if before not in (None, target) else ""
    stdio.print_line(terminal.escape(f"{name} stands for {target}{instead} now, in {path}"))


def _meaning(registry: Registry, name: str) -> str | None:
    """Return the model that a name stands for, None if it stands for none."""
    try:
        return registry.resolve(name).name
    except UnknownModel:
        return None


@aliases.command()
@click.argument("name", shell_complete=completion.complete_aliases)
def remove(name: str) -> None:
    """Remove an alias from your own files. Built-in ones stay.

    Example:
      cnllm aliases remove fast
    """
    from cnllm.registry import Registry
    from cnllm.registry_files.edit import remove_alias

    aliases = _own_aliases()
    own = [path for path, alias in aliases if alias.casefold() == name.casefold()]
    if not own:
        if same_name(name, Registry.load().aliases) is not None:
            raise errors.UsageError(
                f"{name} comes with cnllm", f"to let it stand for another model: cnllm aliases set {name} MODEL"
            )
        hint = suggest(name, [alias for _, alias in aliases], "cnllm aliases list shows yours")
        raise errors.UsageError(f"no alias of yours is called {name}", hint)
    for path in dict.fromkeys(own):
        change_file(lambda text, label: remove_alias(text, name, label), path)
    rest = Registry.load().aliases
    again = f"; it stands for {rest[alias]} again" if (alias := same_name(name, rest)) is not None else ""
    stdio.print_line(terminal.escape(f"{name} is removed" + again))


@aliases.command("list")
@flag("--all", "everything", help="List the built-in ones, too.")
@options.as_json("an array")
def list_(*, everything: bool, as_json: bool) -> None:
    """List your aliases, and the model of each.

    Examples:
      cnllm aliases list
      cnllm aliases list --all --json
    """
    rows = _rows(everything=everything)

    def text() -> str:
        cells = [(row["alias"], row["model"], row["file"] or localize("built in")) for row in rows]
        return table(("NAME", "MODEL", "FILE"), cells)

    nothing = "you have no aliases; cnllm aliases set NAME MODEL makes one, --all lists the built-in ones"
    stdout.print_listing(rows, text, nothing, as_json=as_json)


def _rows(*, everything: bool) -> list[Alias]:
    from cnllm.registry import Registry

    files = {alias: str(path) for path, alias in _own_aliases()}
    return [
        {"alias": alias, "model": model, "file": files.get(alias)}
        for alias, model in sorted(Registry.load().aliases.items(), key=lambda pair: pair[0].casefold())
        if everything or alias in files
    ]


def _own_aliases() -> list[tuple[Path, str]]:
    """Return the user's aliases, each with its file."""
    documents = [read(path) for path in overlay_paths()]
    return [(document.path, alias) for document in documents for alias in document.data.get("aliases", {})]
