"""What the commands' declarations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import completion
from cnllm.cli.output import errors
from cnllm.registry.levels import LEVELS

if TYPE_CHECKING:
    _ParamType = click.ParamType[str | int]
else:  # older clicks' is not generic
    _ParamType = click.ParamType

__all__ = ["LEVEL_WORDS", "Command", "Group", "ReasoningLevel", "as_json", "examples", "level", "model", "tool"]

Decorator = Callable[[Any], Any]


class Command(click.Command):
    """A command that takes `--debug` beside its own options."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params.append(
            click.Option(
                ["--debug"],
                is_flag=True,
                expose_value=False,
                callback=errors.enable_debug,
                help="Show a traceback of what fails.",
            )
        )


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


LEVEL_WORDS = ("off", "on", *LEVELS)
"""How much a model shall think, in words."""


def level(said: str, where: str = "") -> str | int:
    """How much a model shall think: one of the words, or a number of tokens. `where` it was said begins the error."""
    if said in LEVEL_WORDS:
        return said
    if said.isdecimal() and said.isascii():
        return int(said)
    raise errors.UsageError(
        f"{where}{said!r} is no level", f"it is one of {', '.join(LEVEL_WORDS)}, or a number of tokens"
    )


class ReasoningLevel(_ParamType):
    """How much a model shall think: a word, or a number of tokens."""

    name = "level"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        return value if isinstance(value, int) else level(value, "--reasoning ")

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in LEVEL_WORDS if word.startswith(incomplete)]


def examples(*lines: str) -> str:
    """An epilog that click leaves as it is."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def model(required: bool = True) -> Decorator:
    """`--model M`, completed with the registry's names."""
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
    help="A tool that is executed here: MODULE:FUNCTION, FILE.py:FUNCTION, or built in: calc, read, time. Repeatable.",
)
"""`--tool NAME`, as often as wanted."""


def as_json(what: str) -> Decorator:
    """`--json` of a listing."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} as JSON.")
