"""Define `cnllm registry export`: the registry for other programs."""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from cnllm.cli import options
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdio, stdout
from cnllm.cli.output.suggestion import provider_hint
from cnllm.registry.read import builtin_path, read
from cnllm.types.checks import plural

if TYPE_CHECKING:
    from cnllm.registry import Registry

__all__ = ["export"]

Form = Literal["json", "typescript", "models.dev", "litellm"]
_LITELLM_FILE = "model_prices_and_context_window.json"


@click.command(cls=options.Command)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Form)),
    default="json",
    show_default=True,
    help="One JSON document, a package for npm, or the form of a public list.",
)
@click.option(
    "-o", "--output", "target", metavar="PATH", type=click.Path(), required=True,
    help="The file to write (- is stdout, .gz is compressed), or the folder.",
)  # fmt: skip
@options.providers
@flag("--builtin", help="Leave your own files, updates and data releases out.")
@flag("--catalogue", help="Include the models of which only a public list knows.")
def export(form: Form, target: str, providers: tuple[str, ...], *, builtin: bool, catalogue: bool) -> None:
    """Write the registry for other programs, each fact with its source, date and kind of source.

    json and typescript hold all that is known; what nobody knows is written as "unknown". Retired models are in them,
    and marked. models.dev and litellm hold what these lists have a place for, in dollars, so that corrections can be
    offered there. The same data give the same bytes. LICENSE and DATA_SOURCES.md go with every folder, and stand in
    the JSON document.

    Examples:
      cnllm registry export --format json -o registry.json
      cnllm registry export --format typescript -o cnllm-registry/
      cnllm registry export --format models.dev -o models.dev/
      cnllm registry export --format litellm -o model_prices.json
    """
    from cnllm.registry import Registry

    registry = Registry([read(builtin_path(), builtin=True)]) if builtin else Registry.load()
    is_list = form in ("models.dev", "litellm")
    if is_list and catalogue:
        raise errors.UsageError("the catalogue comes from models.dev", "leave --catalogue out")
    known = {*registry.providers, *(registry.catalogue_providers() if catalogue else ())}
    for name in providers:
        if name not in known:
            raise errors.UsageError(f"there is no provider {name}", provider_hint(name, registry, catalogue=catalogue))
    if form == "json" or (form == "litellm" and (target == "-" or target.endswith((".json", ".gz")))):
        _write_file(target, _one_file(registry, form, providers, catalogue=catalogue))
    elif target == "-":
        raise errors.UsageError(f"--format {form} is a folder", "name it: -o FOLDER")
    else:
        _write_folder(Path(target), _files(registry, form, providers, catalogue=catalogue))
    if own := registry.files[1:]:
        stdio.print_line(f"your own files are in it, too: {', '.join(own)}; --builtin leaves them out")


def _one_file(registry: Registry, form: Form, providers: Collection[str], *, catalogue: bool) -> bytes:
    """Return the content of the file."""
    from cnllm.registry_export.document import build_document, encode_document
    from cnllm.registry_export.public_lists import litellm_file

    if form == "litellm":
        return litellm_file(registry, providers)
    return encode_document(build_document(registry, catalogue=catalogue, providers=providers))


def _files(
    registry: Registry, form: Form, providers: Collection[str], *, catalogue: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each file of the folder."""
    from cnllm.registry_export.document import build_document, licenses
    from cnllm.registry_export.package import package_files
    from cnllm.registry_export.public_lists import models_dev_files

    if form == "typescript":
        yield from package_files(build_document(registry, catalogue=catalogue, providers=providers))
        return
    yield from ((name, text.encode()) for name, text in licenses().items())
    if form == "litellm":
        yield _LITELLM_FILE, _one_file(registry, form, providers, catalogue=False)
    else:
        yield from models_dev_files(registry, providers)


def _write_file(target: str, content: bytes) -> None:
    """Write a file, or stdout."""
    if target == "-":
        stdout.print_line(content.decode().rstrip("\n"))
        return
    with errors.writing(target):
        # asked for: the file that the caller named
        Path(target).write_bytes(gzip.compress(content, 9, mtime=0) if target.endswith(".gz") else content)
    stdio.print_line(f"{target} has {len(content):,} bytes, and {len(gzip.compress(content)):,} compressed")


def _write_folder(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files into a folder. Others that are in it stay."""
    count = 0
    top = folder.resolve()
    for name, content in files:
        path = (top / name).resolve()
        if not path.is_relative_to(top):
            raise errors.UsageError(f"{name} leads out of the folder", "correct the id of this model")
        with errors.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)  # asked for: a file of the folder that the caller named
        count += 1
    stdio.print_line(f"{folder} has {count} file{plural(count)}")
