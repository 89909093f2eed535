"""Define the options that several commands share."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import click

from cnllm.cli import completion
from cnllm.cli.language.messages import translate
from cnllm.cli.lazy_command import LazyGroup
from cnllm.cli.option_types import repeated
from cnllm.cli.output import errors
from cnllm.cli.output.format import fold_command
from cnllm.cli.output.terminal import display_width
from cnllm.cli.parameters import PARAMETERS
from cnllm.errors import CnllmError
from cnllm.registry.levels import LEVELS

__all__ = [
    "LEVEL_WORDS",
    "NONE",
    "Command",
    "Group",
    "Help",
    "ModelCommand",
    "Option",
    "approve",
    "as_json",
    "attachments",
    "complete_levels",
    "conversation",
    "count_or",
    "examples",
    "level",
    "mcp",
    "model",
    "parameters",
    "plain",
    "providers",
    "reasoning",
    "templates",
    "tool",
]

Decorator = Callable[[Any], Any]


class Help:
    """The layout of the help of a command with many options.

    `--help` explains the `usual` options and names the others; `--help-all` explains all. `groups` maps a heading to
    names of options.
    """

    def __init__(self, usual: str, groups: Mapping[str, str]) -> None:
        self.usual = usual
        self.groups = groups

    def write(self, options: Sequence[click.Option], ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of options."""
        records = {_name(option): option.get_help_record(ctx) for option in options}
        groups = {heading: names.split() for heading, names in self.groups.items()}
        usual, general = self.usual.split(), [name for name in ("--help-all", "--help", "--debug") if name in records]
        group_names = {*general, *(name for names in groups.values() for name in names)}
        if others := [name for name in records if name not in group_names]:
            groups["Parameters of the model"] = others
        shows_all = _SHOWS_ALL in ctx.meta
        sections = groups | {"Help and errors": general} if shows_all else {"Usual options": [*usual, *general[:2]]}
        for heading, names in sections.items():
            with formatter.section(heading):
                formatter.write_dl([record for name in names if (record := records[name]) is not None])
        if shows_all:
            return
        import textwrap

        with formatter.section("More options, which --help-all explains"):
            for heading, names in groups.items():
                if not (rest := [name for name in names if name not in usual]):
                    continue
                title = translate(heading)
                text = f"{title}{': ' if title == heading else '：'}{' '.join(rest)}"
                width = formatter.width - display_width(text) + len(text)
                wrapped = textwrap.wrap(
                    text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
                )
                formatter.write("".join(f"{line}\n" for line in wrapped))


_EXAMPLES = re.compile(r"\n\nExamples?:\n")
_SHOWS_ALL = "cnllm.help-all"  # in the context of a command


def _print_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOWS_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class Option(click.Option):
    """An option with an older spelling, its last, which help does not show."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the spellings and the help."""
        option = copy(self)
        option.opts = self.opts[:-1]
        return click.Option.get_help_record(option, ctx)


def _name(option: click.Option) -> str:
    """Return the longest spelling that help shows."""
    return max(option.opts[:-1] if isinstance(option, Option) else option.opts, key=len)


def _eager(name: str, callback: Any, text: str) -> click.Option:
    return click.Option([name], is_flag=True, is_eager=True, expose_value=False, callback=callback, help=text)


