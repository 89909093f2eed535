"""`cnllm sanitize`: what a model wrote → its answer, its thinking and its calls."""

from __future__ import annotations

from typing import Any

import click

from cnllm.cli import input as prompt
from cnllm.cli import option_parsing, options
from cnllm.cli.output import answer, errors

__all__ = ["sanitize"]


@click.command(
    cls=options.Command,
    epilog=options.examples(
        "cnllm sanitize --model glm-4.7 --tools tools.json < reply.txt",
        "cnllm sanitize --model minimax-m2.5 --json < reply.txt | jq .tool_calls",
    ),
)
@options.model()
@click.option("--tools", metavar="FILE", type=click.Path(), help="JSON: the tools that the model was offered.")
@click.option(
    "--lang", metavar="LANG", help="The language of a sentence for the user: zh, ja, en; else the text's own."
)
@click.option(
    "--text-calls",
    type=click.Choice(("recover", "strip", "keep")),
    help="What becomes of calls written as text; else as the registry says.",
)
@click.option("--raw", is_flag=True, help="Let control characters through to a terminal.")
@options.as_json("one object, text, reasoning, tool_calls and notes,")
def sanitize(model: str, tools: str | None, lang: str | None, text_calls: Any, raw: bool, as_json: bool) -> int:
    """Read what a model wrote; print what of it is the answer.

    The text comes from stdin. Thinking tags and calls that were written as text are told apart as the model's
    registry entry says. The answer goes to stdout; thinking, calls and notes go to stderr. Without --tools the
    markup of calls is taken out; where nothing else remains, a sentence says what the model wanted.
    """
    import msgspec

    from cnllm.client.sanitizer import sanitize as sorted_out

    offered = option_parsing.read_tools(tools) if tools is not None else None
    found = sorted_out(model, prompt.read_text("-", needed=False), offered, lang, recover_text_calls=text_calls)
    if as_json:
        shape = msgspec.to_builtins(found)
        del shape["rest"]  # there is no earlier piece
        answer.print_json(shape)
        return errors.WHOLE
    screen = answer.TextView(reasoning=True, raw=raw, hold=False)
    screen.pieces(found.reasoning, found.text, found.tool_calls)
    screen.notes(found.notes)
    return errors.WHOLE
