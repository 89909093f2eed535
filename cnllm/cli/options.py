"""Define the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import completion
from cnllm.cli.output import errors
from cnllm.registry.levels import LEVELS

if TYPE_CHECKING:
    _ParamType = click.ParamType[str | int]
else:  # the class of older versions of click is not generic
    _ParamType = click.ParamType

__all__ = [
    "LEVEL_WORDS",
    "Command",
    "Group",
    "ReasoningLevel",
    "as_json",
    "attachments",
    "examples",
    "level",
    "model",
    "templates",
    "tool",
]

Decorator = Callable[[Any], Any]


class Command(click.Command):
    """A command that accepts `--debug` in addition to its own options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--debug"],
                is_flag=True,
                expose_value=False,
                callback=errors.enable_debug,
                help="Show a traceback of what fails.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. If a shell has expanded a pattern for `-f`, say so."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "extra argument" in error.message and any(arg in ("-f", "--file", "-a", "--attach") for arg in given):
                raise errors.UsageError(
                    error.message.rstrip("."), "one -f takes one file: quote a pattern, -f '*.md', or repeat -f"
                ) from None
            raise


class Group(click.Group):
    """A group of commands that accept `--debug`."""

    command_class = Command


LEVEL_WORDS = ("off", "on", *LEVELS)
"""The words for reasoning levels."""


def level(text: str, prefix: str = "") -> str | int:
    """Parse a reasoning level: one of the words, or a number of tokens. `prefix` begins the error message."""
    if text in LEVEL_WORDS:
        return text
    if text.isdecimal() and text.isascii():
        return int(text)
    raise errors.UsageError(
        f"{prefix}{text!r} is not a reasoning level", f"it is one of {', '.join(LEVEL_WORDS)}, or a number of tokens"
    )


class ReasoningLevel(_ParamType):
    """A reasoning level: a word, or a number of tokens."""

    name = "level"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        """Convert an option's value. Raise `UsageError` for an unknown level."""
        return value if isinstance(value, int) else level(value, "--reasoning ")

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return the words with this prefix."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in LEVEL_WORDS if word.startswith(incomplete)]


def examples(*lines: str) -> str:
    """Build an epilog that click prints unchanged."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def model(required: bool = True) -> Decorator:
    """Return the option `--model M`, completed with the registry's names."""
    return click.option(
        "-m",
        "--model",
        metavar="M",
        required=required,
        shell_complete=completion.complete_models,
        help="A short name, or PROVIDER/ID.",
    )


tool = click.option(
    "--tool",
    metavar="NAME",
    multiple=True,
    help="A tool to run on this machine: MODULE:FUNCTION, FILE.py:FUNCTION, or built in: calc, read, time. Repeatable.",
)
"""The option `--tool NAME`, which may be repeated."""


def attachments(function: Any) -> Any:
    """Add the options `-a` and `-f`."""
    attach = click.option(
        "-a",
        "--attach",
        "attachments",
        metavar="FILE|URL|-",
        multiple=True,
        help="A picture, PDF, sound or video; - is stdin. Repeatable.",
    )
    file = click.option(
        "-f", "--file", "files", metavar="FILE", multiple=True, help="A text file, or a quoted '*.py'. Repeatable."
    )
    return attach(file(function))


def templates(function: Any) -> Any:
    """Add the options `-t` and `--save`."""
    template = click.option(
        "-t",
        "--template",
        metavar="NAME",
        shell_complete=completion.complete_templates,
        help="Use a template; -p NAME=VALUE sets its variables.",
    )
    save = click.option("--save", metavar="NAME", help="Save these options as a template; send nothing.")
    return template(save(function))


def as_json(content: str) -> Decorator:
    """Return the option `--json` of a listing."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {content} as JSON.")
