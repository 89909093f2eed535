"""Mark the options of a request that mean something on the client's own protocol only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from cnllm.protocols import Recall, ServerCodec, fields, server_codec
from cnllm.protocols.fields import Field, snake_case
from cnllm.types import Note, Request
from cnllm.types.client_data import EMPTY, ClientData, count_text

__all__ = ["KeyCounts", "client_options", "tool_counts"]

_COUNTED = ("keep", "forward", "drop")
_READ = ("translate", "media", "describe", "search", "return", "keep")
"""The outcomes of blocks whose own keys have rows."""
_ROOTS = ("messages[]", "system[]", "tools[]", "input[]", "contents[]", "systemInstruction")


def client_options(
    codec: ServerCodec,
    request: Request,
    counts: KeyCounts,
    headers: Mapping[str, str],
    body: Mapping[str, Any],
    recall: Recall,
) -> tuple[dict[str, Any], list[Note]]:
    """Return the options, with the headers that ask for features of the protocol, and notes on what has no option.

    Other keys of the body, these headers, functions with further keys, and tools that are no functions become
    `ClientData`, which has the web search that the codec finds in them, and the counts of the keys inside messages and
    tools. `counts` may have those of the turns already.
    """
    out, read_search = dict(request.options), codec.read_search
    counts.count_rest(body)
    protocol, own, dropped = counts.protocol, counts.own, counts.dropped
    if own or "extra_body" in out:
        extra = out.get("extra_body", {})
        out["extra_body"] = ClientData(protocol, extra, read_search(extra), own)
    values = {str(name).lower(): value for name, value in headers.items()}
    if features := {name: values[name] for name in codec.feature_headers if values.get(name)}:
        out["extra_headers"] = ClientData(protocol, features)
    if "tools" in out:
        out["tools"] = recall.tools(out["tools"], _own_tools, protocol)
    did = "left out: cnllm sends it on no wire"
    return out, [
        Note("key-foreign", "tools" if path.startswith("tools") else "messages", count_text(path, count), did)
        for path, count in dropped.items()
    ]


def tool_counts(tools: list[Any], protocol: str) -> KeyCounts:
    """Return the counts of the keys of tools."""
    counts = KeyCounts(protocol)
    counts.count("tools", tools)
    return counts


def _own_tools(tools: list[dict[str, Any]], protocol: str) -> list[dict[str, Any]]:
    """Return tools; each that means something on the protocol only is `ClientData`."""
    read_search = server_codec(protocol).read_search
    return [
        tool if _is_plain(tool) else ClientData(protocol, tool, None if _is_function(tool) else read_search(tool))
        for tool in tools
    ]


def _is_function(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is a function. A tool that a vendor executes may have the form of one, under a type of its own."""
    return "function" in tool and tool.get("type", "function") == "function"


