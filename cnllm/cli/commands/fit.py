"""Define `cnllm fit`, which turns any conversation into messages that an endpoint accepts."""

from __future__ import annotations

from typing import Any

import click

from cnllm.cli import option_parsing, options
from cnllm.cli.input import read_text
from cnllm.cli.option_types import file
from cnllm.cli.output import answer, errors, stdout

__all__ = ["fit"]

_SHAPE = 'it looks like [{"role": "user", "content": "Why?"}], or {"messages": […]}'


@click.command(cls=options.Command)
@options.model()
@file("--tools", help="JSON: the tools that go with the conversation.")
@options.parameters
@options.as_json("one object, messages and notes,")
def fit(model: str, tools: str | None, parameters: tuple[str, ...], *, as_json: bool) -> int:
    """Change a conversation so that a model accepts it.

    The conversation comes from stdin, as a JSON array of messages or as an object that holds it under `messages`.
    Following the model's registry entry, cnllm pairs calls with results, makes ids legal, and sends reasoning back only
    to its author. The messages go to stdout as a JSON array, notes on the changes to stderr. Nothing is sent.

    Examples:
      cnllm fit --model deepseek-flash < history.json > fitted.json
      cnllm fit --model glm-4.7 --tools tools.json --json < history.json | jq .notes
    """
    from cnllm.client import api

    messages = _messages(option_parsing.parse_json(read_text("-", required=False, attaches=False).encode(), "stdin"))
    call_options = option_parsing.call_options(parameters, tools_file=tools)
    try:
        result = api.fit(model, messages, **call_options)
    except (TypeError, ValueError) as error:
        is_history = str(error).startswith("messages")
        raise errors.UsageError(
            *((f"stdin: {error}", _SHAPE) if is_history else (str(error), errors.CORRECT))
        ) from error
    if as_json:
        stdout.print_json(result)
        return errors.WHOLE
    stdout.print_json(result.messages)
    answer.TextView(reasoning=False, raw=False, hold=False).notes(result.notes)
    return errors.WHOLE


def _messages(value: Any) -> list[Any]:
    if isinstance(value, dict) and "role" not in value:
        value = value.get("messages")
    if not isinstance(value, list) or not value:
        raise errors.UsageError("stdin holds no list of messages", _SHAPE)
    return value
