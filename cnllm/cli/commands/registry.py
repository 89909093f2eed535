"""Define `cnllm registry`: the files that describe how each endpoint behaves."""

from __future__ import annotations

import click

from cnllm.cli import options
from cnllm.cli.commands.registry_release import rollback, upgrade
from cnllm.cli.commands.registry_update import update
from cnllm.cli.output import answer, errors, stdio, terminal

__all__ = ["registry"]


@click.group(cls=options.Group)
def registry() -> None:
    """Check, find and refresh the files that describe endpoints."""


for _command in (update, upgrade, rollback):
    registry.add_command(_command)


@registry.command(
    epilog=options.examples(
        "cnllm registry check",
        "cnllm registry check ~/.config/cnllm/providers.toml",
        "cnllm registry check --older 90",
        "cnllm registry check --against api.json",
    )
)
@click.argument("files", nargs=-1, type=click.Path())
@click.option("--older", metavar="DAYS", type=click.IntRange(min=0), help="List sources read more than DAYS ago.")
@click.option("--unbacked", is_flag=True, help="List flags without a source.")
@click.option(
    "--against", metavar="FILE", type=click.Path(), help="Compare limits, prices and capabilities with a public FILE."
)
@options.as_json("an array of faults, or of what is listed,")
def check(files: tuple[str, ...], older: int | None, *, unbacked: bool, against: str | None, as_json: bool) -> int:
    """Check the files in use, or FILEs on top of the built-in one.

    The exit status is 0 if there is no fault, else 2. A flag without a source, an old source and a disagreement are
    counted, but are not faults. FILE is api.json of models.dev or model_prices_and_context_window.json of litellm.
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


@registry.command(epilog=options.examples("cnllm registry fmt", "cnllm registry fmt --check providers.toml"))
@click.argument("files", nargs=-1, type=click.Path())
@click.option(
    "--check", "is_check", is_flag=True, help="Name the lines that are written otherwise, and change nothing."
)
def fmt(files: tuple[str, ...], *, is_check: bool) -> int:
    """Give FILES, or your own registry files, their form: keys in order and in columns, blank lines, contents.

    No value and no comment changes. The exit status of --check is 0 if the files have their form, else 2.
    """
    from cnllm.cli.output import registry_report
    from cnllm.registry.read import overlay_paths

    paths = list(files) or [str(path) for path in overlay_paths()]
    if not paths:
        raise errors.UsageError("there is no registry file of yours", "name a FILE")
    line_count = registry_report.print_forms(paths, write=not is_check)
    return errors.WRONG if is_check and line_count else errors.WHOLE


@registry.command(epilog=options.examples("cnllm registry schema > providers.schema.json"))
def schema() -> None:
    """Print the JSON Schema of a registry file, for completion and help in editors."""
    import json

    from cnllm.registry_files.schema import json_schema

    answer.print_line(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@registry.command(epilog=options.examples("$EDITOR $(cnllm registry path | tail -1)"))
@options.as_json("an array")
def path(*, as_json: bool) -> None:
    """Print the files in use, later ones over earlier; the first comes with cnllm.

    The version of the data goes to stderr.
    """
    from cnllm.registry import Registry
    from cnllm.registry.data_layer import is_outdated

    registry = Registry.load()
    if as_json:
        answer.print_json(registry.files)
        return
    answer.print_line("\n".join(registry.files))
    stdio.print_line(f"version of the data: {registry.version}")
    for document in registry.documents:
        if document.is_data and is_outdated(document):
            stdio.print_line(
                f"{document.label} is not used: it was made for an older cnllm, and this one's data are newer"
            )


@registry.command(epilog=options.examples("cnllm registry trust ./team.toml"))
@click.argument("file", type=click.Path())
def trust(file: str) -> None:
    """Let FILE, as it is now, send your keys to the addresses it names. Read it first."""
    from cnllm.registry import trusted_files

    trusted_files.trust(file)
    stdio.print_line(f"{terminal.escape(file)} may name the addresses that keys go to, until it changes")
