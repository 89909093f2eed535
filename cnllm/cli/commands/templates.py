"""Define `cnllm templates`: saved options and prompts."""

from __future__ import annotations

import click

from cnllm.cli import completion, options
from cnllm.cli.call_template import load_template
from cnllm.cli.language.messages import localize
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.cli.output.suggestion import suggest
from cnllm.cli.output.table import table
from cnllm.errors import CnllmError
from cnllm.system.files import read_bounded

__all__ = ["templates"]


@click.group(cls=options.Group)
def templates() -> None:
    """Saved options and prompts, to use with -t NAME.

    A template is a TOML file with a model, a system message, a prompt and options. cnllm call --save NAME writes one;
    you may edit it.

    Example:
      cnllm call -s 'Answer in French.' --save french
    """


@templates.command("list")
@options.as_json("an array")
def list_(*, as_json: bool) -> None:
    """List the templates, with the beginning of each.

    Example:
      cnllm templates list
    """
    from cnllm.config.templates import template_names

    names = template_names()

    def text() -> str:
        rows = []
        for name in names:
            try:
                template = load_template(name)
                rows.append((name, template.model or "", " ".join((template.system or template.prompt or "").split())))
            except CnllmError as error:  # the others are shown nevertheless
                rows.append((name, "", localize(f"unreadable: {error.message}")))
        return table(("NAME", "MODEL", "TEXT"), rows, give={1: 10, 2: 16})

    nothing = "there are no templates; cnllm call --save NAME makes one"
    stdout.print_listing(names, text, nothing, as_json=as_json)


@templates.command()
@click.argument("name", shell_complete=completion.complete_templates)
def show(name: str) -> None:
    """Print a template as it stands in its file.

    Example:
      cnllm templates show translate
    """
    from cnllm.config.templates import template_path

    load_template(name)
    stdout.print_line(read_bounded(template_path(name)).decode("utf-8-sig").rstrip("\n"))


@templates.command()
@click.argument("name", shell_complete=completion.complete_templates)
def remove(name: str) -> None:
    """Remove a template.

    Example:
      cnllm templates remove translate
    """
    from cnllm.config.templates import remove_template, template_names

    if not remove_template(name):
        hint = suggest(name, template_names(), "cnllm templates list shows them")
        raise errors.UsageError(f"there is no template {name}", hint)
    stdio.print_line(terminal.escape(f"the template {name} is removed"))


@templates.command()
@click.argument("name", required=False, shell_complete=completion.complete_templates)
def path(name: str | None) -> None:
    """Print the folder of the templates, or the file of one, whether or not it exists.

    Example:
      $EDITOR $(cnllm templates path translate)
    """
    from cnllm.config.templates import template_path, templates_dir

    stdout.print_path(templates_dir() if name is None else template_path(name))
