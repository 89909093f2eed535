"""Define `cnllm keys`: API keys in a private file. No command shows a key."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cnllm.cli import completion, options
from cnllm.cli.language.messages import colon, localize, translate
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.cli.output.suggestion import nearest
from cnllm.cli.output.table import table
from cnllm.cli.output.usage import usage_line
from cnllm.config import keys as store
from cnllm.config.redact import looks_secret
from cnllm.system.closing import unwind_on_signals

if TYPE_CHECKING:
    from cnllm.registry.model import Model

__all__ = ["keys"]

_MOST = 4  # providers that a line names
_QUOTES = "\"'`“”‘’"
_BEFORE = re.compile(r"(?i:export\s+|(?:authorization:\s*)?bearer\s+)|[A-Z][A-Z0-9_]*\s*=\s*(?=.{8})")
"""The text that people copy before a key. A key may end with `=`, so the text behind that sign has to be long."""


@click.group(cls=options.Group)
def keys() -> None:
    """Keep API keys in a private file.

    A variable of the same name wins over the file.
    """


@keys.command("set")
@click.argument("name", shell_complete=completion.complete_key_names)
@click.argument("value", required=False)
def set_(name: str, value: str | None) -> None:
    """Keep a key under NAME, the name of a variable or of a provider.

    cnllm asks for the key, or reads it from stdin. You can also give it as VALUE, but then it stays in the
    history of your shell.

    Examples:
      cnllm keys set ZAI_API_KEY
      cnllm keys set zai < key.txt
      pass show zai | cnllm keys set zai
    """
    from cnllm.cli.key_test import key_variable, variable_providers
    from cnllm.registry import Registry

    registry = Registry.load()
    variable = key_variable(name, registry)
    if value in (None, "-"):  # as in other commands, - is stdin
        value = _read_value(variable)
    else:
        stdio.print_line("the key may stay in the history of your shell; without VALUE cnllm asks for it")
    errors.hide_secrets(value)
    key = _bare_key(value)
    if key != value.strip():
        errors.hide_secrets(key)
        stdio.print_line("what stood around the key is left out: quotation marks, the name of a variable, or Bearer")
    try:
        path = store.set_key(variable, key)
    except ValueError as error:
        fault = str(error).removeprefix("value: ")
        raise errors.UsageError(f"{variable}: {fault}", "the key was not stored") from None
    except OSError as error:
        raise errors.UsageError(f"{store.keys_path()} cannot be written: {error.strerror}") from error
    stdio.print_line(f"{variable} is stored in {path}")
    readers = variable_providers(registry)
    if variable in readers:
        stdio.print_line(f"  it is the key of {_listing(readers[variable])}")
    else:
        stdio.print_line(f"  no provider reads this variable; --key-env {variable} sends it with a call")
        if (close := nearest(variable, readers, 0.8)) is not None:
            stdio.print_line(f"  did you mean {close}?")


def _bare_key(text: str) -> str:
    """Return a key without what people copy with it from a shell, a program or a header."""
    while True:
        before, text = text, text.strip().removesuffix(";")
        if len(text) > 2 and text[0] in _QUOTES and text[-1] in _QUOTES:
            text = text[1:-1]
        if match := _BEFORE.match(text):
            text = text[match.end() :]
        if text == before:
            return text


@keys.command("list")
@options.as_json("an array")
def list_(*, as_json: bool) -> None:
    """List the names that have a key in the file, and whether a variable wins over it. No key is shown.

    The variables of providers that are set go to stderr.

    Example:
      cnllm keys list
    """
    from cnllm.cli.key_test import variable_providers
    from cnllm.registry import Registry

    origins = {name: str(store.key_source(name)) for name in store.key_names()}
    sources = {"environment": "the variable", "file": "this file"}
    readers = variable_providers(Registry.load())
    stdout.print_listing(
        [{"name": name, "used": source, "providers": readers.get(name, [])} for name, source in origins.items()],
        lambda: table(
            ("NAME", "KEY TAKEN FROM", "PROVIDERS"),
            [
                (name, localize(sources[source]), _listing(readers.get(name, ())) or localize("no provider"))
                for name, source in origins.items()
            ],
        ),
        "no keys are stored; cnllm keys set NAME stores one",
        as_json=as_json,
    )
    for name in sorted(readers):
        if name not in origins and store.key_source(name) == "environment":
            stdio.print_line(f"set in the environment: {name}, the key of {_listing(readers[name])}")


def _listing(providers: Sequence[str]) -> str:
    """Return the first providers of a list."""
    return ", ".join(providers[:_MOST]) + (" …" if len(providers) > _MOST else "")


@keys.command()
@click.argument("name", shell_complete=completion.complete_key_names)
def remove(name: str) -> None:
    """Remove a key from the file: NAME is the name of a variable or of a provider.

    Examples:
      cnllm keys remove ZAI_API_KEY
      cnllm keys remove zai
    """
    names = store.key_names()
    variable = name if name in names else _stored_variable(name, names)
    store.remove_key(variable)
    stdio.print_line(f"{variable} is removed from {store.keys_path()}")
    if store.key_source(variable) == "environment":
        stdio.print_line(f"  the variable {variable} still holds a key: unset {variable}")


def _stored_variable(name: str, names: list[str]) -> str:
    """Return the stored variable of a provider. Raise `UsageError` with similar names."""
    from cnllm.cli.key_test import find_provider
    from cnllm.registry import Registry

    registry = Registry.load()
    provider = find_provider(name, registry)
    for variable in (registry.endpoint(provider).flags.keys or ()) if provider is not None else ():
        if variable in names:
            return variable
    label = "that name" if looks_secret(name) else name or "''"
    hint = f"stored are: {', '.join(names)}" if names else "no keys are stored"
    raise errors.UsageError(f"no key of {label} is stored", hint)


@keys.command()
@click.argument("name", shell_complete=completion.complete_key_names)
@options.model(required=False)
@options.as_json("the result")
def test(name: str, model: str | None, *, as_json: bool) -> int:
    """Send one cheap request with a key, and print what the endpoint said.

    NAME is the name of a variable or of a provider. The request goes to the provider's cheapest model, or to M. Where
    several sites of one vendor read the variable, each is asked until one takes the key, and models without a provider
    in their name go there from then on. The exit status is 0 if the key works, else 1.

    Examples:
      cnllm keys test zai
      cnllm keys test OPENAI_API_KEY --json
    """
    from cnllm.cli import key_test
    from cnllm.registry import Registry

    registry = Registry.load()
    tests = key_test.run_test(name, model, registry, lambda models: None if as_json else _print_sites(models))
    result, reply, seconds, _ = tests[-1]
    for test in tests[:-1] if not as_json else ():
        errors.print_error(*key_test.describe(test.result))
    if as_json:
        stdout.print_json(result)
    elif result["works"]:
        words = f"{result['name']} works: {result['provider']}/{result['model']} answered in {seconds:.1f} s"
        usage = usage_line(reply).partition(" · ")[2] if reply is not None else ""
        stdout.print_message(terminal.escape(words) + (f" ({usage})" if usage else ""))
    else:
        errors.print_error(*key_test.describe(result))
    if len(tests) > 1 and result["works"] and not as_json:
        stdio.print_line(f"  models without a provider in their name go to {result['provider']} with {result['name']}")
    providers = {test.result["provider"] for test in tests}
    others = [provider for provider in key_test.key_providers(name, registry)[1:] if provider not in providers]
    if others and not as_json:
        stdio.print_line(f"  not tested: {_listing(others)}")
    return errors.WHOLE if result["works"] else errors.FAILED


def _print_sites(models: Sequence[Model]) -> None:
    """Print the sites that a key may be for."""
    stdio.print_line("the key may be one of several sites of the vendor, each of which takes only its own keys:")
    for model in models:
        stdio.print_line(f"  {model.provider}, {model.flags.base_url}")


@keys.command()
def path() -> None:
    """Print the path of the file, whether or not it exists.

    Example:
      ls -l $(cnllm keys path)
    """
    stdout.print_path(store.keys_path())


def _read_value(variable: str) -> str:
    if sys.stdin.isatty():
        question = translate(f"Key for {variable}")
        with unwind_on_signals():
            value: str = click.prompt(question, prompt_suffix=colon(), hide_input=True, err=True)
        return value
    try:
        return stdio.read_stdin(sys.stdin.buffer, 1 << 20, "stdin").decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise errors.UsageError("stdin is not UTF-8", "the key was not stored") from None
