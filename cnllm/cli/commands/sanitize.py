"""Define `cnllm sanitize`, which splits a model's text into answer, reasoning and tool calls."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from cnllm.cli import option_parsing, options
from cnllm.cli.input import read_text
from cnllm.cli.option_types import file, flag
from cnllm.cli.output import answer, errors, stdout

__all__ = ["sanitize"]


@click.command(cls=options.Command)
@options.model()
@file("--tools", help="JSON: the tools that the request offered to the model.")
@click.option(
    "--lang", metavar="LANG", help="The language of the sentence for the user: zh, ja, en. Default: that of the text."
)
@click.option(
    "--text-calls",
    type=click.Choice(option_parsing.CHOICES["recover_text_calls"]),
    help="What to do with calls written as text. Default: as the registry says.",
)
@flag("--raw", help="Let control characters through to a terminal.")
@options.as_json("one object, text, reasoning, tool_calls and notes,")
def sanitize(model: str, tools: str | None, lang: str | None, text_calls: Any, *, raw: bool, as_json: bool) -> int:
    """Read the text that a model wrote and print its answer.

    The text comes from stdin. cnllm separates thinking tags and calls written as text, following the model's registry
    entry. The answer goes to stdout; reasoning, calls and notes go to stderr. Without --tools cnllm removes the
    markup of calls. If nothing else remains, a sentence says what the model wanted to do.

    Examples:
      cnllm sanitize --model glm-4.7 --tools tools.json < reply.txt
      cnllm sanitize --model minimax-m3 --json < reply.txt | jq .tool_calls
    """
    from cnllm.client import sanitizer

    tool_list = option_parsing.read_tools(tools) if tools is not None else None
    text = read_text("-", required=False, attaches=False)
    with errors.correcting():
        result = sanitizer.sanitize(model, text, tool_list, lang, recover_text_calls=text_calls)
    if as_json:
        data = msgspec.to_builtins(result)
        del data["rest"]  # a single text has no rest for a next piece
        stdout.print_json(data)
        return errors.WHOLE
    screen = answer.TextView(reasoning=True, raw=raw, hold=False)
    screen.pieces(result.reasoning, result.text, result.tool_calls)
    screen.notes(result.notes)
    return errors.WHOLE
