"""Print what public lists or a data release change: the questions first, then what changes, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from cnllm.cli.language.messages import in_brackets, localize, localize_word
from cnllm.cli.output import stdout, terminal
from cnllm.cli.output.table import table
from cnllm.registry_files.updates.changes import Action, Change, Kind
from cnllm.registry_files.updates.review import KIND_TITLES, ReviewQuestion, lines_by_hand, value_text

__all__ = ["print_changes"]

_ACTION_TITLES: dict[Action, str] = {
    "automatic": "",
    "ask": ": your decision",
    "disputed": ": the lists differ from each other, so nothing changes",
    "corrected": ": a correction stands, so nothing changes",
    "caught-up": ": the lists have caught up, so the correction can go",
    "by-hand": ": never changed from a list; write it into your own file, once you have read the vendor's page",
}


def print_changes(changes: Sequence[Change], reviews: Sequence[ReviewQuestion]) -> None:
    """Print the changes on stdout: each question with its changes, then the others by action and kind.

    What nothing becomes of, because our source was read later, is counted elsewhere.
    """
    blocks = [
        f"{_title(one.kind, 'ask', len(one.changes))}\n{localize(one.cause)}\n{_table(one.changes)}" for one in reviews
    ]
    rest = [change for change in changes if change.action in _ACTION_TITLES and change.action != "ask"]
    groups: dict[tuple[Action, Kind], list[Change]] = {}
    for change in rest:
        groups.setdefault((change.action, change.kind), []).append(change)
    for (action, kind), found in groups.items():
        by_hand = [line for change in found for line in lines_by_hand(change)] if action == "by-hand" else []
        lines = [_title(kind, action, len(found)), _table(found), *(f"  {terminal.escape(line)}" for line in by_hand)]
        blocks.append("\n".join(lines))
    if blocks:
        stdout.print_line("\n\n".join(blocks))


def _title(kind: Kind, action: Action, number: int) -> str:
    """Return the title of changes with their number, whose brackets are those of the language."""
    title = f"{localize_word(KIND_TITLES[kind])}{localize_word(_ACTION_TITLES[action])}"
    return f"{title}{in_brackets(str(number))}"


def _table(changes: Sequence[Change]) -> str:
    heads = ("MODEL", "FLAG", "OURS", "THEIRS", "LISTS", "OUR LINE")
    return table(heads, [_cells(change) for change in changes], give={0: 30, 3: 12, 5: 12}, middles=[0, 5])


def _cells(change: Change) -> tuple[str, ...]:
    place = change.where.rpartition("/")[2]
    ours = "" if not change.flag else value_text(change.ours)
    return change.model, change.flag, ours, value_text(change.theirs), "+".join(change.lists), place
