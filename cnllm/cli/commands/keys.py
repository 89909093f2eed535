"""Define `cnllm keys`: API keys in a private file. No command shows a key."""

from __future__ import annotations

import sys

import click

from cnllm.cli import completion, options
from cnllm.cli.output import answer, errors, stdio
from cnllm.cli.output.table import table

__all__ = ["keys"]


@click.group(cls=options.Group)
def keys() -> None:
    """Keep API keys in a private file.

    A variable of the same name wins over the file.
    """


@keys.command(
    "set",
    epilog=options.examples(
        "cnllm keys set ZAI_API_KEY", "cnllm keys set zai < key.txt", "pass show zai | cnllm keys set zai"
    ),
)
@click.argument("name", shell_complete=completion.complete_key_names)
@click.argument("value", required=False)
def set_(name: str, value: str | None) -> None:
    """Keep a key under NAME, the name of a variable or of a provider.

    cnllm asks for the key, or reads it from stdin. You can also give it as VALUE, but then it stays in the
    history of your shell.
    """
    from cnllm.config import keys as store

    variable = _variable(name)
    if value is None:
        value = _read_value(variable)
    errors.hide_secrets(value)
    try:
        path = store.set_key(variable, value)
    except ValueError as error:
        raise errors.UsageError(f"{variable}: {error}", "the key was not stored") from None
    except OSError as error:
        raise errors.UsageError(f"{store.keys_path()} cannot be written: {error.strerror}") from error
    stdio.print_line(f"{variable} is stored in {path}")


@keys.command("list", epilog=options.examples("cnllm keys list"))
@options.as_json("an array")
def list_(as_json: bool) -> None:
    """List the names that have a key in the file, and whether a variable wins over it. No key is shown."""
    from cnllm.config import keys as store

    rows = [{"name": name, "used": store.key_source(name)} for name in store.key_names()]
    if as_json:
        answer.print_json(rows)
    elif rows:
        sources = {"environment": "the variable", "file": "this file"}
        cells = [(str(row["name"]), sources[str(row["used"])]) for row in rows]
        answer.print_line(table(("NAME", "KEY TAKEN FROM"), cells))
    else:
        stdio.print_line("no keys are stored; cnllm keys set NAME stores one")


@keys.command(epilog=options.examples("ls -l $(cnllm keys path)"))
def path() -> None:
    """Print the path of the file, whether or not it exists."""
    from cnllm.config import keys as store

    answer.print_line(str(store.keys_path()))


def _variable(name: str) -> str:
    """Return the variable that a name stands for: itself, or a provider's first key variable."""
    from cnllm.registry import Registry

    registry = Registry.load()
    if name not in registry.providers:
        from cnllm.config.keys import NAME

        if NAME.fullmatch(name) and name == name.upper():
            return name
        from cnllm.config.redact import looks_secret

        raise errors.UsageError(
            f"{'that' if looks_secret(name) else name} is neither a variable's name nor a provider",
            f"providers: {', '.join(registry.providers)}",
        )
    names = registry.resolve(f"{name}/any").flags.keys
    if not names:
        raise errors.UsageError(f"{name} needs no key")
    return names[0]


def _read_value(variable: str) -> str:
    if sys.stdin.isatty():
        value: str = click.prompt(f"Key for {variable}", hide_input=True, err=True)
        return value
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError:
        raise errors.UsageError("stdin is not UTF-8", "the key was not stored") from None