class _WithLayout(click.Command):
    """A command whose options stand in groups where there are many, and whose docstring ends with its examples."""

    def __init__(self, *args: Any, layout: Help | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help, *commands = _EXAMPLES.split(inspect.cleandoc(self.help or ""))
        if commands:
            self.epilog = examples(*map(str.strip, commands[0].splitlines()))
        self._layout = layout
        if layout is not None:
            self.params.append(_eager("--help-all", _print_all, "Explain all options and exit."))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        if self._layout is None:
            super().format_options(ctx, formatter)
        else:
            options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
            self._layout.write(options, ctx, formatter)


class Command(_WithLayout):
    """A command that accepts `--debug` in addition to its own options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_eager("--debug", errors.enable_debug, "Show a traceback of what fails."))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. If a shell has expanded a pattern for `-f`, say so."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "extra argument" in error.message and any(arg in ("-f", "--file", "-a", "--attach") for arg in words):
                raise errors.UsageError(
                    error.message.rstrip("."), "one -f takes one file: quote a pattern, -f '*.md', or repeat -f"
                ) from None
            if "extra argument" in error.message and self.name == "call":
                for name, value, *_ in [words[i + 1 :] for i, arg in enumerate(words[:-2]) if arg == "-p"]:
                    if "=" not in name:
                        message = f"-p {name!r} is not NAME=VALUE"
                        raise errors.UsageError(message, f"for example: -p {name}={value}") from None
                hint = 'put the text in quotes: cnllm "…"; cnllm call --help shows more'
                raise errors.UsageError(error.message.rstrip("."), hint) from None
            error.ctx = error.ctx or ctx  # click leaves it out for an option without its value
            raise


class ModelCommand(Command):
    """A command that asks a model: each parameter of the registry is an option. `parameters` gets all, as for `-p`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(
                [f"--{name.replace('_', '-')}", f"param_{name}"],
                metavar="V",
                multiple=name == "stop",
                help=entry.help,
            )
            for name, entry in PARAMETERS.items()
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an unknown option may be a parameter that one of the user's files declares."""
        original = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            replaced = None if ctx.resilient_parsing else _with_declared(original, error.option_name)
            if replaced is None:
                raise
            ctx.params.clear()
            return self.parse_args(ctx, replaced)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with all parameters in `parameters`; the options of parameters go after `-p`."""
        values = list(ctx.params["parameters"])
        for name in PARAMETERS:
            value = ctx.params.pop(f"param_{name}")
            if name == "stop":
                if value:
                    values.append(f"stop={json.dumps(value[0] if len(value) == 1 else list(value))}")
            elif value is not None:
                values.append(f"{name}={value}")
        ctx.params["parameters"] = tuple(values)
        return super().invoke(ctx)


def _with_declared(args: list[str], option: str) -> list[str] | None:
    """Return the arguments with `-p NAME=VALUE` for an option that is a declared parameter; None where it is none."""
    name = option.removeprefix("--").replace("-", "_")
    if not option.startswith("--") or name not in _declared_parameters():
        return None
    for index, arg in enumerate(args):
        flag, equals, value = arg.partition("=")
        if flag == option and equals:
            return [*args[:index], "-p", f"{name}={value}", *args[index + 1 :]]
        if flag == option and index + 1 < len(args):
            return [*args[:index], "-p", f"{name}={args[index + 1]}", *args[index + 2 :]]
    return None


def _declared_parameters() -> set[str]:
    """Return the names of all parameters in the loaded registry files; empty where one cannot be read."""
    from cnllm.registry import Registry

    try:
        return Registry.load().parameters()
    except CnllmError:
        return set()


class Group(LazyGroup, _WithLayout):
    """A group of commands that accept `--debug`. Its command `list`, if it has one, may be left out."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list` where no command is named."""
        flags = {name for param in self.get_params(ctx) for name in param.opts}
        names_none = not args or (args[0].startswith("-") and args[0] not in flags)
        if names_none and not ctx.resilient_parsing and "list" in self.list_commands(ctx):
            args = ["list", *args]
        return super().parse_args(ctx, args)


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


NONE = "none"
"""The value of an option that removes a limit."""


complete_levels = completion.completer(lambda prefix: LEVEL_WORDS)


def count_or(word: str) -> Callable[[str], str | int]:
    """Return the type of an option that takes a whole number from 1, or a word."""

    def convert(value: str) -> str | int:
        if value == word:
            return value
        if value.isdecimal() and int(value):
            return int(value)
        raise click.BadParameter(f"{value}: a number from 1, or {word}, is expected")

    return convert


def examples(*lines: str) -> str:
    """Build an epilog that click prints unchanged. A line that is too long for a terminal of 80 columns is broken."""
    pieces = (f"  {piece}" for line in lines for piece in fold_command(line))
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *pieces])


