"""Define `cnllm registry`: the files that describe how each endpoint behaves."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from cnllm.cli import completion, download, options, questions
from cnllm.cli.commands.registry_export import export
from cnllm.cli.commands.registry_set import set_command, why
from cnllm.cli.option_types import file, flag, repeated
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.cli.output.format import count
from cnllm.cli.output.table import table
from cnllm.registry import trusted_files
from cnllm.registry.data_layer import is_outdated
from cnllm.registry.files import RELEASE, UPDATES
from cnllm.registry.merge import flatten
from cnllm.registry.read import overlay_paths

if TYPE_CHECKING:
    from cnllm.registry_files.public_lists import PublicList
    from cnllm.registry_files.updates.changes import Change
    from cnllm.registry_files.updates.release import Release
    from cnllm.registry_files.updates.review import ReviewQuestion

__all__ = ["registry"]


@click.group(cls=options.Group)
def registry() -> None:
    """Check, find and refresh the files that describe endpoints."""


registry.add_command(set_command)
registry.add_command(why)
registry.add_command(export)


@registry.command()
@click.argument("files", nargs=-1, type=click.Path())
@click.option("--older", metavar="DAYS", type=click.IntRange(min=0), help="List sources read more than DAYS ago.")
@flag("--unbacked", help="List flags without a source.")
@file("--against", help="Compare limits, prices and capabilities with a public FILE.")
@options.as_json("an array of faults, or of what is listed,")
def check(files: tuple[str, ...], older: int | None, *, unbacked: bool, against: str | None, as_json: bool) -> int:
    """Check the files in use, or FILEs on top of the built-in one.

    The exit status is 0 if there is no fault, else 2. A flag without a source, an old source and a disagreement are
    counted, but are not faults. FILE is api.json of models.dev or model_prices_and_context_window.json of litellm.

    Examples:
      cnllm registry check
      cnllm registry check ~/.config/cnllm/providers.toml
      cnllm registry check --older 90
      cnllm registry check --against api.json
    """
    from cnllm.cli.output import registry_report
    from cnllm.registry_files import check as registry_check

    if (older is not None) + unbacked + (against is not None) > 1:
        raise errors.UsageError("--older, --unbacked and --against list different things", "give one of them")
    paths = list(files) or None
    problems = registry_check.check(paths)
    fault_count = sum(problem.severity == "error" for problem in problems)
    if fault_count:
        registry_report.print_faults(problems, as_json=as_json)
    elif older is not None:
        registry_report.print_old_sources(paths, older, as_json=as_json)
    elif unbacked:
        registry_report.print_unsourced(paths, as_json=as_json)
    elif against is not None:
        registry_report.print_comparison(paths, against, as_json=as_json)
    else:
        registry_report.print_faults(problems, as_json=as_json)
        if not as_json:
            registry_report.print_counts(paths)
    return errors.WRONG if fault_count else errors.WHOLE


@registry.command()
@click.argument("files", nargs=-1, type=click.Path())
@flag("--check", "is_check", help="Name the lines that are written otherwise, and change nothing.")
def fmt(files: tuple[str, ...], *, is_check: bool) -> int:
    """Give FILES, or your own registry files, their form: keys in order and in columns, blank lines, contents.

    No value and no comment changes. The exit status of --check is 0 if the files have their form, else 2.

    Examples:
      cnllm registry fmt
      cnllm registry fmt --check providers.toml
    """
    from cnllm.cli.output import registry_report

    paths = list(files) or [str(path) for path in overlay_paths()]
    if not paths:
        raise errors.UsageError("there is no registry file of yours", "name a FILE")
    line_count = registry_report.print_forms(paths, write=not is_check)
    return errors.WRONG if is_check and line_count else errors.WHOLE


@registry.command()
def schema() -> None:
    """Print the JSON Schema of a registry file, for completion and help in editors.

    Example:
      cnllm registry schema > providers.schema.json
    """
    from cnllm.registry_files.schema import json_schema

    stdout.print_line(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@registry.command()
@options.as_json("an array")
def path(*, as_json: bool) -> None:
    """Print the files in use, later ones over earlier; the first comes with cnllm.

    The version of the data goes to stderr.

    Example:
      $EDITOR $(cnllm registry path | tail -1)
    """
    from cnllm.registry import Registry

    registry = Registry.load()
    if as_json:
        stdout.print_json(registry.files)
        return
    for name in registry.files:
        stdout.print_path(name)
    stdio.print_line(f"version of the data: {registry.version}")
    for document in registry.documents:
        if document.is_data and is_outdated(document):
            stdio.print_line(
                f"{document.label} is not used: it was made for an older cnllm, and this one's data are newer"
            )


@registry.command()
@click.argument("file", type=click.Path())
def trust(file: str) -> None:
    """Let FILE, as it is now, send your keys to the addresses it names. Read it first.

    Example:
      cnllm registry trust ./team.toml
    """
    trusted_files.trust(file)
    stdio.print_line(f"{terminal.escape(file)} may name the addresses that keys go to, until it changes")


_ASKED = ("limits", "price", "price-jump", "input", "status", "reasoning")


@registry.command()
@repeated(
    "--from",
    "sources",
    metavar="LIST",
    required=True,
    help="models.dev or litellm (downloaded), or a FILE or URL of one of them. Repeatable.",
)
@flag("--dry-run", help="Show the changes and write nothing.")
@flag("--yes", help="Make the changes that need no decision, without a question.")
@repeated(
    "--accept",
    "accepted",
    type=click.Choice(_ASKED),
    help="Decide for all changes of this kind that need a decision. Repeatable.",
)
@file("--changelog", type=click.Path(dir_okay=False), help="Put what was changed on top of FILE, in words.")
@options.as_json("an array of changes")
def update(sources: tuple[str, ...], changelog: str | None, *, dry_run: bool, as_json: bool, **consent: Any) -> None:
    """Compare the registry with public lists, and write the changes to a file between it and your own file.

    New models change without a question; so do limits, prices and kinds of input where both lists say the same. What
    was read later than the lists stays. The rest is your decision, what matters most first, with one answer for all
    that has one cause: what one list says alone, status, reasoning, and prices that become zero, three times as high or
    less than a third. Addresses, ids, keys, headers and everything else that moves a call never change. Your own file
    stays as it is, and wins. In a pipe nothing is written without --yes.

    Examples:
      cnllm registry update --from models.dev --from litellm
      cnllm registry update --from api.json --dry-run
      cnllm registry update --from models.dev --from litellm --yes --accept limits
      cnllm registry update --from models.dev --from litellm --changelog data-changes.md
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
    reviews = questions_of(changes, lists)
    if not as_json:
        registry_changes.print_changes(changes, reviews)
    chosen: list[Change] = []
    if not dry_run:
        asks = not (consent["yes"] or as_json) and questions.can_ask()
        chosen = _choose(changes, reviews, **consent, asks=asks)
    path = write_updates(registry, chosen, lists) if chosen else None
    if chosen and changelog is not None:
        add_to_changelog(changelog, change_lines(chosen, lists), _today())
    if as_json:
        written = set(map(id, chosen))
        stdout.print_json([replace(change, applied=id(change) in written) for change in changes])
    _report(changes, len(reviews), chosen, str(path), is_dry=dry_run)


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def _read_list(source: str) -> PublicList:
    """Return the list with a name, at a URL, or in a file."""
    from cnllm.registry_files import public_lists

    url = public_lists.LIST_URLS.get(source, source)
    if not download.is_url(url):
        hint = f"name {', '.join(public_lists.LIST_URLS)}, a file or a URL"
        return public_lists.list_from_file(Path(source), hint)
    name, models = public_lists.published_models(download.download(url, public_lists.MAX_BYTES), url)
    return public_lists.PublicList(name, url, _today(), models)