def _is_plain(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is a function without further keys."""
    return _is_function(tool) and tool.keys() <= {"type", "function", "custom"}


# ── keys inside messages and tools ────────────────────────────────────────────


class _FieldPlace:
    """The rows of one place in a body, as objects are compared with them.

    `silent` are the keys that are not counted: by the type of a block, under None where objects have no types.
    `children` are the places below it, by their keys.
    """

    def __init__(self, name: str, rows: Mapping[str, Field], children: list[tuple[str, _FieldPlace]]) -> None:
        self.name = name
        self.rows = rows
        self.children = dict(children)
        kinds = {row.partition(".")[0] for row in rows if "." in row} - {"*"}
        self.usual_kind = "message" if "message" in kinds else "custom" if "custom" in kinds else None
        variants: list[str | None] = [kind for kind in kinds if kind not in rows or rows[kind].outcome in _READ]
        self.has_types = bool(kinds)
        self.silent: dict[str | None, frozenset[str]] = {kind: self._silent(kind) for kind in variants or [None]}

    def _silent(self, kind: str | None) -> frozenset[str]:
        """Return the keys that are not counted, in both spellings."""
        keys = {row.rpartition(".")[2] for row in self.rows if kind is None or row.partition(".")[0] in (kind, "*")}
        known = {key for key in keys if (row := self.row(kind, key)) is not None and row.outcome not in _COUNTED}
        return frozenset(["type", *known, *map(snake_case, known), *self.children])

    def row(self, kind: str | None, key: str) -> Field | None:
        """Return the row of a key: its own, or that of any other key."""
        names = (key, "*") if kind is None else (f"{kind}.{key}", f"*.{key}", f"{kind}.*", "*.*")
        return next((self.rows[name] for name in names if name in self.rows), None)


@cache
def _roots(protocol: str) -> list[tuple[str, _FieldPlace]]:
    """Return the places of a protocol inside messages and tools, each under the key that it has in the body."""
    table = fields(protocol).request
    return _places(table, [place for place in table if place in _ROOTS], "")


def _places(table: Mapping[str, Mapping[str, Field]], names: list[str], parent: str) -> list[tuple[str, _FieldPlace]]:
    """Return places with those below them, under their keys in both spellings."""
    out: list[tuple[str, _FieldPlace]] = []
    for name in names:
        below = [other for other in table if other.rpartition(".")[0] == name]
        place = _FieldPlace(name, table[name], _places(table, below, name))
        key = name.removeprefix(f"{parent}.").removesuffix("[]")
        out += [(spelling, place) for spelling in dict.fromkeys((key, snake_case(key)))]
    return out


class KeyCounts:
    """Counts the keys inside messages and tools of a body that mean nothing elsewhere.

    `own` mean something on the body's protocol only, and have the name by which other wires may know them; no wire
    gets `dropped`.
    """

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.own: defaultdict[tuple[str, str | None], int] = defaultdict(int)
        self.dropped: defaultdict[str, int] = defaultdict(int)
        self._added: set[str] = set()  # keys of the body whose counts were added

    def count(self, key: str, items: Sequence[Any]) -> None:
        """Count the keys of items of the list that stands under a key of the body."""
        self._visit(dict(_roots(self.protocol))[key], items)

    def add(self, key: str, other: KeyCounts) -> None:
        """Add the counts of items of the list that stands under a key of the body."""
        self._added.add(key)
        for own, count in other.own.items():
            self.own[own] += count
        for dropped, count in other.dropped.items():
            self.dropped[dropped] += count

    def count_rest(self, body: Mapping[str, Any]) -> None:
        """Count the keys of a body, except for those of lists whose counts were added."""
        for key, place in _roots(self.protocol):
            inner = body.get(key)
            if inner is not None and type(inner) is not str and key not in self._added:
                self._visit(place, inner if type(inner) is list else (inner,))

    def _visit(self, place: _FieldPlace, items: Any) -> None:
        """Count the keys of the objects at a place, and of those below them."""
        silent_by_kind, children = place.silent, place.children
        plain = None if place.has_types else silent_by_kind[None]
        for item in items:
            if type(item) is not dict:
                continue
            kind, silent = None, plain
            if silent is None:
                kind = item.get("type") or place.usual_kind
                silent = silent_by_kind.get(kind) if type(kind) is str else None
                if silent is None:  # the whole block has one outcome
                    continue
            if not silent.issuperset(item):
                for key, value in item.items():
                    if key not in silent and value not in EMPTY:
                        self._count(place, kind, key)
            for key, value in item.items():
                if type(value) is not str and (child := children.get(key)) is not None:
                    self._visit(child, value if type(value) is list else (value,))

    def _count(self, place: _FieldPlace, kind: str | None, key: str) -> None:
        """Count a key by its row."""
        row = place.row(kind, key)
        path = f"{place.name}.{key}"
        if row is not None and row.outcome == "drop":
            self.dropped[path] += 1
        elif row is None or row.outcome in (*_COUNTED, "return"):  # keys with `return` in a row of their own are silent
            meaning = row.meaning if row is not None and row.outcome == "forward" else None
            self.own[path, meaning] += 1