_MODEL = "A short name, or PROVIDER/ID."


def model(*names: str, required: bool = True, multiple: bool = False, text: str = _MODEL) -> Decorator:
    """Return the option `--model M` with this help, completed with the registry's names."""
    kind: dict[str, Any] = {"metavar": "M", "required": required, "multiple": multiple}
    return click.option("-m", "--model", *names, **kind, shell_complete=completion.complete_models, help=text)


def tool(function: Any, *, offers: bool = False) -> Any:
    """Add the option `--tool NAME`, which may be repeated. `offers`: the command has `--tools`, too."""
    text = (
        "A tool to run on this machine: MODULE:FUNCTION, FILE.py:FUNCTION, or built in: calc, read, time. Repeatable. "
        "--tools only offers tools."
        if offers
        else "A tool to run on this machine: MODULE:FUNCTION, FILE.py:FUNCTION, or built in: calc, read, time. "
        "Repeatable."
    )
    return repeated("-T", "--tool", metavar="NAME", help=text)(function)


def mcp(function: Any) -> Any:
    """Add the options `--mcp` and `--mcp-env`."""
    server = repeated(
        "--mcp",
        metavar="COMMAND|URL|NAME",
        shell_complete=completion.complete_mcp_servers,
        help="The tools of an MCP server: a quoted command, a URL, or NAME of [mcp.NAME] in your file. Repeatable.",
    )
    variable = repeated(
        "--mcp-env",
        metavar="NAME",
        help="A variable that the commands of --mcp get; else they get PATH, HOME and the like. Repeatable.",
    )
    return server(variable(function))


plain = click.option(
    "--plain", is_flag=True, help="Print the answer as it is; else Markdown is formatted on a terminal."
)
"""The option `--plain`."""


def reasoning(text: str) -> Decorator:
    """Return the option `--reasoning LEVEL` with this help."""
    return click.option(
        "--reasoning",
        type=lambda value: level(value, "--reasoning "),
        metavar="LEVEL",
        shell_complete=complete_levels,
        help=text,
    )


def approve(text: str) -> Decorator:
    """Return the option `--approve` with this help."""
    return click.option(
        "--approve",
        type=click.Choice(["ask", "all", "none"]),
        default="ask",
        help=text,
        show_default=True,
    )


providers = repeated(
    "--provider",
    "providers",
    metavar="P",
    shell_complete=completion.complete_providers,
    help="Models of P. Repeatable.",
)
"""The option `--provider P`, which may be repeated."""

parameters = repeated("-p", "parameters", metavar="NAME=VALUE", help="Any parameter; dots go deeper. Repeatable.")
"""The option `-p`, which may be repeated."""


def conversation(function: Any) -> Any:
    """Add the options `-c` and `--conversation`."""
    last = click.option(
        "-c", "--continue", "continues", is_flag=True, help="Continue the last conversation, with its model."
    )
    one = click.option(
        "--conversation",
        metavar="ID",
        shell_complete=completion.complete_conversations,
        help="Continue this conversation; the beginning of an id is enough.",
    )
    return last(one(function))


def tag(function: Any) -> Any:
    """Add the option `--tag`."""
    text = "A name by which cnllm logs cost groups calls. It is never sent."
    return click.option("--tag", metavar="NAME", callback=_check_tag, help=text)(function)


def _check_tag(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from cnllm.types import checks

    try:
        return checks.as_tag("--tag", value)
    except ValueError as error:
        raise click.BadParameter(f"1 to {checks.MOST_TAG} printable characters are allowed") from error


def attachments(function: Any) -> Any:
    """Add the options `-a` and `-f`."""
    attach = repeated(
        "-a",
        "--attach",
        "--image",
        "attachments",
        cls=Option,
        metavar="FILE|URL|-",
        shell_complete=completion.complete_files,
        help="A picture, PDF, sound or video; - is stdin. Repeatable.",
    )
    file = repeated(
        "-f",
        "--file",
        "files",
        metavar="FILE",
        shell_complete=completion.complete_files,
        help="A text file, or a quoted '*.py'. Repeatable.",
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
