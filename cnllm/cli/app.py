"""Define the root command, and turn every failure into a message and an exit status."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

import click

from cnllm.cli.language.messages import language, translate
from cnllm.cli.lazy_command import LazyGroup, with_help
from cnllm.cli.output import errors, stdio
from cnllm.config import distribution

__all__ = ["COMMANDS", "root", "run"]

COMMANDS = {
    "call": ("cnllm.cli.commands.call:call", "Ask a model and print its answer."),
    "batch": ("cnllm.cli.commands.batch:batch", "Ask a model every row of a file, below a cap on cost."),
    "chat": ("cnllm.cli.commands.chat:chat", "Talk with a model; /help lists the commands of a chat."),
    "logs": ("cnllm.cli.commands.logs:logs", "Conversations on disk: list, show, search, export, their cost."),
    "models": ("cnllm.cli.commands.models:models", "List models, and show what is known about each."),
    "aliases": ("cnllm.cli.commands.aliases:aliases", "Short names for models, in your own registry file."),
    "prefer": ("cnllm.cli.commands.prefer:prefer", "Let short names mean the models of a provider."),
    "templates": ("cnllm.cli.commands.templates:templates", "Saved options and prompts, to use with -t NAME."),
    "sanitize": ("cnllm.cli.commands.sanitize:sanitize", "Read the text that a model wrote and print its answer."),
    "fit": ("cnllm.cli.commands.fit:fit", "Change a conversation so that a model accepts it."),
    "registry": ("cnllm.cli.commands.registry:registry", "Check, find and refresh the files that describe endpoints."),
    "keys": ("cnllm.cli.commands.keys:keys", "Keep API keys in a private file."),
    "serve": ("cnllm.cli.commands.serve:serve", "Serve every model to clients of four protocols."),
    "launch": ("cnllm.cli.commands.launch:launch", "Run a coding agent, or any other client, on any model."),
    "compare": (
        "cnllm.cli.commands.compare:compare",
        "Ask several hosts of one model the same tasks, and count the faults of each.",
    ),
    "probe": ("cnllm.cli.commands.probe:probe", "Ask an endpoint what it takes, and describe it in a registry file."),
    "simulate": (
        "cnllm.cli.commands.simulate:simulate",
        "Serve made-up answers on this machine, without key or network.",
    ),
    "verify": ("cnllm.cli.commands.verify:verify", "Ask models again what the registry claims."),
    "completion": ("cnllm.cli.commands.completion:completion", "Print the script that lets your shell complete cnllm."),
}
"""Maps a command's name to its import path and its line in the listing, so that the listing imports no command."""

EXAMPLES = """\b
Examples:
  cnllm "Why is the sky blue?"
  cnllm call --model glm-4.7 --simulate "Why is the sky blue?"
  cnllm models list
  cnllm COMMAND --help
"""


_DEFAULT = "call"
_LISTING_WORDS = ("help", "commands", "version")  # words that a new user tries as commands


class RootGroup(LazyGroup):
    """The group of all commands. `call` is the default command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command before arguments that begin with no command."""
        flags = {name for param in self.get_params(ctx) for name in param.opts}
        index = next((i for i, arg in enumerate(args) if arg not in flags), len(args))
        rest = args[index:]
        if rest and rest[0] not in COMMANDS and not ctx.resilient_parsing:
            _require_text(rest)
        if rest[0] not in COMMANDS if rest else not args and not ctx.resilient_parsing and stdio.has_piped_stdin():
            args = [*args[:index], _DEFAULT, *rest]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the listing of the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _require_text(rest: list[str]) -> None:
    """Raise `UsageError` where the first argument looks like a mistyped command, or the text lacks quotes."""
    word, words = rest[0], [arg for arg in rest if not arg.startswith("-")]
    if word.startswith("-") or any(character.isspace() for character in word):
        return
    from cnllm.cli.output.suggestion import CALL, command_hint, nearest

    folded = word.casefold()
    close = nearest(folded, COMMANDS) if word.isidentifier() else None  # "What?" is a question
    if folded == "help" and len(rest) == 2 and rest[1] in COMMANDS:
        raise errors.UsageError(f"there is no command {word}", f"cnllm {rest[1]} --help explains {rest[1]}")
    other = command_hint(word)
    text = shlex.quote(" ".join(words) if len(words) == len(rest) else word)
    if other == CALL and len(rest) > 1:  # the word is no part of the text
        text = shlex.join(rest[1:])
    if other or close or folded in _LISTING_WORDS:
        hint = other or (f"did you mean {close}?" if close else "cnllm --help lists the commands")
        hint = hint if hint.endswith("?") else f"{hint}."
        raise errors.UsageError(f"there is no command {word}", f"{hint} To ask a model: cnllm call {text}")
    if len(words) == len(rest) > 1:
        raise errors.UsageError(f"there is no command {word}", f"to ask a model, put the text in quotes: cnllm {text}")


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"cnllm {distribution.installed_version()}")
        if (other := distribution.warning()) is not None:
            errors.print_error(*other)
        ctx.exit()


@click.group(
    cls=RootGroup,
    lazy={name: path for name, (path, _) in COMMANDS.items()},
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.option(
    "--debug", is_flag=True, expose_value=False, callback=errors.enable_debug, help="Show a traceback of what fails."
)
def root() -> None:
    """One client for every model endpoint. How each endpoint behaves is described in a data file.

    cnllm TEXT is cnllm call TEXT.
    """


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line. Only Ctrl-C before the start passes through."""
    errors.reset()
    try:
        if not stdio.prepare_streams():
            raise errors.UsageError("stdout is closed", "send it to a file, or to /dev/null")
        if language() is not None:
            _translate_warnings()
        shell = os.environ.get("_CNLLM_COMPLETE")
        if shell is not None and shell.endswith("_complete"):
            from cnllm.cli import completion

            completion.complete_word(root, shell.removesuffix("_complete"))
            return errors.WHOLE
        if shell is not None:
            root.main(prog_name="cnllm", complete_var="_CNLLM_COMPLETE")
        status = _invoke(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = errors.INTERRUPTED
    except BrokenPipeError:
        status = errors.WHOLE  # the reader of stdout has closed it (`| head`), which is no failure
    except Exception as error:  # noqa: BLE001 - the last resort: a message, and with --debug a traceback
        if errors.shows_traceback():
            errors.traceback(error)
        status = errors.report_error(error)
    stdio.flush_streams()
    return status


def _translate_warnings() -> None:
    """Print the warnings of the log, which have no other handler, in the user's language."""
    import logging

    class Warnings(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            args = record.args if isinstance(record.args, tuple) else ()
            stdio.print_line(f"cnllm: {translate(str(record.msg)) % args if args else record.getMessage()}")

    logging.lastResort = Warnings(logging.WARNING)


def _invoke(args: list[str]) -> int:
    try:
        program = with_help(root)
        with program.make_context("cnllm", args) as context:
            if (replacement := distribution.replacement()) is not None:
                raise errors.UsageError(*replacement)
            result = program.invoke(context)
    except click.exceptions.Exit as exit:
        return exit.exit_code
    return result if isinstance(result, int) else errors.WHOLE
