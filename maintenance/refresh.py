"""Write what public lists agree on into `providers.toml`, as `cnllm registry set` would, and report the rest.

    python -m maintenance.refresh api-2026-09-30.json litellm.json --file providers.toml --report changes.md

A list is models.dev's api.json or LiteLLM's model_prices_and_context_window.json. Only values that need no decision are
written: limits, prices and kinds of input on which both lists agree. The report has these first, then addresses that
have moved, which move calls and keys, and then the questions. A person reads all of it.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Sequence
from pathlib import Path

from cnllm.errors import RegistryError
from cnllm.registry import Registry
from cnllm.registry_files.public_lists import PublicList, published_models
from cnllm.registry_files.set_values import Reading, set_facts
from cnllm.registry_files.updates.changes import Change, find_changes

__all__ = ["apply", "report"]

_URLS = {
    "models.dev": "https://models.dev/api.json",
    "litellm": "https://github.com/BerriAI/litellm/blob/main/model_prices_and_context_window.json",
}


def read_list(path: Path, day: datetime.date) -> PublicList:
    """Read one list. Raises `CnllmError` for a file of another form."""
    name, models = published_models(path.read_bytes(), str(path))
    return PublicList(name, _URLS[name], day, models)


def apply(text: str, changes: Sequence[Change], lists: Sequence[PublicList]) -> tuple[str, list[Change], list[Change]]:
    """Return the text with the changes that need no decision, these changes, and those that cannot be written."""
    sources = {one.name: Reading(one.url, one.seen) for one in lists}
    written: list[Change] = []
    failed: list[Change] = []
    for change in changes:
        if change.action != "automatic" or not change.flag:
            continue
        try:
            reading = sources[change.lists[0]]
            text = set_facts(text, ["models", change.model], {change.flag: change.theirs}, reading, "providers.toml")
        except RegistryError:
            failed.append(change)
        else:
            written.append(change)
    return text, written, failed


def report(written: Sequence[Change], failed: Sequence[Change], changes: Sequence[Change]) -> str:
    """Return the report for people, in Markdown."""
    done = set(map(id, written))
    rest = [change for change in changes if id(change) not in done and change.action != "corrected"]
    moved = [change for change in rest if change.kind == "moved"]
    stuck = set(map(id, failed))
    new = [change for change in rest if change.kind == "new"]
    asks = [change for change in rest if change.kind not in ("moved", "new") and id(change) not in stuck]
    parts = [
        ("Written, because both lists say so", written),
        ("Addresses that have moved: calls and keys would go there. Nothing of it is written", moved),
        ("To be written by hand", failed),
        ("Questions", asks),
        ("Models that are new", new),
    ]
    return "\n\n".join(["# What public lists say", *(_section(title, found) for title, found in parts)]) + "\n"


def _section(title: str, changes: Sequence[Change]) -> str:
    if not changes:
        return f"## {title}\n\nNone."
    rows = [
        f"| `{each.model}` | {each.flag and f'`{each.flag}`'} | {_value(each.ours)} | {_value(each.theirs)} "
        f"| {', '.join(each.lists)} | {each.kind}, {each.action} |"
        for each in changes
    ]
    head = "| model | flag | ours | theirs | lists | kind |\n|---|---|---|---|---|---|"
    return "\n".join([f"## {title}\n", head, *rows])


def _value(value: object) -> str:
    text = "" if value is None else json.dumps(value, ensure_ascii=False, default=str).replace("|", "\\|")
    return f"`{text}`" if text else ""


def main() -> None:
    """Change the file, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="+", type=Path)
    parser.add_argument("--file", type=Path, default=Path("providers.toml"))
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--day", type=datetime.date.fromisoformat, default=datetime.date.today())
    options = parser.parse_args()
    lists = [read_list(path, options.day) for path in options.lists]
    changes = find_changes(Registry.load(), lists)
    text, written, failed = apply(options.file.read_text(encoding="utf-8"), changes, lists)
    options.file.write_text(text, encoding="utf-8", newline="\n")
    options.report.write_text(report(written, failed, changes), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