def _choose(
    changes: Sequence[Change], reviews: Sequence[ReviewQuestion], accepted: Sequence[str], *, yes: bool, asks: bool
) -> list[Change]:
    """Return the changes to make: the automatic ones together, the others by question or one by one.

    Without `asks` nobody is asked. `yes` and the kinds that are `accepted` need no answer.
    """
    from cnllm.registry_files.updates.review import KIND_TITLES, value_text

    automatic = [change for change in changes if change.action == "automatic"]
    question = f"Make {count(len(automatic), 'change')} that need no decision?"
    chosen = automatic if yes or (asks and automatic and questions.choose(question, "yn") == "y") else []
    for one in reviews:
        letter = "a" if one.kind in accepted else "n"
        if asks and letter == "n":
            title = f"{KIND_TITLES[one.kind]} ({one.cause})"
            letter = questions.choose(f"{title}: take none of {len(one.changes)}, all, or one by one?", "nao")
        for change in one.changes if letter != "n" else ():
            values = f"{value_text(change.ours)} → {value_text(change.theirs)}"
            if letter == "a" or questions.choose(f"{change.model} {change.flag}: {values}?", "ny") == "y":
                chosen.append(change)
    return chosen


def _report(
    changes: Sequence[Change], question_count: int, chosen: Sequence[Change], path: str, *, is_dry: bool
) -> None:
    """Print what was written, and what waits for a decision."""
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
    if number := sum(change.action == "kept" for change in changes):
        stdio.print_line(
            f"{count(number, 'value')} here stay: their source was read later than the lists; --json has them"
        )
    if not changes:
        stdio.print_line("nothing differs")


# ── data releases ────────────────────────────────────────────────────────────


@registry.command()
@click.argument("source", metavar="FILE|URL", shell_complete=completion.complete_files)
@flag("--dry-run", help="Check the release, show the changes, and write nothing.")
@flag("--yes", help="Install it without a question.")
def upgrade(source: str, *, dry_run: bool, yes: bool) -> None:
    """Install a data release: limits, prices, kinds of input, status and reasoning, signed by a maintainer.

    A release for an older cnllm, one that is not newer than the present one, and one with anything else in it are
    refused. This version of cnllm has no maintainer's key yet, so it refuses every release.

    Example:
      cnllm registry upgrade ./release.toml --dry-run
    """
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


@registry.command()
@click.argument("what", type=click.Choice(["updates", "release"]))
def rollback(what: str) -> None:
    """Undo the last `registry update` or `registry upgrade`: bring the file from before it back.

    Example:
      cnllm registry rollback updates
    """
    from cnllm.registry_files.updates.data_store import restore_data_file

    path = restore_data_file(UPDATES if what == "updates" else RELEASE)
    stdio.print_line(f"{terminal.escape(str(path))} is again as it was before")


def _content(source: str, most: int) -> bytes:
    """Return the content of a file, or of a URL."""
    if download.is_url(source):
        return download.download(source, most)
    return errors.read_file(source, f"{source} cannot be read", "name a data release", most)


def _print_release(release: Release) -> None:
    """Print what the release changes."""
    from cnllm.registry import Registry
    from cnllm.registry_files.updates.review import value_text

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
        stdout.print_line(table(("MODEL", "FLAG", "NOW", "RELEASE"), rows))
    stdio.print_line(f"release {release.version}, signed with the key {release.key}: {count(len(rows), 'change')}")
