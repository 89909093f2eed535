"""Put the matrix page together: markup, style, texts, scripts and data in one file.

What a registry file says reaches the page as data only: escaped in the markup, or in blocks that no browser runs. The
script writes it as text, and follows no link but http and https.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from importlib import resources
from typing import TYPE_CHECKING, Any

from cnllm.cli.matrix.details import DetailData
from cnllm.cli.matrix.rows import ListData, PageEntry
from cnllm.model_facts.capabilities import capabilities
from cnllm.model_facts.known_issues import known_issues
from cnllm.model_facts.summary import short_names

if TYPE_CHECKING:
    from cnllm.registry import Registry

__all__ = ["render_page"]

SCRIPTS = ("data.js", "words.js", "list.js", "model.js", "compare.js", "main.js")
"""The scripts, in the order in which they stand in the page: they share one scope."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def render_page(registry: Registry, *, manual: str = "") -> str:
    """Return the page of every model of a registry as HTML.

    `manual` is the address of the manual, "" for no link; the Chinese manual is in the folder zh beside the page.
    """
    short = short_names(registry.aliases)
    rows, details = ListData(), DetailData()
    for name in registry.names():
        model = registry.resolve(name)
        explained = model.explain()
        entry = PageEntry(
            model, explained, capabilities(model, explained), known_issues(model, explained), short.get(model.name, ())
        )
        rows.add(entry)
        details.add(entry)
    order = rows.newest_first()
    models, vendors = rows.current()
    counts = {"all": len(order), "providers": len(registry.providers), "models": models, "vendors": vendors}
    values = _head(counts, details.last_seen(), registry.version)
    values |= {"style": _read("style.css"), "policy": html.escape(_POLICY), "script": _script()}
    address = html.escape(manual)
    values["manual"] = f'<a href="{address}" data-t="manual" data-zh="zh/{address}">Manual</a>' if manual else ""
    values["list"] = _json(rows.data(order))
    values["texts"] = _json(json.loads(_read("texts.json")))
    values["details"] = _packed(details.data(order))
    first, *rest = _read("page.html").split("{{")
    return first + "".join(values[name] + text for name, _, text in (part.partition("}}") for part in rest))


def _head(counts: dict[str, int], seen: str, version: str) -> dict[str, str]:
    """Return the sentences above the list in English, and the values in them, from which the script writes others."""
    texts = json.loads(_read("texts.json"))["en"]
    stamp = {"date": seen, "version": version}
    return {
        "counts": html.escape(json.dumps(counts)),
        "lead": html.escape(texts["lead"].format(**{name: f"{count:,}" for name, count in counts.items()})),
        "stamp_values": html.escape(json.dumps(stamp)),
        "stamp": html.escape(texts["stamp"].format(**stamp)),
    }


def _script() -> str:
    """Return the scripts in one scope of their own."""
    return '(() => {\n"use strict";\n' + "\n".join(map(_read, SCRIPTS)) + "})();\n"


def _read(name: str) -> str:
    """Return a file of this folder."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _json(data: Any) -> str:
    """Return JSON that can neither end a script nor begin a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _packed(data: Any) -> str:
    """Return data as compressed JSON in base 64."""
    return base64.b64encode(zlib.compress(_json(data).encode(), 9)).decode()
