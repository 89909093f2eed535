"""Render the page of `cnllm models matrix`: a table that works without its script, and the facts for the script.

All text from a registry file goes through `_text` (into markup) or `_json` (into the block of data).
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.cli.commands.models.matrix_script import SCRIPT
from cnllm.cli.commands.models.matrix_style import STYLE
from cnllm.cli.output import terminal
from cnllm.cli.output.flag_table import shown_value
from cnllm.cli.output.format import format_amount
from cnllm.registry.capabilities import KINDS, capabilities

if TYPE_CHECKING:
    from cnllm.registry.model import Fact, Model

__all__ = ["render_page"]

MARKS = {True: ("y", "✓", "yes"), False: ("n", "✕", "no"), None: ("u", "?", "unknown")}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"
_MAX_VALUE = 160


class Column(Struct, frozen=True):
    """A column: its name, its group, and its explanation."""

    name: str
    group: str
    says: str


NUMBERS = (
    Column("context", "Tokens", "tokens that fit into the window, input and output together"),
    Column("output", "Tokens", "the most tokens of one reply"),
    Column("in", "Price per million", "what a million input tokens cost"),
    Column("out", "Price per million", "what a million output tokens cost"),
)
FLAGS = ("limits.context", "limits.output", "price.input", "price.output")
ABILITIES = tuple(Column(kind.name, kind.group, kind.says) for kind in KINDS.values())
COLUMNS = (*ABILITIES, *NUMBERS)


def render_page(models: Sequence[Model], short: dict[str, list[str]]) -> str:
    """Return the whole page as HTML."""
    facts = _Facts()
    lines = [_row(model, short.get(model.name, []), facts) for model in models]
    columns = [{"name": c.name, "says": c.says} for c in (Column("model", "", "who answers"), *COLUMNS)]
    data = {"columns": columns, "facts": facts.facts, "sources": facts.sources}
    providers = sorted({model.provider for model in models})
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_text(_POLICY)}">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            "<title>Models and what they can do</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            *_head(providers, len(models)),
            '<div class="scroll" id="scroll" role="region" aria-label="Models and what they can do">',
            '<table id="matrix" role="grid">',
            *_heads(),
            "<tbody>",
            *lines,
            "</tbody>",
            "</table>",
            '<p id="none" hidden>No model has all of that.</p>',
            "</div>",
            '<aside id="card" aria-live="polite" hidden></aside>',
            f'<script type="application/json" id="data">{_json(data)}</script>',
            f"<script>{SCRIPT}</script>",
            "</body>",
            "</html>",
        ]
    )


# ── above the table ──────────────────────────────────────────────────────────
def _head(providers: Sequence[str], count: int) -> Iterator[str]:
    yield "<header>"
    yield f'<h1>Models <span id="count" role="status">{count}</span></h1>'
    yield (
        '<p class="legend">'
        + " ".join(
            f'<span><b class="{mark}" aria-hidden="true">{sign}</b> {word}</span>'
            for mark, sign, word in MARKS.values()
        )
        + "</p>"
    )
    yield '<form id="filters">'
    yield '<input type="search" id="text" placeholder="Search models" aria-label="Model, short name or provider"'
    yield ' autocomplete="off" spellcheck="false">'
    yield '<select id="provider" aria-label="Provider"><option value="">Provider</option>'
    yield from (f'<option value="{_text(name)}">{_text(name)}</option>' for name in providers)
    yield "</select>"
    yield '<details id="more"><summary>Can<span id="wanted"></span></summary><div class="panel">'
    for group, columns in _groups(ABILITIES):
        yield f"<fieldset><legend>{_text(group)}</legend>"
        yield from (
            f'<label title="{_text(c.says)}"><input type="checkbox" name="can" value="{_text(c.name)}">'
            f"<span>{_text(c.name)}</span></label>"
            for c in columns
        )
        yield "</fieldset>"
    yield '<fieldset><legend>Also</legend><label><input type="checkbox" id="maybe"><span>where it is unknown</span>'
    yield '</label><label><input type="checkbox" id="current"><span>without the retired</span></label></fieldset>'
    yield '</div></details><button type="reset" id="reset" aria-label="Clear" title="Clear" hidden>✕</button>'
    yield "</form>"
    yield "<noscript><p>Filters, sorting and sources need JavaScript.</p></noscript>"
    yield "</header>"


def _heads() -> Iterator[str]:
    yield '<thead><tr class="groups"><th rowspan="2" scope="col" class="first" data-c="0">' + _sorter("model") + "</th>"
    for group, columns in _groups(COLUMNS):
        yield f'<th colspan="{len(columns)}" scope="colgroup" class="start"><span>{_text(group)}</span></th>'
    yield '</tr><tr class="names">'
    number = 0
    for _, columns in _groups(COLUMNS):
        for index, column in enumerate(columns):
            number += 1
            classes = [*(["start"] if index == 0 else []), "number" if column in NUMBERS else "ability"]
            yield f'<th scope="col" class="{" ".join(classes)}" data-c="{number}">{_sorter(column.name)}</th>'
    yield "</tr></thead>"


def _sorter(name: str) -> str:
    return f'<button type="button" tabindex="-1"><span>{_text(name)}</span></button>'


def _groups(columns: Sequence[Column]) -> list[tuple[str, list[Column]]]:
    names = dict.fromkeys(column.group for column in columns)
    return [(name, [column for column in columns if column.group == name]) for name in names]


# ── the table ────────────────────────────────────────────────────────────────
class _Facts:
    """The facts behind the cells and their sources, each stored once. A cell refers to its fact by number."""

    def __init__(self) -> None:
        self.facts: list[list[Any]] = []
        self.sources: list[list[str]] = []
        self._places: dict[Any, int] = {}

    def add(self, fact: Fact) -> int:
        """Return the number of a fact; store it if it is new."""
        source = (fact.source or "", fact.seen or "", fact.how or "")
        row = (fact.flag, shown_value(fact)[:_MAX_VALUE], fact.layer, fact.where, self._number(source, self.sources))
        return self._number(row, self.facts)

    def _number(self, item: tuple[Any, ...], items: list[list[Any]]) -> int:
        if item not in self._places:
            self._places[item] = len(items)
            items.append([terminal.escape(part) if isinstance(part, str) else part for part in item])
        return self._places[item]


def _row(model: Model, short: Sequence[str], facts: _Facts) -> str:
    flags, status = model.flags, model.flags.status
    state = status.is_ if status and status.is_ not in (None, "current") else ""
    since = f" since {status.since}" if status and status.since else ""
    use = f", use {status.use}" if status and status.use else ""
    details = [flags.title or "", f"also {', '.join(short)}" if short else "", f"{state}{since}{use}" if state else ""]
    search = " ".join([model.name, *short, flags.title or ""]).casefold()
    badge = f' <em class="{_text(state)}">{_text(state)}</em>' if state else ""
    head = (
        f'<th scope="row" data-note="{_text(" · ".join(filter(None, details)))}">'
        f"<b>{_text(model.id)}</b>{badge}<small>{_text(model.provider)}</small></th>"
    )
    explained = {fact.flag: fact for fact in model.explain()}
    cells = [*_abilities(model, explained.values(), facts), *_numbers(model, explained, facts)]
    row = f'<tr data-p="{_text(model.provider)}" data-k="{_text(search)}" data-r="{int(state == "retired")}">'
    return f"{row}{head}{''.join(cells)}</tr>"


def _numbers(model: Model, explained: dict[str, Fact], facts: _Facts) -> Iterator[str]:
    limits, price = model.flags.limits, model.flags.price
    currency = (price.currency if price else None) or ""
    values = (
        limits.context if limits else None,
        limits.output if limits else None,
        price.input if price else None,
        price.output if price else None,
    )
    for index, (flag, value) in enumerate(zip(FLAGS, values, strict=True)):
        start = " start" if index in (0, 2) else ""
        if value is None:
            yield f'<td class="number u{start}">{MARKS[None][1]}</td>'
            continue
        money = flag.startswith("price")
        amount = format_amount(value) if money else f"{value:,}"
        unit = f" <small>{_text(currency)}</small>" if money and currency else ""
        fact = f' data-f="{facts.add(explained[flag])}"' if flag in explained else ""
        sorting = f'data-v="{value!r}" data-u="{_text(currency) if money else ""}"'
        yield f'<td class="number{start}" {sorting}{fact}>{amount}{unit}</td>'


def _abilities(model: Model, explained: Iterable[Fact], facts: _Facts) -> Iterator[str]:
    group = ""
    for name, capability in capabilities(model, explained).items():
        mark, sign, word = MARKS[capability.value]
        start = "" if group == KINDS[name].group else " start"
        group = KINDS[name].group
        fact = f' data-f="{facts.add(capability.fact)}"' if capability.fact is not None else ""
        yield f'<td class="{mark}{start}" aria-label="{word}"{fact}>{sign}</td>'


# ── into the page ────────────────────────────────────────────────────────────
def _text(text: str) -> str:
    """Escape text for markup, or for the value of an attribute in quotes."""
    return html.escape(terminal.escape(text).replace("\n", " "), quote=True)


def _json(data: Any) -> str:
    """Return JSON that can neither end a script nor begin a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
