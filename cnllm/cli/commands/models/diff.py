"""`cnllm models diff`: what differs between two models, or two hosts of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import completion, options
from cnllm.cli.output import answer, columns, stdio, terminal
from cnllm.cli.output import format as rows
from cnllm.cli.output.flag_table import files, place, shown_value

if TYPE_CHECKING:
    from cnllm.registry.diff import Difference
    from cnllm.registry.model import Fact

__all__ = ["diff"]

EXAMPLES = options.examples(
    "cnllm models diff zai/glm-4.7 zhipuai/glm-4.7",
    "cnllm models diff glm-4.7 glm-4.6",
    "cnllm models diff glm-4.7 deepseek-flash --json | jq -r '.[].flag'",
)
NOTHING = "–"


@click.command(cls=options.Command, epilog=EXAMPLES)
@click.argument("a", shell_complete=completion.models)
@click.argument("b", shell_complete=completion.models)
@options.as_json("an array")
def diff(a: str, b: str, as_json: bool) -> None:
    """Show what differs between two models, or two hosts of one model.

    What only one of them has is unknown of the other. With --json nothing is shortened.
    """
    from cnllm.registry import Registry
    from cnllm.registry.diff import differences

    registry = Registry.load()
    one, other = registry.resolve(a), registry.resolve(b)
    found = differences(one, other)
    if as_json:
        answer.dump([_json(difference) for difference in found])
    elif found:
        answer.emit(_table(one.name, other.name, found))
    if not as_json:
        names = f"{terminal.escape(one.name)} and {terminal.escape(other.name)}"
        stdio.say(
            f"{names} differ in {len(found)} flag{'s' if len(found) > 1 else ''}" if found else f"{names} do not differ"
        )


def _json(difference: Difference) -> dict[str, Any]:
    return {"flag": difference.flag, "a": _said(difference.a), "b": _said(difference.b)}


def _said(fact: Fact | None) -> dict[str, Any] | None:
    if fact is None:
        return None
    return {
        "value": rows.builtin(fact.value),
        "layer": fact.layer,
        "where": fact.where,
        "source": fact.source,
        "seen": fact.seen,
        "how": fact.how,
    }


def _table(a: str, b: str, found: list[Difference]) -> str:
    marks = files([fact for difference in found for fact in (difference.a, difference.b) if fact is not None])
    heads = ("FLAG", a, "SET BY", b, "SET BY")
    cells = [(d.flag, *_pair(d.a, marks), *_pair(d.b, marks)) for d in found]
    legend = [f"{mark}: {terminal.escape(file)}" for file, mark in marks.items()]
    text = columns.fitted(heads, cells, give={0: 26, 1: 12, 3: 12}, middles=frozenset({0}))
    return "\n".join([*legend, text])


def _pair(fact: Fact | None, marks: dict[str, str]) -> tuple[str, str]:
    return (NOTHING, "") if fact is None else (shown_value(fact), place(fact, marks))
