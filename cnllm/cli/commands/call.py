"""Define the options of `cnllm call`."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from cnllm.cli import completion, option_types, options
from cnllm.cli.option_types import file, flag, repeated
from cnllm.cli.output import errors

__all__ = ["call"]

HELP = options.Help(
    "--model --continue --system --reasoning --attach --file --schema --tool --json --simulate",
    {
        "Conversation and files": "--system --continue --conversation --attach --file --template --save --tag --no-log",
        "Model and endpoint": "--model --reasoning -p --extra-body --base-url --key-env --protocol --simulate",
        "Tools of the model": "--tool --tools --tool-choice --approve --mcp --mcp-env --web-search",
        "Form of the answer": "--schema --stream --sentences --show-reasoning --plain --raw --json --events",
        "Request and recording": "--plan --curl --quote --record --replay --timeout",
    },
)


def _set_form(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Set the form of the output. Raise `UsageError` for a second one."""
    form = context.params.setdefault("form", None)
    if value and form is not None:
        raise errors.UsageError(f"--{form} and --{option.name} print different things", "give one of them")
    if value:
        context.params["form"] = option.name


_form = partial(click.option, is_flag=True, expose_value=False, callback=_set_form)


@click.command(cls=options.ModelCommand, layout=HELP)
@click.argument("text", required=False, metavar="[TEXT|-]")
@options.model(required=False)
@options.conversation
@flag("--simulate", help="Make up the answer on this machine: no key, no network.")
@click.option("-s", "--system", metavar="TEXT", help="The system message.")
@options.reasoning("off, on, minimal … max, or tokens.")
@click.option("--show-reasoning/--hide-reasoning", default=True, help="Reasoning goes to stderr, or nowhere.")
@file("--tools", help="JSON: tools to offer; cnllm runs none. --tool runs one.")
@partial(options.tool, offers=True)
@options.mcp
@options.approve(
    "Before a call of a tool that is not built in: ask at a terminal, or run it (all), or refuse it (none)."
)
@flag("--web-search", help="Let the endpoint search the web; its sources go to stderr.")
@click.option("--tool-choice", metavar="C", help="auto, none, required, or a tool's name.")
@options.parameters
@click.option("--extra-body", metavar="JSON", help="JSON for the request body, sent as it is. @FILE reads a file.")
@click.option(
    "--schema",
    metavar="FILE|FIELDS",
    shell_complete=completion.complete_files,
    help="The answer's JSON Schema, or 'name, age int, tags [str]'.",
)
@options.attachments
@options.templates
@click.option("--base-url", metavar="URL", help="Another address that serves the model.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the key.")
@click.option("--protocol", metavar="P", help="Another protocol of the endpoint.")
@click.option("--stream/--no-stream", default=None, help="Print the answer as it arrives, or complete.")
@flag("--sentences", help="Print a streamed answer sentence by sentence.")
@_form("--json", help="Print one reply as JSON.")
@_form("--events", help="Print each event as one line of JSON.")
@_form("--plan", help="Print the request as JSON; send nothing.")
@_form("--curl", help="Print the request as a curl command; send nothing.")
@flag("--quote", help="Print tokens and cost before the call; send nothing.")
@repeated(
    "--record",
    "--raw-log",
    "record",
    cls=options.Option,
    metavar="FILE",
    type=option_types.FilePath(),
    help="Append every request and response to FILE, without secrets. Repeatable.",
)
@file("--replay", help="Answer from a recorded FILE; send nothing.")
@option_types.seconds("--timeout", help="Seconds to wait for the endpoint.")
@options.tag
@flag("--no-log", help="Do not log this call; see cnllm logs.")
@options.plain
@flag("--raw", help="Let control characters through to a terminal.")
def call(**params: Any) -> int:
    """Ask a model and print its answer.

    Without --model, the default model is asked: see cnllm models default. The answer goes to stdout; reasoning,
    notes and usage go to stderr. TEXT may come from stdin (-). If you give TEXT and pipe text in, the piped text
    is appended.

    Examples:
      cnllm "Why is the sky blue?"
      cnllm call --model glm-4.7 --simulate "Why is the sky blue?"
      git diff | cnllm call --model glm-4.7 -s 'Review this.' --reasoning high -
      cnllm call --model glm-4.7 --temperature 0.2 --json 'Say hi' | jq -r .text
      cnllm call -c 'And at sunset?'
      cnllm call --model glm-4.7 --quote -f report.md 'Sum it up.'
      cnllm call --model gemini-2.5-flash -a chart.png -f 'notes/*.md' 'What is new in the chart?'
      cnllm call -m glm-4.7 -s 'Translate into $lang.' --save tr
      cnllm call -t tr -p lang=French 'Good morning'
      cnllm call --model glm-4.7 --tool calc --tool read 'Add up the numbers in sums.txt'
      cnllm call --model glm-4.7 --mcp 'uvx mcp-server-time' 'What time is it in Oslo?'
      cnllm call --model openai-compatible/my-model --base-url http://127.0.0.1:8000/v1 'Say hi'
    """
    if params["save"] is not None:
        from cnllm.cli.call_template import save_template

        return save_template(params)
    from cnllm.cli.call_runner import CallRunner  # imports what a call needs; help and completion do not need it

    return CallRunner(**params).run()
