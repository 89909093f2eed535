"""Put the matrix page together: markup, style, texts, scripts and data in one file.

The list is one column of values for each field, with texts that occur often stored once. The page of a single model has
its facts with their sources, prices, and known issues.

What a registry file says reaches the page as data only: escaped in the markup, or in blocks that no browser runs. The
script writes it as text, and follows no link but http and https.
"""

from __future__ import annotations

import base64
import datetime
import html
import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.cli.language.messages import translate_issue, translate_to
from cnllm.cli.output import terminal
from cnllm.cli.output.flag_table import shown_value
from cnllm.model_facts.capabilities import KINDS, Capability, capabilities
from cnllm.model_facts.known_issues import known_issues
from cnllm.model_facts.summary import endpoint, levels, short_names

if TYPE_CHECKING:
    from cnllm.model_facts.known_issues import KnownIssue
    from cnllm.registry import Registry
    from cnllm.registry.model import Fact, Model

__all__ = [
    "render_page",
    "source_address",
]


SCRIPTS = ("data.js", "words.js", "list.js", "model.js", "compare.js", "main.js")
"""The scripts, in the order in which they stand in the page: they share one scope."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"

NUMBERS = ("status.released", "limits.context", "limits.input", "limits.output", "price.input", "price.output")
"""The flags that a model's page shows with their source, after the capabilities."""

_MAX_VALUE = 160
_REPOSITORY = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<path>[^@\s]+))?(?:@(?P<commit>[^\s@]+))?")
_THREAD = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)#(?P<number>\d+)")

EPOCH = datetime.date(2020, 1, 1)
_LETTERS = {True: "1", False: "0", None: "?"}
_STATUS = (None, "preview", "retired")


def render_page(registry: Registry, *, manual: str = "") -> str:
    """Return the page of every model of a registry as HTML.

    `manual` is the address of the manual, "" for no link; the Chinese manual is in the folder zh beside the page.
    """
    short = short_names(registry.aliases)
    rows, details = _ListData(), _DetailData()
    for name in registry.names():
        model = registry.resolve(name)
        explained = model.explain()
        entry = _PageEntry(
            model, explained, capabilities(model, explained), known_issues(model, explained), short.get(model.name, ())
        )
        rows.add(entry)
        details.add(entry)
    order = rows.newest_first()
    models, vendors = rows.current()
    counts = {"all": len(order), "providers": len(registry.providers), "models": models, "vendors": vendors}
    values = _head(counts, details.last_day(), registry.version)
    values |= {"style": _read("style.css"), "policy": html.escape(_POLICY), "script": _script()}
    address = html.escape(manual)
    values["manual"] = f'<a href="{address}" data-t="manual" data-zh="zh/{address}">Manual</a>' if manual else ""
    values["list"] = _json(rows.data(order))
    values["texts"] = _json(json.loads(_read("texts.json")))
    values["details"] = _pack(details.data(order))
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


def _pack(data: Any) -> str:
    """Return data as compressed JSON in base 64."""
    return base64.b64encode(zlib.compress(_json(data).encode(), 9)).decode()


# ── the page of one model ────────────────────────────────────────────────────


class _DetailData:
    """The details of the models, filled model by model; facts, sources and texts are stored once."""

    def __init__(self) -> None:
        self._facts: dict[Any, int] = {}
        self._sources: dict[Any, int] = {}
        self._texts: dict[Any, int] = {}
        self._chinese: dict[int, str] = {}
        self._models: list[list[Any]] = []

    def add(self, entry: _PageEntry) -> None:
        """Add a model."""
        model, flags, status = entry.model, entry.model.flags, entry.model.flags.status
        explained = {fact.flag: fact for fact in entry.facts}
        numbers = [self._fact(capability.fact) for capability in entry.capabilities.values()]
        numbers += [self._fact(explained.get(flag)) for flag in NUMBERS]
        issues = [
            [self._issue(issue.text), self._source(issue.source, issue.seen, issue.how)] for issue in entry.issues
        ]
        row = [
            self._text(model.protocol),
            self._text(endpoint(model)),
            [self._text(key) for key in flags.keys or ()],
            numbers,
            issues,
            list(_prices(model)),
            terminal.escape(status.use) if status and status.use else "",
            str(status.since) if status and status.since else "",
            " ".join(levels(model)),
        ]
        self._models.append(row)

    def data(self, order: Sequence[int]) -> dict[str, Any]:
        """Return the details in this order, as JSON takes them.

        A model has: its wire, its endpoint, the variables of its keys, the numbers of its facts (one for each
        capability, then those of `numbers`; -1 for none), its issues (numbers of text and source), its other prices,
        its successor, the first day of its state, and its levels of reasoning. `chinese` has texts of issues by number.
        """
        return {
            "numbers": NUMBERS,
            "facts": list(self._facts),
            "sources": list(self._sources),
            "texts": list(self._texts),
            "chinese": self._chinese,
            "models": [self._models[at] for at in order],
        }

    def last_day(self) -> str:
        """Return the last day on which one of the sources was read, "" where there is none."""
        return max((seen for _, _, seen, _ in self._sources), default="")

    def _fact(self, fact: Fact | None) -> int:
        if fact is None:
            return -1
        value = terminal.escape(shown_value(fact)[:_MAX_VALUE])
        return _number(self._facts, (fact.flag, value, self._source(fact.source, fact.seen, fact.how)))

    def _source(self, source: str | None, seen: object, how: str | None) -> int:
        text = terminal.escape(source or "")
        address = source_address(text)
        link = "=" if address and address == text else address  # "=": the source itself, stored once
        return _number(self._sources, (text, link, str(seen or ""), how or ""))

    def _issue(self, text: str) -> int:
        number = self._text(text)
        if number not in self._chinese:
            translated = translate_issue(text, partial(translate_to, "zh_CN"))
            self._chinese[number] = terminal.escape(translated).replace("`", "")
        return number

    def _text(self, text: str) -> int:
        return _number(self._texts, terminal.escape(text))


