"""Define `cnllm models diff`: the differences between two models, or two hosts of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import completion, options
from cnllm.cli.output import stdio, stdout, terminal
from cnllm.cli.output.flag_table import file_letters, source_place, value_cell
from cnllm.cli.output.format import plain_fact
from cnllm.cli.output.table import table

if TYPE_CHECKING:
    from cnllm.model_facts.difference import Difference
    from cnllm.registry.model import Fact

__all__ = ["diff"]

ABSENT = "–"


@click.command(cls=options.Command)
@click.argument("a", shell_complete=completion.complete_models)
@click.argument("b", shell_complete=completion.complete_models)
@options.as_json("an array")
def diff(a: str, b: str, *, as_json: bool) -> None:
    """Show the differences between two models, or two hosts of one model.

    If only one model has a flag, it is unknown for the other. --json shortens nothing.

    Examples:
      cnllm models diff zai/glm-4.7 zhipuai/glm-4.7
      cnllm models diff glm-4.7 glm-4.6
      cnllm models diff glm-4.7 deepseek-flash --json | jq -r '.[].flag'
    """
    from cnllm.model_facts.difference import differences
    from cnllm.registry import Registry

    registry = Registry.load()
    first, second = registry.resolve(a), registry.resolve(b)
    changes = differences(first, second)
    if as_json:
        stdout.print_json([{"flag": d.flag, "a": _without_flag(d.a), "b": _without_flag(d.b)} for d in changes])
    elif changes:
        stdout.print_line(_table(first.name, second.name, changes))
    if not as_json:
        names = f"{terminal.escape(first.name)} and {terminal.escape(second.name)}"
        stdio.print_line(
            f"{names} differ in {len(changes)} flag{'s' if len(changes) > 1 else ''}"
            if changes
            else f"{names} do not differ"
        )


def _without_flag(fact: Fact | None) -> dict[str, Any] | None:
    return None if fact is None else {key: value for key, value in plain_fact(fact).items() if key != "flag"}


def _table(a: str, b: str, differences: list[Difference]) -> str:
    letters = file_letters(
        [fact for difference in differences for fact in (difference.a, difference.b) if fact is not None]
    )
    heads = ("FLAG", a, "SET BY", b, "SET BY")
    cells = [(d.flag, *_pair(d.a, letters), *_pair(d.b, letters)) for d in differences]
    legend = [f"{mark}: {terminal.escape(file)}" for file, mark in letters.items()]
    text = table(heads, cells, give={0: 26, 1: 12, 3: 12}, middles=[0])
    return "\n".join([*legend, text])


def _pair(fact: Fact | None, letters: dict[str, str]) -> tuple[str, str]:
    return (ABSENT, "") if fact is None else (value_cell(fact), source_place(fact, letters))
