"""Write the registry's part of the site: a page for each wire, provider and model, with a JSON file beside each model.

Nothing of it is in the repository: the build of the manual writes it (see `conf.py`). Each fact leads to its source,
and to its line in a copy of the file that it stands in.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cnllm import Registry
from cnllm.cli.matrix.page import source_address
from cnllm.cli.output.flag_table import shown_value, source_label
from cnllm.registry.model import Fact
from cnllm.registry_export.document import (
    ExportDocument,
    build_document,
    document_schema,
    encode_document,
    value_reference,
)

__all__ = ["write_site"]

_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } td, th { border-bottom: 1px solid #8884; padding: .25rem .6rem; }
td, th { text-align: left; vertical-align: top; overflow-wrap: anywhere; } code, pre { font-size: .92em; }
td:first-child { min-width: 14rem; } pre a { color: inherit; text-decoration: none; } pre :target { background: #fd08; }
:root { color-scheme: light dark; } .retired { opacity: .6; }
"""
_MAX_VALUE = 240
_EXAMPLE = "unlisted"  # an id that no provider has: it gets what the provider says of every model


def write_site(registry: Registry, folder: Path) -> int:
    """Write the pages into a folder, and return their number. `matrix.html` and the manual are beside the folder."""
    document = build_document(registry)
    site = _Site(folder, {one.label for one in registry.documents})
    site.write("style.css", _STYLE)
    site.write("registry.json", encode_document(document).decode())
    site.write("registry-export.schema.json", json.dumps(document_schema(), indent=1, ensure_ascii=False))
    for name, text in document.licenses.items():
        site.write(name, text)
    for one in registry.documents:
        site.page(f"{one.label}.html", one.label, [_source_page(one.source)])
    rows: dict[str, list[list[str]]] = {name: [] for name in document.providers}
    for wire in document.wires:
        rows[wire] = []
    for name, entry in document.models.items():
        model = registry.resolve(name)
        facts = model.explain()
        path = f"{entry.provider}/{entry.id}"
        own = [fact for fact in facts if not _is_of_wire(fact)]
        unknown = _unknown(document, facts)
        site.write(f"{path}.json", _model_json(document, name, facts, unknown))
        status = f" ({entry.status})" if entry.status in ("retired", "preview") else ""
        about = [
            f"<p>{_link(path, f'{entry.provider}/index.html', entry.provider)} over "
            f"{_link(path, f'wires/{entry.wire}.html', entry.wire)}{status}. "
            f"{_link(path, f'{path}.json', 'JSON')}. What it can do, and its known issues: "
            f'<a href="{_up(path)}../matrix.html#model={quote(name)}">the matrix</a>.</p>'
        ]
        site.page(f"{path}.html", name, [*about, *site.known(path, own), *_unknown_part(unknown)])
        limits = [str(fact.value) for fact in own if fact.flag == "limits.context"]
        row = [_link(entry.provider + "/x", f"{path}.html", entry.id), *(limits or ["unknown"]), entry.status]
        rows[entry.provider].append([*row, str(len(own)), str(len(unknown))])
    for name, provider in document.providers.items():
        facts = registry.resolve(f"{name}/{_EXAMPLE}").explain()
        path = f"{name}/index"
        wires = ", ".join(_link(path, f"wires/{wire}.html", wire) for wire in provider.wires)
        table = _table(("model", "context", "status", "known", "unknown"), rows[name])
        own = [fact for fact in facts if not _is_of_wire(fact)]
        parts = [f"<p>Wires: {wires}.</p>", "<h2>Models</h2>", table, *site.known(path, own)]
        site.page(f"{path}.html", f"{provider.title} ({name})", [*parts, *_unknown_part(_unknown(document, facts))])
    for wire in document.wires:
        name = next(name for name, provider in document.providers.items() if wire in provider.wires)
        of_wire = [f for f in registry.resolve(f"{name}/{_EXAMPLE}", protocol=wire).explain() if _is_of_wire(f)]
        site.page(f"wires/{wire}.html", wire, site.known(f"wires/{wire}", of_wire))
    counts = {name: len(found) for name, found in rows.items()}
    listed = [[_link("index", f"{n}/index.html", n), html.escape(p.title), str(counts[n])] for n, p in
              document.providers.items()]  # fmt: skip
    current = {name: entry.provider for name, entry in document.models.items() if entry.status != "retired"}
    intro = (
        f"<p>{len(document.models):,} models and {len(document.providers)} providers; {len(current):,} models of "
        f"{len(set(current.values()))} providers are current. Here is what is known and unknown of each, every fact "
        f"with its source and its line. {_link('index', 'registry.json', 'All of it as JSON')}, with "
        f"{_link('index', 'registry-export.schema.json', 'a schema')}, {_link('index', 'LICENSE', 'the licence')} and "
        f"{_link('index', 'DATA_SOURCES.md', 'the sources')}. Version {html.escape(document.version)}.</p>"
    )
    site.page("index.html", "The registry", [intro, _table(("provider", "name", "models"), listed)])
    return site.count