def _prices(model: Model) -> Iterator[list[Any]]:
    """Yield the prices beside those of input and output: a kind, its condition, and its amounts."""
    price = model.flags.price
    if price is None:
        return
    for kind in ("cached", "cached_by_mark", "cache_write"):
        if (amount := getattr(price, kind)) is not None:
            yield [kind, "", amount]
    for tier in _input_tiers(model):
        yield ["above", tier.get("above"), tier.get("input"), tier.get("output")]
    for kind, other in (("promotion", price.promotion), ("off_peak", price.off_peak)):
        if other:
            yield [kind, terminal.escape(str(other.get("until") or "")), other.get("input"), other.get("output")]


def _input_tiers(model: Model) -> list[dict[str, float]]:
    """Return the prices by the length of the input alone."""
    price = model.flags.price
    return [tier for tier in (price.tiers if price else None) or () if "output_below" not in tier]


def source_address(source: str) -> str:
    """Return the address of a source: itself, or that of a repository or a thread on GitHub; "" where it has none."""
    if source.startswith(("https://", "http://")):
        return source
    if thread := _THREAD.fullmatch(source):
        return f"https://github.com/{thread['name']}/issues/{thread['number']}"
    if repository := _REPOSITORY.fullmatch(source):
        place = f"/tree/{repository['commit'] or 'HEAD'}/{repository['path'] or ''}".rstrip("/")
        return f"https://github.com/{repository['name']}{place if repository['commit'] or repository['path'] else ''}"
    return ""


# ── the list ─────────────────────────────────────────────────────────────────


class _PageEntry(Struct, frozen=True):
    """A model on the page: the model, its facts, its capabilities, its known issues, and its short names."""

    model: Model
    facts: Sequence[Fact]
    capabilities: Mapping[str, Capability]
    issues: Sequence[KnownIssue]
    short: Sequence[str] = ()


def _number(values: dict[Any, int], value: Any) -> int:
    """Return the number of a value in a table, which stores each once. Cells refer to it by this number."""
    return values.setdefault(value, len(values))


class _ListData:
    """The rows of the list, filled model by model: the facts of all at once take much memory."""

    def __init__(self) -> None:
        self._titles: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._vendors: dict[Any, int] = {}
        self._states: dict[Any, int] = {}
        self._currencies: dict[Any, int] = {}
        self._rows: list[dict[str, Any]] = []

    def add(self, entry: _PageEntry) -> None:
        """Add a model."""
        model, flags = entry.model, entry.model.flags
        limits, price, status = flags.limits, flags.price, flags.status
        released = status.released if status is not None else None
        self._titles[model.provider][flags.title or model.provider] += 1
        row = {
            "id": terminal.escape(model.id),
            "vendor": _number(self._vendors, model.provider),
            "released": (released - EPOCH).days if released is not None else None,
            "status": _STATUS.index(status.is_ if status and status.is_ in _STATUS else None),
            "states": _number(self._states, "".join(_LETTERS[c.value] for c in entry.capabilities.values())),
            "context": limits.context,
            "output": limits.output,
            "input": price.input if price else None,
            "reply": price.output if price else None,
            "border": min((int(tier.get("above", 0)) for tier in _input_tiers(model)), default=0),
            "currency": _number(self._currencies, terminal.escape((price.currency if price else None) or "")),
            "text": None if flags.input is None else int("text" in flags.input),
            "title": flags.title or model.provider,
            "quirks": len(entry.issues),
            "short": [terminal.escape(name) for name in entry.short] or 0,
        }
        self._rows.append(row)

    def current(self) -> tuple[int, int]:
        """Return the number of the models that are not retired, and that of their vendors."""
        vendors = [row["vendor"] for row in self._rows if row["status"] != _STATUS.index("retired")]
        return len(vendors), len(set(vendors))

    def newest_first(self) -> list[int]:
        """Return the places of the models by day of release, the newest first; those without a day come last."""
        days = [row["released"] for row in self._rows]
        return sorted(range(len(days)), key=lambda at: (days[at] is None, -(days[at] or 0)))

    def data(self, order: Sequence[int]) -> dict[str, Any]:
        """Return the list in this order, as JSON takes it.

        `models` has one list for each field: `vendor`, `states` and `currency` are numbers in the lists of these names,
        `released` counts days from `epoch`, `status` is 0, 1 (preview) or 2 (retired). A vendor has the title of most
        of its models, and `title` is that of a model that has its own.
        """
        titles = [self._titles[vendor].most_common(1)[0][0] for vendor in self._vendors]
        rows = [
            row | {"title": terminal.escape(row["title"]) if row["title"] != titles[row["vendor"]] else 0}
            for row in (self._rows[at] for at in order)
        ]
        return {
            "epoch": EPOCH.isoformat(),
            "kinds": [[kind.name, kind.group] for kind in KINDS.values()],
            "vendors": [list(map(terminal.escape, pair)) for pair in zip(self._vendors, titles, strict=True)],
            "states": list(self._states),
            "currencies": list(self._currencies),
            "models": {name: [row[name] for row in rows] for name in (rows[0] if rows else ())},
        }
