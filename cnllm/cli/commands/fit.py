"""`cnllm fit`: a conversation from anywhere → the messages that an endpoint takes."""

from __future__ import annotations

from typing import Any

import click

from cnllm.cli import input as prompt
from cnllm.cli import option_parsing, options
from cnllm.cli.output import answer, errors

__all__ = ["fit"]

_SHAPE = 'it looks like [{"role": "user", "content": "Why?"}], or {"messages": […]}'


@click.command(
    cls=options.Command,
    epilog=options.examples(
        "cnllm fit --model deepseek-flash < history.json > fitted.json",
        "cnllm fit --model glm-4.7 --tools tools.json --json < history.json | jq .notes",
    ),
)
@options.model()
@click.option("--tools", metavar="FILE", type=click.Path(), help="JSON: the tools that go with the conversation.")
@options.as_json("one object, messages and notes,")
def fit(model: str, tools: str | None, as_json: bool) -> int:
    """Make a conversation into one that a model takes.

    The conversation comes from stdin, as a JSON array of messages or as an object that holds it under `messages`.
    Calls and results are paired, ids made legal, reasoning goes to whoever wrote it, as the model's registry entry
    says. The messages go to stdout as a JSON array, what was changed to stderr. Nothing is sent.
    """
    import msgspec

    from cnllm.client.api import fit as fitted_to

    given = _messages(option_parsing.parse_json(prompt.read_text("-", needed=False).encode(), "stdin"))
    more: dict[str, Any] = {"tools": option_parsing.read_tools(tools)} if tools is not None else {}
    try:
        fitted = fitted_to(model, given, **more)
    except (TypeError, ValueError) as error:
        raise errors.UsageError(f"stdin: {error}", _SHAPE) from error
    if as_json:
        answer.print_json(msgspec.to_builtins(fitted))
        return errors.WHOLE
    answer.print_json(fitted.messages)
    answer.TextView(reasoning=False, raw=False, hold=False).notes(fitted.notes)
    return errors.WHOLE


def _messages(said: Any) -> list[Any]:
    if isinstance(said, dict) and "role" not in said:
        said = said.get("messages")
    if not isinstance(said, list) or not said:
        raise errors.UsageError("stdin holds no list of messages", _SHAPE)
    return said
