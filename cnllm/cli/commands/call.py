"""`cnllm call`: what it takes."""

from __future__ import annotations

from typing import Any

import click

from cnllm.cli import completion, options

__all__ = ["call"]

EXAMPLES = options.examples(
    'cnllm call --model glm-4.7 --simulate "Why is the sky blue?"',
    "git diff | cnllm call --model glm-4.7 -s 'Review this.' --reasoning high -",
    "cnllm call --model glm-4.7 -p temperature=0.2 --json 'Say hi' | jq -r .text",
    "cnllm call -c 'And at sunset?'",
    "cnllm call --model glm-4.7 --tool calc --tool read 'Add up the numbers in sums.txt'",
    "cnllm call --model openai-compatible/my-model --base-url http://127.0.0.1:8000/v1 'Say hi'",
)


@click.command(cls=options.Command, epilog=EXAMPLES)
@click.argument("text", required=False, metavar="[TEXT|-]")
@options.model(required=False)
@click.option("-c", "--continue", "continues", is_flag=True, help="Go on with the last conversation, and its model.")
@click.option(
    "--conversation",
    metavar="ID",
    shell_complete=completion.complete_conversations,
    help="Go on with this one; the beginning of an id will do.",
)
@click.option("--simulate", is_flag=True, help="Let this machine make the answer up: no key, no network.")
@click.option("-s", "--system", metavar="TEXT", help="What the model is told before.")
@click.option("--reasoning", type=options.ReasoningLevel(), metavar="LEVEL", help="off, on, minimal … max, or tokens.")
@click.option("--show-reasoning/--hide-reasoning", default=True, help="Reasoning goes to stderr, or nowhere.")
@click.option("--tools", metavar="FILE", type=click.Path(), help="JSON: the tools the model may call. None is run.")
@options.tool
@click.option(
    "--approve",
    type=click.Choice(["all", "none"]),
    default="none",
    help="Execute every call, or those of built-in tools alone.",
    show_default=True,
)
@click.option("--tool-choice", metavar="C", help="auto, none, required, or a tool's name.")
@click.option("-p", "parameters", metavar="NAME=VALUE", multiple=True, help="A parameter; dots go deeper. Repeatable.")
@click.option("--extra-body", metavar="JSON", help="Goes into the body as it is. @FILE reads a file.")
@click.option("--schema", metavar="FILE", type=click.Path(), help="JSON Schema that the answer is to follow.")
@click.option("--image", "images", metavar="FILE", multiple=True, help="An image, or its URL. Repeatable.")
@click.option("--base-url", metavar="URL", help="Another place that serves the model.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the key.")
@click.option("--protocol", metavar="P", help="Another wire of the endpoint.")
@click.option("--stream/--no-stream", default=None, help="Take the answer as it comes, or whole.")
@click.option("--sentences", is_flag=True, help="Print a streamed answer a sentence at a time.")
@click.option("--json", "form", flag_value="json", help="Print one reply as JSON.")
@click.option("--events", "form", flag_value="events", help="Print one event as JSON a line.")
@click.option("--plan", "form", flag_value="plan", help="Print the request as JSON; send nothing.")
@click.option("--curl", "form", flag_value="curl", help="Print the request as a curl command; send nothing.")
@click.option("--record", metavar="FILE", type=click.Path(), help="Append the exchange to FILE, without secrets.")
@click.option("--replay", metavar="FILE", type=click.Path(), help="Answer from such a FILE; send nothing.")
@click.option(
    "--raw-log",
    metavar="FILE",
    type=click.Path(),
    help="Append every request and response, as --record does.",
)
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds to wait for the endpoint.",
)
@click.option("--no-log", is_flag=True, help="Keep nothing of it; see cnllm logs.")
@click.option("--raw", is_flag=True, help="Let control characters through to a terminal.")
def call(**given: Any) -> int:
    """Ask a model and print its answer.

    The answer goes to stdout; reasoning, notes and usage go to stderr. TEXT may come from stdin (-); what is
    piped in beside TEXT is added to it.
    """
    from cnllm.cli.call_runner import CallRunner  # with all that a call needs; its help and completion need none of it

    return CallRunner(**given).run()
