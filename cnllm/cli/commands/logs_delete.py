"""Define `cnllm logs delete`: remove conversations from the log."""

from __future__ import annotations

import sys

import click

from cnllm.cli import completion, options
from cnllm.cli.language.messages import translate
from cnllm.cli.output import errors, stdio
from cnllm.cli.since import utc_time

__all__ = ["delete"]


@click.command(
    cls=options.Command,
    epilog=options.examples("cnllm logs delete 3f2a", "cnllm logs delete --before 90", "cnllm logs delete --all --yes"),
)
@click.argument("idents", metavar="[ID]...", nargs=-1, shell_complete=completion.complete_conversations)
@click.option("--before", metavar="DATE|DAYS", help="Those without a turn since 2026-01-31, or in DAYS days.")
@click.option("--all", "everything", is_flag=True, help="All conversations.")
@click.option("--yes", is_flag=True, help="Do not ask. --before and --all need it where there is no terminal.")
def delete(idents: tuple[str, ...], before: str | None, *, everything: bool, yes: bool) -> None:
    """Delete conversations with their requests and responses. This cannot be undone.

    ID may be the beginning of an id, or last. The file keeps none of the deleted bytes.
    """
    from cnllm.store import Store

    if bool(idents) + (before is not None) + everything != 1:
        raise errors.UsageError("name conversations, or give --before or --all", "cnllm logs list shows their ids")
    with Store.open() as store:
        if idents:
            ids = list(dict.fromkeys(store.conversation(ident, with_calls=True).id for ident in idents))
        else:
            ids = store.ids() if before is None else store.ids_before(utc_time(before, "--before"))
        if not ids:
            stdio.print_line("there is no such conversation")
            return
        count = f"{len(ids)} conversation{'' if len(ids) == 1 else 's'}"
        if not idents and not yes and not _confirm(count):
            stdio.print_line("nothing is deleted")
            return
        turns = store.delete(ids)
    stdio.print_line(f"deleted: {count}, {turns} turn{'' if turns == 1 else 's'}")


def _confirm(count: str) -> bool:
    if not sys.stdin.isatty():
        raise errors.UsageError(f"{count} would be deleted", "add --yes to delete them")
    stdio.write_text(translate(f"Delete {count}? [y/N] "))
    return sys.stdin.readline().strip().lower() in ("y", "yes")
