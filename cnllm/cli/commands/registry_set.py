"""Define `cnllm registry set` and `cnllm registry why`: correct a fact with its source, and see where one is from."""

from __future__ import annotations

import datetime
import difflib
import re
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import completion, options
from cnllm.cli.option_types import file
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.cli.output.flag_table import fact_card
from cnllm.cli.output.format import plain_fact
from cnllm.cli.output.suggestion import provider_hint, same_name
from cnllm.cli.own_registry import change_file
from cnllm.registry.check import flag_type
from cnllm.registry.documents import parse
from cnllm.registry.flags import Table
from cnllm.registry.provenance import precision_of

if TYPE_CHECKING:
    from cnllm.registry import Registry

__all__ = ["set_command", "why"]

HOW = ("docs", "recorded", "code", "catalogue", "issue", "probe", "inferred")
_SOURCE = re.compile(r"https?://\S+|[\w.-]+/[\w.-]+[:#@]\S+")


@click.command("set", cls=options.Command)
@click.argument("name", metavar="MODEL|PROVIDER", shell_complete=completion.complete_models)
@click.argument("values", metavar="FLAG=VALUE...", nargs=-1, required=True)
@click.option(
    "--source", metavar="URL", required=True, help="Where you read it: a URL, or a source that the file names."
)
@click.option("--how", type=click.Choice(HOW), help="The kind of source. Else docs, or issue for a thread.")
@click.option("--path", metavar="PATH", help="The file in a package or repository that has the value.")
@click.option("--quote", metavar="TEXT", help="A short sentence of the source.")
@file("--in", "file", help="The registry file. Else your own.")
def set_command(name: str, values: tuple[str, ...], source: str, file: str | None, **citation: str | None) -> None:
    """Set flags of a model or a provider, with the source of the values, and show what changes.

    The value, the citation and the source are written where they belong; every other line stays as it is. What
    `registry check` would call a fault is refused, and nothing is written. VALUE is TOML; a word needs no quotes, and
    a list may be a,b. In a checkout, --in providers.toml changes the built-in file.

    Examples:
      cnllm registry set zai/glm-4.7 price.input=0.6 --source https://docs.z.ai/guides/overview/pricing
      cnllm registry set zai/glm-4.7 limits.output=131072 --source zai-org/GLM-4.7#12 --how issue
      cnllm registry set zai/glm-4.7 price.input=0.6 --source https://docs.z.ai/pricing --in providers.toml
    """
    from cnllm.registry import Registry
    from cnllm.registry_files.set_values import Reading, set_facts

    reading = Reading(source, datetime.datetime.now(datetime.UTC).date(), **citation)
    place = Path(file) if file is not None else None
    if place is not None and not place.exists():
        raise errors.UsageError(f"--in {place}: no such file", "name a registry file")
    table = _table(Registry.load(), name)
    facts: dict[str, Any] = {}
    for flag, fact in map(_fact, values):
        if flag in facts:
            raise errors.UsageError(f"{flag} is given twice", "give each flag one value")
        facts[flag] = fact
    texts: list[tuple[str, str]] = []

    def change(text: str, label: str) -> str:
        if not (_SOURCE.fullmatch(source) or source in parse(text.encode(), label).get("sources", {})):
            raise errors.UsageError(
                f"--source {source} is not an address", "give a URL, owner/repository#number, or the name of a source"
            )
        texts.append((text, set_facts(text, table, facts, reading, label)))
        return texts[-1][1]

    written = change_file(change, place)
    _print_diff(*texts[-1], str(written))


def _table(registry: Registry, name: str) -> list[str]:
    """Return the path of the table of a model or a provider; a model that is not there yet becomes one."""
    providers = [*registry.providers, *registry.catalogue_providers()]
    if (provider := same_name(name, providers)) is not None:
        return ["providers", provider]
    owner, slash, id = name.partition("/")
    if not slash:
        return ["models", registry.resolve(name).name]
    if (provider := same_name(owner, providers)) is None:
        hint = provider_hint(owner, registry, otherwise="cnllm models add describes a new one")
        raise errors.UsageError(f"no provider is called {owner}", hint)
    full = f"{provider}/{id}"
    if (known := same_name(full, registry.names(catalogue=True))) is None:
        stdio.print_line(f"{terminal.escape(full)} is new")
    return ["models", known or full]


def _fact(argument: str) -> tuple[str, Any]:
    """Return the flag and the value of "FLAG=VALUE"; the kind of the flag says what a word without quotes is."""
    from cnllm.config.toml_text import parse_toml

    flag, equals, text = argument.partition("=")
    if not equals or not flag or not text:
        raise errors.UsageError(f"{argument} is not FLAG=VALUE", "as in price.input=0.6")
    kind = _kind(flag)
    try:
        parse_toml(f"x = {text}\n")
        value = parse(f"x = {text}\n".encode(), argument)["x"]
    except ValueError:  # no TOML: a word
        value = text
    if typing.get_origin(kind) is list and not isinstance(value, list):
        value = [item.strip() for item in text.split(",")]
    return flag, text if kind is str and not isinstance(value, str) else value


def _kind(flag: str) -> Any:
    """Return the type of a flag. Raises `UsageError` for a flag that there is not."""
    kind, missing = flag_type(flag.split("."), Table)
    if missing is not None:
        raise errors.UsageError(f"there is no flag {flag}{missing}", "cnllm registry schema describes all of them")
    return kind


def _print_diff(old: str, new: str, file: str) -> None:
    """Print the lines that change, with the file's name."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), file, file, n=0, lineterm=""))
    for line in lines:
        stdout.print_line(terminal.escape(line))
    if not lines:
        stdio.print_line("nothing to change: the file says so already, with this source")


@click.command(cls=options.Command)
@click.argument("model", shell_complete=completion.complete_models)
@click.argument("flag")
@click.option(
    "--in", "file", metavar="FILE", type=click.Path(exists=True), help="A registry file over the built-in one."
)
@options.as_json("an array of facts")
def why(model: str, flag: str, *, file: str | None, as_json: bool) -> None:
    """Print why FLAG of MODEL has its value: the line that sets it, the source, and what the source says.

    It is the row of `models show --explain`, with nothing shortened. FLAG may be a table, such as price.

    Examples:
      cnllm registry why zai/glm-4.7 price.input
      cnllm registry why zai/glm-4.7 reasoning
    """
    from cnllm.registry import Registry
    from cnllm.registry.read import load_documents

    _kind(flag)
    resolved = (Registry.load() if file is None else Registry(load_documents([file]))).resolve(model)
    facts = [fact for fact in resolved.explain() if precision_of(fact.flag, (flag,))]
    if as_json:
        stdout.print_json(list(map(plain_fact, facts)))
    elif facts:
        stdout.print_line("\n\n".join(map(fact_card, facts)))
    else:
        stdout.print_line(terminal.escape(flag))
        stdout.print_message(f"  unknown: no file says it of {terminal.escape(resolved.name)}")
