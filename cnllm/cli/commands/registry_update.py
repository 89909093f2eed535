"""Define `cnllm registry update`: limits, prices and new models from public lists."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from cnllm.cli import download, options, questions
from cnllm.cli.output import answer, stdio

if TYPE_CHECKING:
    from cnllm.registry_files.updates.changes import Change, PublicList
    from cnllm.registry_files.updates.review import ReviewQuestion

__all__ = ["update"]

_ASKED = ("limits", "price", "price-jump", "input", "status", "reasoning")


@click.command(
    epilog=options.examples(
        "cnllm registry update --from models.dev --from litellm",
        "cnllm registry update --from api.json --dry-run",
        "cnllm registry update --from models.dev --from litellm --yes --accept limits",
        "cnllm registry update --from models.dev --from litellm --changelog data-changes.md",
    )
)
@click.option(
    "--from",
    "sources",
    metavar="LIST",
    multiple=True,
    required=True,
    help="models.dev or litellm (downloaded), or a FILE or URL of one of them. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes and write nothing.")
@click.option("--yes", is_flag=True, help="Make the changes that need no decision, without a question.")
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    type=click.Choice(_ASKED),
    help="Decide for all changes of this kind that need a decision. Repeatable.",
)
@click.option(
    "--changelog",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Put what was changed on top of FILE, in words.",
)
@options.as_json("an array of changes")
def update(
    sources: tuple[str, ...],
    *,
    dry_run: bool,
    yes: bool,
    accepted: tuple[str, ...],
    changelog: str | None,
    as_json: bool,
) -> None:
    """Compare the registry with public lists, and write the changes to a file between it and your own file.

    New models change without a question; so do limits, prices and kinds of input where both lists say the same. What
    was read later than the lists stays. The rest is your decision, what matters most first, with one answer for all
    that has one cause: what one list says alone, status, reasoning, and prices that become zero, three times as high or
    less than a third. Addresses, ids, keys, headers and everything else that moves a call never change. Your own file
    stays as it is, and wins. In a pipe nothing is written without --yes.
    """
    from cnllm.cli.output import registry_changes
    from cnllm.registry import Registry
    from cnllm.registry_files.updates.changes import find_changes
    from cnllm.registry_files.updates.patch_file import write_updates
    from cnllm.registry_files.updates.review import add_to_changelog, change_lines, questions_of

    lists = [_read_list(source) for source in sources]
    registry = Registry.load()
    own_files = [document.label for document in registry.documents if not (document.builtin or document.is_data)]
    changes = find_changes(registry, lists, own_files)
    asked = questions_of(changes, lists)
    if not as_json:
        registry_changes.print_changes(changes, asked)
    chosen: list[Change] = []
    if not dry_run:
        asks = not (yes or as_json) and questions.can_ask()
        chosen = _ask(changes, asked, accepted) if asks else _without_questions(changes, accepted, yes=yes)
    path = write_updates(registry, chosen, lists) if chosen else None
    if chosen and changelog is not None:
        add_to_changelog(changelog, change_lines(chosen, lists), _today())
    if as_json:
        written = set(map(id, chosen))
        answer.print_json([replace(change, applied=id(change) in written) for change in changes])
    _report(changes, len(asked), chosen, str(path), is_dry=dry_run)


def _today() -> datetime.date:

    return datetime.datetime.now(datetime.UTC).date()


def _read_list(source: str) -> PublicList:
    """Return the list with a name, at a URL, or in a file."""
    from cnllm.registry_files.updates import lists

    url = lists.LIST_URLS.get(source, source)
    if not download.is_url(url):
        return lists.list_from_file(Path(source))
    content = download.download(url, lists.MAX_BYTES)
    return lists.list_from_bytes(content, url, _today())


def _without_questions(changes: Sequence[Change], accepted: Sequence[str], *, yes: bool) -> list[Change]:
    """Return the changes to make where nobody is asked."""
    return [
        change
        for change in changes
        if (change.action == "automatic" and yes) or (change.action == "ask" and change.kind in accepted)
    ]


def _ask(changes: Sequence[Change], asked: Sequence[ReviewQuestion], accepted: Sequence[str]) -> list[Change]:
    """Return the changes that a person wants: the automatic ones together, the others by question or one by one."""
    from cnllm.registry_files.updates.review import KIND_TITLES, count, value_text

    automatic = [change for change in changes if change.action == "automatic"]
    chosen: list[Change] = []
    if automatic and questions.choose(f"Make {count(len(automatic), 'change')} that need no decision?", "yn") == "y":
        chosen += automatic
    for one in asked:
        if one.kind in accepted:
            chosen += one.changes
            continue
        title = f"{KIND_TITLES[one.kind]} ({one.cause})"
        letter = questions.choose(f"{title}: take none of {len(one.changes)}, all, or one by one?", "nao")
        if letter == "a":
            chosen += one.changes
        for change in one.changes if letter == "o" else ():
            values = f"{value_text(change.ours)} → {value_text(change.theirs)}"
            if questions.choose(f"{change.model} {change.flag}: {values}?", "ny") == "y":
                chosen.append(change)
    return chosen


def _report(
    changes: Sequence[Change], question_count: int, chosen: Sequence[Change], path: str, *, is_dry: bool
) -> None:
    """Print what was written, and what waits for a decision."""
    from cnllm.registry_files.updates.review import count

    if chosen:
        stdio.print_line(f"{count(len(chosen), 'change')} written to {path}; to undo: cnllm registry rollback updates")
    written = set(map(id, chosen))
    rest = [change for change in changes if id(change) not in written]
    ready, open_ones = (sum(change.action == action for change in rest) for action in ("automatic", "ask"))
    if ready and not is_dry:
        stdio.print_line(f"{count(ready, 'change')} not made: --yes makes them")
    if open_ones and not is_dry:
        stdio.print_line(
            f"{count(open_ones, 'change')} left for your decision, {count(question_count, 'question')}: on a terminal, "
            "or with --accept KIND"
        )
    if kept := sum(change.action == "kept" for change in changes):
        stdio.print_line(
            f"{count(kept, 'value')} here stay: their source was read later than the lists; --json has them"
        )
    if not changes:
        stdio.print_line("nothing differs")
