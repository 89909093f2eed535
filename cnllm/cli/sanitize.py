"""`cnllm sanitize`: what a model wrote → its answer, its thinking and its calls."""

from __future__ import annotations

import click

from cnllm.cli import errors, options, prompt, render, request

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
@click.option("--raw", is_flag=True, help="Let control characters through to a terminal.")
@options.as_json("one object, text, reasoning, tool_calls and notes,")
def sanitize(model: str, tools: str | None, raw: bool, as_json: bool) -> int:
    """Read what a model wrote; print what of it is the answer.

    The text comes from stdin. Thinking tags and calls that were written as text are told apart as the model's
    registry entry says. The answer goes to stdout; thinking, calls and notes go to stderr. Without --tools the
    markup of calls is taken out.
    """
    import msgspec

    from cnllm.shortcuts import sanitize as sorted_out

    offered = request.tools(tools) if tools is not None else None
    found = sorted_out(model, prompt.text("-", needed=False), offered)
    if as_json:
        render.dump(msgspec.to_builtins(found))
        return errors.WHOLE
    screen = render.Screen(reasoning=True, raw=raw, hold=False)
    screen.pieces(found.reasoning, found.text, found.tool_calls)
    screen.notes(found.notes)
    return errors.WHOLE
