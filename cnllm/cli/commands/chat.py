"""`cnllm chat`: a conversation, turn by turn."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import completion, options
from cnllm.cli.output import errors, stdio, terminal

if TYPE_CHECKING:
    from cnllm.cli.chat_input import TurnInput
    from cnllm.cli.chat_session import ChatSession
    from cnllm.cli.turn_log import TurnLog

__all__ = ["chat"]

EXAMPLES = options.examples(
    "cnllm chat --model glm-4.7 --simulate",
    "cnllm chat -c",
    "cnllm chat --model glm-4.7 --tool calc --tool ./weather.py:forecast",
    r"printf 'Why is the sky blue?\nAnd at sunset?\n' | cnllm chat --model glm-4.7",
)
_COMMAND = re.compile(r"/[A-Za-z]+(\s|$)")
_EARLIER = 500  # turns that the arrow keys find again


@click.command(cls=options.Command, epilog=EXAMPLES)
@options.model(required=False)
@click.option("-c", "--continue", "continues", is_flag=True, help="Go on with the last conversation, and its model.")
@click.option(
    "--conversation",
    metavar="ID",
    shell_complete=completion.complete_conversations,
    help="Go on with this one; the beginning of an id will do.",
)
@click.option("--simulate", is_flag=True, help="Let this machine make the answers up: no key, no network.")
@click.option("-s", "--system", metavar="TEXT", help="What the model is told before.")
@click.option(
    "--reasoning", type=options.ReasoningLevel(), metavar="LEVEL", help="off, on, minimal … max, or a number of tokens."
)
@options.tool
@click.option(
    "--approve",
    type=click.Choice(["ask", "all", "none"]),
    default="ask",
    help="Before a tool that is not built in is called: ask; or call it, or never.",
    show_default=True,
)
@click.option("-p", "parameters", metavar="NAME=VALUE", multiple=True, help="A parameter; dots go deeper. Repeatable.")
@click.option("--base-url", metavar="URL", help="Another place that serves the model.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the key.")
@click.option("--no-log", is_flag=True, help="Keep nothing of it; see cnllm logs.")
def chat(**given: Any) -> int:
    """Talk with a model; /help lists what can be done meanwhile.

    Answers go to stdout, all else to stderr. Where stdin is no terminal, each line of it is a turn, and the exit
    status is the worst of the turns, as of cnllm call. A terminal needs prompt_toolkit: pip install 'cnllm[chat]'.
    """
    from cnllm.cli import turn_log

    if given["continues"] and given["conversation"] is not None:
        raise errors.UsageError("-c and --conversation ask for two conversations", "give one of them")
    which = "last" if given["continues"] else given["conversation"]
    if which is None and given["model"] is None:
        raise errors.UsageError("missing option '-m' / '--model'", "cnllm chat --help shows how it is used")
    with closing(turn_log.TurnLog(which, writes=not given["no_log"])) as log:
        return _chat(given, log)


def _chat(given: dict[str, Any], log: TurnLog) -> int:
    from cnllm.cli import chat_commands, chat_input, client_factory, option_parsing, tools
    from cnllm.cli import chat_session as talk
    from cnllm.cli import input as prompt
    from cnllm.registry import Registry

    talking: list[ChatSession] = []
    turns = chat_input.turn_input(
        lambda before: chat_commands.completions(talking[0], before), lambda: log.prompts(_EARLIER)
    )
    box = tools.Toolbox(given["tool"], given["approve"], turns.answer)
    asked = option_parsing.call_options(given["parameters"], None, None, None, reasoning=given["reasoning"])
    protocol = None
    if given["model"] is None:
        last = log.last_choice(protocol=None, base_url=given["base_url"])
        given |= {"model": last["model"], "base_url": last["base_url"]}
        protocol = last["protocol"]
    registry = Registry.load()
    model = client_factory.resolve_model(
        registry,
        given["model"],
        log.messages([]),
        asked,
        protocol=protocol,
        base_url=given["base_url"],
        offline=given["simulate"],
    )
    key = client_factory.read_key(model, given["key_env"], needed=not given["simulate"])
    records = (log.exchange,) if log.exchange else ()
    system = prompt.decode_argument(given["system"], "--system") if given["system"] else None
    place = talk.ChatEndpoint(protocol, given["base_url"], key)
    with client_factory.build_client(
        registry, api_key=None, simulate=given["simulate"], timeout=None, replay=None, records=records
    ) as client:
        if client.simulate:
            stdio.print_line("cnllm: simulated: every answer is made up on this machine; no model is asked")
        try:
            talking.append(talk.ChatSession(client, log, box, model, place=place, system=system, options=asked))
        except (ValueError, TypeError) as error:
            raise errors.UsageError(str(error)) from error
        _greet(talking[0])
        return _turns(talking[0], turns)


def _greet(talk: ChatSession) -> None:
    if talk.count:
        stdio.print_line(f"going on after {talk.count} turn{'' if talk.count == 1 else 's'}")
    if sys.stdin.isatty():
        stdio.print_line(f"asking {talk.model.name}; /help lists the commands, Ctrl-D leaves")


def _turns(talk: ChatSession, turns: TurnInput) -> int:
    """Take one turn after another, and return the exit status: of a terminal 0, else the worst of the turns."""
    while True:
        try:
            said = turns.turn(f"{terminal.escape(talk.model.id)}> ")
        except EOFError:
            return _status(talk)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            stdio.print_line("Ctrl-D or /quit leaves")
            continue
        try:
            if not _turn(talk, said):
                return _status(talk)
        except KeyboardInterrupt:  # between the answer and the next turn
            stdio.print_line("interrupted")


def _status(talk: ChatSession) -> int:
    return errors.WHOLE if sys.stdin.isatty() else talk.status


def _turn(talk: ChatSession, said: str) -> bool:
    from cnllm.cli import chat_commands
    from cnllm.cli import input as prompt

    if _COMMAND.match(said):
        return chat_commands.run(talk, said)
    text = said.removeprefix("/") if said.startswith("//") else said
    if text.strip():
        talk.ask(prompt.read_messages(text, None, ())[0])
    return True
