"""Define `cnllm registry upgrade` and `rollback`: install a signed data release, and bring earlier data back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import options
from cnllm.cli.output import stdio, terminal
from cnllm.config.bounded_files import read_bounded

if TYPE_CHECKING:
    from cnllm.registry_files.updates.release import Release

__all__ = ["rollback", "upgrade"]


@click.command(epilog=options.examples("cnllm registry upgrade ./release.toml --dry-run"))
@click.argument("source", metavar="FILE|URL")
@click.option("--dry-run", is_flag=True, help="Check the release, show the changes, and write nothing.")
@click.option("--yes", is_flag=True, help="Install it without a question.")
def upgrade(source: str, *, dry_run: bool, yes: bool) -> None:
    """Install a data release: limits, prices, kinds of input, status and reasoning, signed by a maintainer.

    A release for an older cnllm, one that is not newer than the present one, and one with anything else in it are
    refused. This version of cnllm has no maintainer's key yet, so it refuses every release.
    """
    from cnllm.cli import questions
    from cnllm.cli.output import errors
    from cnllm.registry_files.updates import release as releases

    keys = releases.shipped_keys()
    releases.require_keys(keys)
    release = releases.check_release(_content(source, releases.MAX_BYTES), source, keys)
    _print_release(release)
    if dry_run:
        return
    if not yes:
        if not questions.can_ask():
            raise errors.UsageError("nothing is installed in a pipe without --yes")
        if questions.choose("Install it?", "ny") == "n":
            return
    path = releases.install_release(release)
    stdio.print_line(f"release {release.version} is in {path}; to undo: cnllm registry rollback release")


@click.command(epilog=options.examples("cnllm registry rollback updates"))
@click.argument("what", type=click.Choice(["updates", "release"]))
def rollback(what: str) -> None:
    """Undo the last `registry update` or `registry upgrade`: bring the file from before it back."""
    from cnllm.registry.files import RELEASE, UPDATES
    from cnllm.registry_files.updates.data_store import restore_data_file

    path = restore_data_file(UPDATES if what == "updates" else RELEASE)
    stdio.print_line(f"{terminal.escape(str(path))} is again as it was before")


def _content(source: str, most: int) -> bytes:
    """Return the content of a file, or of a URL."""
    from cnllm.cli import download
    from cnllm.cli.output import errors

    if download.is_url(source):
        return download.download(source, most)
    try:
        return read_bounded(source, most)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise errors.UsageError(f"{source} cannot be read: {reason}", "name a data release") from error


def _print_release(release: Release) -> None:
    """Print what the release changes."""
    from cnllm.cli.output import answer
    from cnllm.cli.output.registry_changes import count, value_text
    from cnllm.cli.output.table import table
    from cnllm.registry import Registry
    from cnllm.registry.merge import flatten

    registry = Registry.load()
    known = set(registry.names(catalogue=True))
    rows: list[tuple[str, str, str, str]] = []
    for name, data in release.document.data.get("models", {}).items():
        facts: dict[str, Any] = {}
        if name in known:
            facts = {fact.flag: fact.value for fact in registry.resolve(name).explain()}
        for keys, value in flatten({key: item for key, item in data.items() if key != "sources"}):
            flag = ".".join(keys)
            if facts.get(flag) != value:
                rows.append((name, flag, value_text(facts.get(flag)), value_text(value)))
    if rows:
        answer.print_line(table(("MODEL", "FLAG", "NOW", "RELEASE"), rows))
    stdio.print_line(f"release {release.version}, signed with the key {release.key}: {count(len(rows), 'change')}")
