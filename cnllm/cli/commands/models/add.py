"""`cnllm models add`: a model described in the user's own registry file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import options
from cnllm.cli.output import answer, errors, stdio, terminal

if TYPE_CHECKING:
    from cnllm.registry import Registry
    from cnllm.registry.documents import Document
    from cnllm.registry.edit import Addition

__all__ = ["add"]

EXAMPLES = options.examples(
    "cnllm models add",
    "cnllm models add --provider zai --id glm-9 --context 262144 --reasoning always --alias glm",
    "cnllm models add --provider home --id my-model --base-url http://127.0.0.1:8000/v1",
)
PROTOCOL = "openai-chat"
MODES = ("never", "toggle", "always", "unknown")
_PROVIDER = re.compile(r"[a-z0-9][a-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


@click.command(cls=options.Command, epilog=EXAMPLES)
@click.option("--provider", metavar="P", help="Who serves it: a provider that is known, or a new name.")
@click.option("--id", "id", metavar="ID", help="What the endpoint calls it.")
@click.option("--base-url", metavar="URL", help="A new provider's address, up to what comes before /chat/completions.")
@click.option(
    "--key-env", metavar="NAME", help="The variable that holds a new provider's key. Without it, none is sent."
)
@click.option("--context", metavar="N", type=click.IntRange(min=1), help="Tokens in its window.")
@click.option("--output", metavar="N", type=click.IntRange(min=1), help="The most tokens of one reply.")
@click.option("--reasoning", type=click.Choice(MODES), help="Can reasoning be turned on and off?")
@click.option("--alias", metavar="NAME", help="A short name.")
@click.option("--file", "file", metavar="FILE", type=click.Path(), help="The registry file. Else the last one in use.")
def add(file: str | None, **given: Any) -> None:
    """Describe a model in your own registry file.

    On a terminal, what is needed and not given is asked for. The file keeps all it says, comments and order too.
    What was added is printed; what is not said stays unknown.
    """
    from cnllm.registry import Registry, sources
    from cnllm.registry.documents import overlay_paths

    in_use = [str(path) for path in overlay_paths()]
    path = Path(file).expanduser() if file is not None else _usual(in_use)
    there = [*in_use, *([] if _among(path, in_use) else [str(path)])]
    documents = sources.load_documents([name for name in there if Path(name).exists()])
    registry = Registry(documents)
    addition = _asked(registry, given)
    _demand_new(registry, documents, addition)
    _write(path, next((d for d in documents if _among(path, [str(d.path)])), None), addition, in_use)


def _usual(in_use: list[str]) -> Path:
    from cnllm.config import paths

    return Path(in_use[-1]) if in_use else paths.config_dir() / "providers.toml"


def _among(path: Path, files: list[str]) -> bool:
    return any(Path(name).resolve() == path.resolve() for name in files)


# ── what is asked ────────────────────────────────────────────────────────────
def _asked(registry: Registry, given: dict[str, Any]) -> Addition:
    """The model, from options and, where something needed is missing, from whoever sits at the terminal."""
    from cnllm.registry.edit import Addition

    known = {name.casefold(): name for name in registry.providers}
    ask = _Questions(given, talk=sys.stdin.isatty() and not _enough(given, known))
    provider = ask.needed("provider", "Provider, a known or a new one", _provider)
    provider = known.get(provider.casefold(), provider)
    new = provider.casefold() not in known
    id = ask.needed("id", "Id, as the endpoint calls it", _id)
    if not new:
        for option in ("base_url", "key_env"):
            if given[option] is not None:
                raise errors.UsageError(
                    f"{provider} is described already, {_option(option)} and all",
                    f"leave {_option(option)} out, or name a new provider",
                )
    base_url = ask.needed("base_url", "Address, as in http://127.0.0.1:8000/v1", _url) if new else None
    key = ask.optional("key_env", "Variable that holds the key, empty if none is needed", _variable) if new else None
    context = ask.optional("context", "Tokens in its window, empty if unknown", _count)
    output = ask.optional("output", "Most tokens of a reply, empty if unknown", _count)
    reasoning = ask.optional("reasoning", f"Reasoning ({', '.join(MODES)}), empty if unknown", _mode)
    alias = ask.optional("alias", "Short name, empty for none", _alias)
    return Addition(
        provider=provider,
        id=id,
        protocol=PROTOCOL,
        base_url=base_url,
        keys=() if key is None else (key,),
        context=context,
        output=output,
        reasoning=None if reasoning == "unknown" else reasoning,
        alias=alias,
    )


def _enough(given: dict[str, Any], known: dict[str, str]) -> bool:
    """Is all given that cannot be left out?"""
    provider = given["provider"]
    needed = (provider, given["id"], given["base_url"] or (provider or "").casefold() in known or None)
    return None not in needed


class _Questions:
    """Options first, questions after; a question is asked again until its answer is one."""

    def __init__(self, given: dict[str, Any], *, talk: bool) -> None:
        self._given = given
        self._talk = talk

    def needed(self, name: str, question: str, read: Callable[[str], Any]) -> Any:
        """What must be known. Raises `errors.Wrong` where nobody can be asked."""
        if self._given[name] is not None:
            return read(self._given[name])
        if not self._talk:
            raise errors.UsageError(f"{_option(name)} is missing", "cnllm models add --help shows what is needed")
        return self._ask(question, read)

    def optional(self, name: str, question: str, read: Callable[[str], Any]) -> Any:
        """What may stay unknown."""
        if self._given[name] is not None:
            return read(str(self._given[name]))
        if not self._talk:
            return None
        return self._ask(question, lambda text: read(text) if text else None)

    def _ask(self, question: str, read: Callable[[str], Any]) -> Any:
        """Asks on stderr, since stdout has what was added and nothing else. The end of stdin is `click.Abort`."""
        while True:
            stdio.write_text(f"{question}: ")
            line = sys.stdin.readline()
            if not line:
                raise click.Abort
            try:
                return read(line.strip())
            except errors.UsageError as error:
                errors.print_error(error.message, error.hint)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# ── answers ──────────────────────────────────────────────────────────────────
def _provider(text: str) -> str:
    return _matching(_PROVIDER, text.casefold(), "--provider", "small letters, digits, dots and dashes")


def _id(text: str) -> str:
    if not text or any(c.isspace() or not c.isprintable() for c in text):
        raise errors.UsageError(f"--id {text!r} is no id", "it is what goes into the request as model")
    return text


def _url(text: str) -> str:
    return _matching(_URL, text, "--base-url", "http:// or https://, a host, and a path").rstrip("/")


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):  # not shown: it may be the key itself
        raise errors.UsageError(
            "--key-env is no name of a variable", "name the variable; the key itself goes nowhere here"
        )
    return text


def _count(text: str) -> int:
    plain = text.replace("_", "").replace(",", "")
    if not (plain.isascii() and plain.isdigit() and int(plain)):
        raise errors.UsageError(f"{text!r} is no number of tokens", "digits, as in 131072")
    return int(plain)


def _mode(text: str) -> str:
    if text not in MODES:
        raise errors.UsageError(f"{text!r} is not known", f"it is one of {', '.join(MODES)}")
    return text


def _alias(text: str) -> str:
    if not text or "/" in text or any(c.isspace() or not c.isprintable() for c in text):
        raise errors.UsageError(f"--alias {text!r} is no short name", "one word without a slash")
    return text


def _matching(pattern: re.Pattern[str], text: str, option: str, form: str) -> str:
    if not pattern.fullmatch(text):
        raise errors.UsageError(f"{option} {text!r} will not do", f"it is {form}")
    return text


# ── writing ──────────────────────────────────────────────────────────────────
def _demand_new(registry: Registry, documents: list[Document], addition: Addition) -> None:
    """Raises `errors.Wrong` where the name or the short name is taken."""
    for name in registry.names():
        if name.casefold() == addition.name.casefold():
            raise errors.UsageError(
                f"{name} is described already, at {_places(documents, name)}",
                "to change what is said, edit your own file: cnllm registry path",
            )
    for alias, target in registry.aliases.items():
        if addition.alias is not None and alias.casefold() == addition.alias.casefold():
            raise errors.UsageError(f"the short name {alias} is taken by {target}", "take another --alias")


def _places(documents: list[Document], name: str) -> str:
    """Each table of a model: "providers.toml:97"."""
    there = [document for document in documents if name in document.data.get("models", {})]
    return ", ".join(f"{document.shown}:{document.line(['models', name])}" for document in there)


def _write(path: Path, before: Document | None, addition: Addition, in_use: list[str]) -> None:
    from cnllm.registry.edit import add_model, replace_file

    try:
        done = add_model(before.text.decode() if before else "", addition, str(path))
        replace_file(path, done.text, in_use)
    except OSError as error:
        raise errors.UsageError(f"{path} cannot be written: {error.strerror}", "nothing was written") from error
    answer.print_line(terminal.escape(done.added.rstrip("\n")))
    stdio.print_line(terminal.escape(f"added {addition.name} to {path}:{done.line}"))
    for line in _advice(path, before, addition):
        stdio.print_line(terminal.escape(f"  {line}"))


def _advice(path: Path, before: Document | None, addition: Addition) -> list[str]:
    """What is still to be done before the model can be asked."""
    from cnllm.registry import Registry
    from cnllm.registry.documents import overlay_paths
    from cnllm.registry.routing import origin_of
    from cnllm.registry.trusted_files import is_trusted

    if not _among(path, [str(name) for name in overlay_paths()]):
        return ["this file is not in use: CNLLM_PROVIDERS says which are"]
    model = Registry.load().resolve(addition.name)
    base_url, keys = model.flags.base_url or "", model.flags.keys or []
    if any(not model.trusts(env, origin_of(base_url)) for env in keys):
        return [f"its key stays here until: cnllm registry trust {path}"]
    if before is not None and is_trusted(path, before.digest):
        return [f"the file was trusted as it was; trust it anew: cnllm registry trust {path}"]
    return [f'try it: cnllm call --model {addition.alias or addition.name} "Say hi"']
