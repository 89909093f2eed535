"""Define `cnllm models matrix`: every model and its capabilities, on one page for a browser."""

from __future__ import annotations

from pathlib import Path

import click

from cnllm.cli import options
from cnllm.cli.output import answer, errors, stdio, terminal

__all__ = ["matrix"]

EXAMPLES = options.examples(
    "cnllm models matrix --html matrix.html",
    "cnllm models matrix --html - | ssh server 'cat > public/matrix.html'",
)


@click.command(cls=options.Command, epilog=EXAMPLES)
@click.option(
    "--html", "file", metavar="FILE", type=click.Path(), required=True, help="The file to write; - is stdout."
)
def matrix(file: str) -> None:
    """Write one page with every model and what it can do, its limits and its price.

    The page needs no other file. Search, filter and sort it in the browser. Each cell shows its source.
    """
    from cnllm.cli.commands.models.matrix_page import render_page
    from cnllm.registry import Registry
    from cnllm.registry.summary import short_names

    registry = Registry.load()
    names = registry.names()
    text = render_page([registry.resolve(name) for name in names], short_names(registry.aliases))
    if file == "-":
        answer.print_line(text)
        return
    try:
        Path(file).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise errors.UsageError(
            f"{file} cannot be written: {error.strerror}", "name a file in a folder that exists"
        ) from error
    stdio.print_line(terminal.escape(f"{len(names)} models are in {file}"))
