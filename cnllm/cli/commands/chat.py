"""Run `cnllm chat`: a conversation, turn by turn."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import options
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdio, terminal

if TYPE_CHECKING:
    from cnllm.cli.call_template import FilledTemplate
    from cnllm.cli.chat_input import LineInput, TerminalInput
    from cnllm.cli.chat_session import ChatSession
    from cnllm.cli.turn_log import TurnLog

__all__ = ["chat"]

_COMMAND = re.compile(r"/[A-Za-z]+(\s|$)")
_MAX_HISTORY = 500  # earlier prompts that the arrow keys offer


HELP = options.Help(
    "--model --continue --system --reasoning --attach --file --template --tool --mcp --simulate",
    {
        "Conversation and files": "--system --continue --conversation --attach --file --template --save --tag --no-log",
        "Model and endpoint": "--model --reasoning -p --base-url --key-env --simulate",
        "Tools of the model": "--tool --approve --mcp --mcp-env",
        "Form of the answer": "--plain",
    },
)


@click.command(cls=options.ModelCommand, layout=HELP)
@options.model(required=False)
@options.conversation
@flag("--simulate", help="Make up the answers on this machine: no key, no network.")
@click.option("-s", "--system", metavar="TEXT", help="The system message.")
@options.reasoning("off, on, minimal … max, or a number of tokens.")
@options.tool
@options.mcp
@options.approve("Before a call of a tool that is not built in: ask, or run it (all), or refuse it (none).")
@options.parameters
@options.attachments
@options.templates
@click.option("--base-url", metavar="URL", help="Another address that serves the model.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the key.")
@options.plain
@options.tag
@flag("--no-log", help="Do not log this chat; see cnllm logs.")
def chat(**params: Any) -> int:
    r"""Talk with a model; /help lists the commands of a chat.

    Answers go to stdout, all other lines to stderr. If stdin is not a terminal, each line of it is a turn, and the
    exit status is the worst of all turns, as for cnllm call; a command that fails counts as 2. A terminal needs the
    extra chat.

    Examples:
      cnllm chat
      cnllm chat --model glm-4.7 --simulate
      cnllm chat -c
      cnllm chat --model glm-4.7 --tool calc --tool ./weather.py:forecast
      printf 'Why is the sky blue?\nAnd at sunset?\n' | cnllm chat --model glm-4.7
    """
    from cnllm.cli import call_template, turn_log

    if params["save"] is not None:
        return call_template.save_template(params)
    template = call_template.apply_template(params)
    with closing(turn_log.open_log(params, "cnllm chat", writes=not params["no_log"])) as log:
        return _chat(params, log, template)


def _chat(params: dict[str, Any], log: TurnLog, template: FilledTemplate) -> int:
    from cnllm.cli import chat_commands, chat_input, client_factory, option_parsing, tools, turn_log
    from cnllm.cli.attachments import require_readable
    from cnllm.cli.chat_session import ChatSession, ChatSettings
    from cnllm.cli.input import decode_argument, read_extras
    from cnllm.registry import Registry
    from cnllm.types import Message

    sessions: list[ChatSession] = []
    turns = chat_input.turn_input(
        lambda text: chat_commands.completions(sessions[0], text), lambda: log.prompts(_MAX_HISTORY)
    )
    ask = turns.answer if isinstance(turns, chat_input.TerminalInput) else None
    servers = tools.mcp_servers(params, ask)
    box = tools.CommandTools(params["tool"], params["approve"], turns.answer, servers)
    with closing(box):
        box.open()
        call_options = option_parsing.call_options(params["parameters"], reasoning=params["reasoning"])
        registry = Registry.load()
        model = turn_log.choose_model(registry, params, log, log.messages([]), call_options, sends=True)
        if "-" in params["attachments"]:
            raise errors.UsageError("-a - is stdin, where a chat reads its turns", "name a file")
        extras = read_extras(params["files"], params["attachments"])
        require_readable(registry, model, [Message("user", extras)], call_options)
        key = client_factory.read_key(model, params["key_env"], required=not params["simulate"])
        records = (log.exchange,) if log.exchange else ()
        settings = ChatSettings(
            protocol=params.get("protocol"),
            base_url=params["base_url"],
            key=key,
            options=call_options,
            markdown=not params["plain"],
            pick=turns.pick,
            system=decode_argument(params["system"], "--system") if params["system"] else None,
            files=extras,
        )
        with client_factory.build_client(registry, simulate=params["simulate"], records=records) as client:
            if client.simulate:
                stdio.print_line("cnllm: simulated: every answer is made up on this machine; no model is asked")
            with errors.correcting():
                template.require_known(client.plan(model, "?", **call_options).notes)
                sessions.append(ChatSession(client, log, box, model, settings))
            log.print_beginning()
            if sys.stdin.isatty():
                stdio.print_line(f"asking {sessions[0].model.name}; /help lists the commands, Ctrl-D leaves")
            return _turns(sessions[0], turns, template)


def _turns(session: ChatSession, turns: LineInput | TerminalInput, template: FilledTemplate) -> int:
    """Run one turn after another and return the exit status: 0 at a terminal, else the worst of the turns."""
    while True:
        try:
            text = turns.turn(f"{terminal.escape(session.model.id)}> ")
        except EOFError:
            return _status(session)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            stdio.print_line("Ctrl-D or /quit leaves")
            continue
        try:
            if not _turn(session, text, template):
                return _status(session)
        except KeyboardInterrupt:  # between the answer and the next turn
            stdio.print_line("interrupted")


def _status(session: ChatSession) -> int:
    return errors.WHOLE if sys.stdin.isatty() else session.status


def _turn(session: ChatSession, line: str, template: FilledTemplate) -> bool:
    from cnllm.cli import chat_commands
    from cnllm.cli.input import read_messages

    if _COMMAND.match(line):
        return chat_commands.run(session, line)
    if line.strip().lower() in ("exit", "quit"):
        return False
    if (hint := chat_commands.foreign_hint(line)) is not None:
        session.add_failure(errors.WRONG)
        errors.print_error(f"there is no command {line.split()[0]}", hint)
        return True
    text = line.removeprefix("/") if line.startswith("//") else line
    if text.strip():
        session.ask(read_messages(template.prompt(text), None, session.take_files())[0])
    return True
