"""Define `cnllm models add`, which describes a model in the user's own registry file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import option_types, options
from cnllm.cli.language.messages import colon, translate
from cnllm.cli.option_types import file
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.cli.output.suggestion import same_name
from cnllm.cli.own_registry import change_file, default_file, is_among

if TYPE_CHECKING:
    from cnllm.registry import Registry
    from cnllm.registry.documents import Document
    from cnllm.registry_files.edit import Addition

__all__ = ["add"]

PROTOCOL = "openai-chat"
MODES = ("never", "toggle", "always", "unknown")
_PROVIDER = re.compile(r"[a-z0-9][a-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


@click.command(cls=options.Command)
@click.option("--provider", metavar="P", help="The provider: a known one, or a new name.")
@click.option("--id", "id", metavar="ID", help="The model's id at the endpoint.")
@click.option("--base-url", metavar="URL", help="A new provider's address, without /chat/completions.")
@click.option(
    "--key-env", metavar="NAME", help="The variable that holds a new provider's key. Without it, no key is sent."
)
@option_types.count("--context", help="Tokens in its window.")
@option_types.count("--output", help="The most tokens of one reply.")
@click.option("--reasoning", type=click.Choice(MODES), help="Can reasoning be turned on and off?")
@click.option("--alias", metavar="NAME", help="A short name.")
@file("--file", "file", help="The registry file. Else the last one in use.")
def add(file: str | None, **params: Any) -> None:
    """Describe a model in your own registry file.

    On a terminal, cnllm asks for required values that are missing. It changes nothing else in the file, not even
    comments or order. It prints the lines that it adds. Values that you do not give stay unknown.

    Examples:
      cnllm models add
      cnllm models add --provider zai --id glm-9 --context 262144 --reasoning always --alias glm
      cnllm models add --provider home --id my-model --base-url http://127.0.0.1:8000/v1
    """
    from cnllm.registry import Registry
    from cnllm.registry.read import load_documents, overlay_paths

    in_use = [str(path) for path in overlay_paths()]
    path = Path(file).expanduser() if file is not None else default_file(in_use)
    files = [*in_use, *([] if is_among(path, in_use) else [str(path)])]
    documents = load_documents([name for name in files if Path(name).exists()])
    registry = Registry(documents)
    addition = _read_addition(registry, params)
    _check_new(registry, documents, addition)
    _write(path, addition)


# ── options and questions ────────────────────────────────────────────────────
def _read_addition(registry: Registry, params: dict[str, Any]) -> Addition:
    """Build the description from the options, and ask at the terminal for missing values."""
    from cnllm.registry_files.edit import Addition

    questions = _Questions(params, interactive=sys.stdin.isatty() and not _is_complete(params, registry.providers))
    name = questions.value("provider", "Provider, a known or a new one", _provider, required=True)
    known = same_name(name, registry.providers)
    provider, new = known or name, known is None
    id = questions.value("id", "Id, as the endpoint calls it", _id, required=True)
    base_url = key = None
    if new:
        base_url = questions.value("base_url", "Address, as in http://127.0.0.1:8000/v1", _url, required=True)
        key = questions.value("key_env", "Variable that holds the key, empty if none is needed", _variable)
    for option in ("base_url", "key_env"):
        if not new and params[option] is not None:
            raise errors.UsageError(
                f"{provider} is already described, including {_option(option)}",
                f"leave {_option(option)} out, or name a new provider",
            )
    return Addition(
        provider=provider,
        id=id,
        protocol=PROTOCOL,
        base_url=base_url,
        keys=() if key is None else (key,),
        context=questions.value("context", "Tokens in its window, empty if unknown", _count),
        output=questions.value("output", "Most tokens of a reply, empty if unknown", _count),
        reasoning=questions.value("reasoning", f"Reasoning ({', '.join(MODES)}), empty if unknown", _mode),
        alias=questions.value("alias", "Short name, empty for none", _alias),
    )


def _is_complete(params: dict[str, Any], providers: Iterable[str]) -> bool:
    """Whether the options hold every required value."""
    place = params["base_url"] or same_name(params["provider"] or "", providers)
    return None not in (params["provider"], params["id"], place)


class _Questions:
    """A reader of values: from an option, else from a question that it repeats until the answer is valid."""

    def __init__(self, params: dict[str, Any], *, interactive: bool) -> None:
        self._params = params
        self._interactive = interactive

    def value(self, name: str, question: str, parse: Callable[[str], Any], *, required: bool = False) -> Any:
        """Return a value. Raise `UsageError` if a required one is missing and there is no terminal."""
        if self._params[name] is not None:
            return parse(str(self._params[name]))
        if self._interactive:
            return self._ask(question, lambda text: parse(text) if text or required else None)
        if required:
            raise errors.UsageError(f"{_option(name)} is missing", "cnllm models add --help shows what is needed")
        return None

    def _ask(self, question: str, parse: Callable[[str], Any]) -> Any:
        """Ask on stderr, since stdout holds only the added lines. Raise `click.Abort` at the end of stdin."""
        while True:
            stdio.write_text(f"{translate(question)}{colon()}")
            line = sys.stdin.readline()
            if not line:
                raise click.Abort
            try:
                return parse(line.strip())
            except errors.UsageError as error:
                errors.print_error(error.message, error.hint)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# ── answers ──────────────────────────────────────────────────────────────────
def _provider(text: str) -> str:
    return _match(_PROVIDER, text.casefold(), "--provider", "small letters, digits, dots and dashes")


def _id(text: str) -> str:
    if not text or any(c.isspace() or not c.isprintable() for c in text):
        raise errors.UsageError(f"--id {text!r} is not an id", "give the value of `model` in a request")
    return text


def _url(text: str) -> str:
    return _match(_URL, text, "--base-url", "http:// or https://, a host, and a path").rstrip("/")


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):  # the text is not printed: it may be the key itself
        raise errors.UsageError(
            "--key-env is not the name of a variable", "name the variable; do not give the key itself"
        )
    return text


def _count(text: str) -> int:
    digits = text.replace("_", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit() and int(digits)):
        raise errors.UsageError(f"{text!r} is not a number of tokens", "use digits, as in 131072")
    return int(digits)


def _mode(text: str) -> str | None:
    if text not in MODES:
        raise errors.UsageError(f"{text!r} is not a reasoning mode", f"it is one of {', '.join(MODES)}")
    return None if text == "unknown" else text


def _alias(text: str) -> str:
    if not text or "/" in text or any(c.isspace() or not c.isprintable() for c in text):
        raise errors.UsageError(f"--alias {text!r} is not a short name", "use one word without a slash")
    return text


def _match(pattern: re.Pattern[str], text: str, option: str, form: str) -> str:
    if not pattern.fullmatch(text):
        raise errors.UsageError(f"{option} {text!r} is not valid", form)
    return text


# ── writing ──────────────────────────────────────────────────────────────────
def _check_new(registry: Registry, documents: list[Document], addition: Addition) -> None:
    """Raise `UsageError` if the name or the short name is in use."""
    if (name := same_name(addition.name, registry.names())) is not None:
        raise errors.UsageError(
            f"{name} is already described, at {_places(documents, name)}",
            "to change it, edit your own file: cnllm registry path",
        )
    if (alias := same_name(addition.alias or "", registry.aliases)) is not None:
        raise errors.UsageError(
            f"the short name {alias} belongs to {registry.aliases[alias]}", "choose another --alias"
        )


def _places(documents: list[Document], name: str) -> str:
    """Return the file and line of each table of a model, such as "providers.toml:97"."""
    owners = [document for document in documents if name in document.data.get("models", {})]
    return ", ".join(f"{document.label}:{document.line(['models', name])}" for document in owners)


def _write(path: Path, addition: Addition) -> None:
    from cnllm.registry_files.edit import EditedFile, add_model

    result: EditedFile

    def change(text: str, label: str) -> str:
        nonlocal result
        result = add_model(text, addition, label)
        return result.text

    change_file(change, path)
    stdout.print_line(terminal.escape(result.added.rstrip("\n")))
    stdio.print_line(terminal.escape(f"added {addition.name} to {path}:{result.line}"))
    stdio.print_line(terminal.escape(f"  {_advice(path, addition)}"))


def _advice(path: Path, addition: Addition) -> str:
    """Return what the user still has to do before the model can be used."""
    from cnllm.registry import Registry
    from cnllm.registry.read import overlay_paths
    from cnllm.registry.routing import origin_of

    if not is_among(path, [str(name) for name in overlay_paths()]):
        return "this file is not in use: CNLLM_PROVIDERS names the files in use"
    model = Registry.load().resolve(addition.name)
    base_url, keys = model.flags.base_url or "", model.flags.keys or []
    if any(not model.trusts(env, origin_of(base_url)) for env in keys):
        return f"its key is not sent before you run: cnllm registry trust {path}"
    return f'try it: cnllm call --model {addition.alias or addition.name} "Say hi"'