class _Site:
    """The folder of the pages, and how they lead to lines of the files."""

    def __init__(self, folder: Path, labels: set[str]) -> None:
        self.folder = folder.resolve()
        self.labels = labels
        self.count = 0

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder."""
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder):
            raise ValueError(f"{name} leads out of the folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.count += 1

    def page(self, name: str, title: str, parts: Iterable[str]) -> None:
        """Write a page."""
        up = _up(name)
        head = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        head += (
            f'<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="{up}style.css"></head>'
        )
        menu = f'<nav><a href="{up}../index.html">Manual</a> · <a href="{up}index.html">Registry</a></nav>'
        self.write(
            name, "\n".join([head, f"<body>{menu}", f"<h1>{html.escape(title)}</h1>", *parts, "</body></html>\n"])
        )

    def known(self, path: str, facts: Iterable[Fact]) -> Iterator[str]:
        """Yield the table of the known facts."""
        rows = [
            [
                f"<code>{html.escape(fact.flag)}</code>",
                html.escape(shown_value(fact)[:_MAX_VALUE]),
                _source(fact),
                self._line(path, fact.where),
            ]
            for fact in facts
            if fact.value != "unknown"
        ]
        yield f"<h2>Known ({len(rows)})</h2>"
        yield _table(("flag", "value", "source", "line"), rows)

    def _line(self, path: str, where: str) -> str:
        label, _, line = where.rpartition(":")
        if label not in self.labels:
            return html.escape(where)
        return f'<a href="{_up(path)}{quote(label)}.html#L{line}">{html.escape(where)}</a>'


def _is_of_wire(fact: Fact) -> bool:
    """Whether a fact is that of a wire, or what holds where nobody has said anything."""
    return fact.layer == "defaults" or fact.layer.startswith("protocols.")


def _unknown(document: ExportDocument, facts: Iterable[Fact]) -> list[str]:
    """Return the flags of which nothing is known."""
    known = {fact.flag for fact in facts if fact.value != "unknown"}
    tables = {flag[:at] for flag in known for at, sign in enumerate(flag) if sign == "."}
    return sorted(document.flags.keys() - known - tables)


def _unknown_part(flags: list[str]) -> list[str]:
    names = ", ".join(f"<code>{html.escape(flag)}</code>" for flag in flags)
    return [f"<h2>Unknown ({len(flags)})</h2>", f"<p>{names}</p>"]


def _model_json(document: ExportDocument, name: str, facts: Iterable[Fact], unknown: list[str]) -> str:
    """Return all that is known of a model; a long value is a name in `values` of registry.json."""
    entry = document.models[name]
    made: dict[str, Any] = {"name": name, "wire": entry.wire, "family": entry.family, "status": entry.status}
    made |= {"version": document.version, "can": entry.can, "facts": {}, "unknown": unknown}
    for fact in facts:
        if fact.value == "unknown":
            continue
        reference = value_reference(document, fact.value)
        value = {"value": fact.value} if reference is None else {"ref": reference}
        how = fact.how or ("default" if fact.layer == "defaults" else "unknown")
        source = {"url": fact.source or "unknown", "seen": fact.seen or "unknown", "how": how}
        made["facts"][fact.flag] = {**value, **source, "line": fact.where}
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n"


def _source(fact: Fact) -> str:
    """Return the link to a source, with how and when it was read."""
    if fact.source is None:
        return "an assumption" if fact.layer == "defaults" else "unknown"
    address, label = source_address(fact.source), html.escape(source_label(fact))
    link = f'<a href="{html.escape(address)}">{label}</a>' if address else label
    return f"{link} ({html.escape(', '.join(filter(None, (fact.how, fact.seen))))})"


def _source_page(text: str) -> str:
    """Return the lines of a file, each with an anchor."""
    lines = (
        f'<a id="L{number}" href="#L{number}">{number:5}</a> {html.escape(line)}'
        for number, line in enumerate(text.split("\n"), 1)
    )
    return "<pre>" + "\n".join(lines) + "</pre>"


def _table(head: Iterable[str], rows: Iterable[list[str]]) -> str:
    """Return a table of cells in HTML."""
    lines = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join(["<table>", "<tr>" + "".join(f"<th>{name}</th>" for name in head) + "</tr>", *lines, "</table>"])


def _up(path: str) -> str:
    """Return the way from a page to the top of the folder."""
    return "../" * path.count("/")


def _link(path: str, target: str, text: str) -> str:
    """Return a link from a page to another one of the folder."""
    return f'<a href="{quote(os.path.relpath(target, os.path.dirname(path) or "."))}">{html.escape(text)}</a>'
