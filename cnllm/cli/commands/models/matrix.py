"""Define `cnllm models matrix`: every model and its capabilities, on one page for a browser."""

from __future__ import annotations

import click

from cnllm.cli import options
from cnllm.cli.option_types import file
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.system.files import open_private

__all__ = ["matrix"]


@click.command(cls=options.Command)
@file("--html", "file", required=True, help="The file to write; - is stdout.")
def matrix(file: str) -> None:
    """Write one page with every model and what it can do, its limits and its price.

    The page needs no other file. Search, filter, sort and compare in the browser; the page of a model has its known
    issues and the source of each value.

    Examples:
      cnllm models matrix --html matrix.html
      cnllm models matrix --html - | ssh server 'cat > public/matrix.html'
    """
    from cnllm.cli.matrix.page import render_page
    from cnllm.registry import Registry

    registry = Registry.load()
    text = render_page(registry).rstrip("\n")
    if file == "-":
        stdout.print_line(text)
        return
    with errors.writing(file), open(file, "w", encoding="utf-8", opener=open_private) as page:  # asked for: --html
        page.write(text + "\n")
    names = registry.names()
    statuses = [registry.resolve(name).flags.status for name in names]
    retired = sum(status is not None and status.is_ == "retired" for status in statuses)
    stdio.print_line(terminal.escape(f"{len(names)} models are in {file}; {retired} of them are retired"))
