"""Find the layers of a model in the loaded registry files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.registry import merge
from cnllm.registry.documents import Document
from cnllm.registry.merge import Layer
from cnllm.registry.problem import did_you_mean
from cnllm.registry.provenance import Trace
from cnllm.system.processes import cached_property

__all__ = ["Layers", "SharedTables"]

_MAX_EXTENDS = 2  # models or providers in a chain of `extends`


class SharedTables(Struct, frozen=True):
    """Selects the tables that all models of a family at a provider share.

    `foreign` says that `protocol` is not the wire of a provider's tables that name none. Flags in `not_of_wire` are not
    taken from the table of the wire.
    """

    provider: str
    family: str | None
    protocol: str | None
    foreign: bool = False
    not_of_wire: frozenset[str] = frozenset()


class Layers:
    """The tables of the loaded files, the built-in one first, and the layers that they form for a model.

    The files do not change; what is computed from them is kept.
    """

    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents
        self._sections: dict[str, dict[str, None]] = {}
        self._spellings: dict[str, dict[str, str]] = {}  # by section: each name by its form in lower case
        self._families: dict[str, str | None] = {}
        self._shared_layers: dict[SharedTables, list[Layer]] = {}
        self._traces: dict[SharedTables, dict[int, Trace]] = {}
        self._merged_tables: dict[SharedTables, dict[str, Any]] = {}

    def names(self, section: str) -> dict[str, None]:
        """Return the names of a section's tables, from all files."""
        names = self._sections.get(section)
        if names is None:
            names = {name: None for document in self.documents for name in document.data.get(section, ())}
            self._sections[section] = names
        return names

    def spelling(self, section: str, name: str) -> str | None:
        """Return a name of a section in the registry's spelling, whatever its case; None where it is unknown."""
        names = self.names(section)
        if name in names:
            return name
        spellings = self._spellings.get(section)
        if spellings is None:
            spellings = {known.casefold(): known for known in reversed(names)}  # of two, the first counts
            self._spellings[section] = spellings
        return spellings.get(name.casefold())

    def section(self, *path: str) -> dict[str, Any]:
        """Return a section or a table in one, with the keys of later files over those of earlier ones."""
        out: dict[str, Any] = {}
        for document in self.documents:
            out.update(_table_at(document, path))
        return out

    def setting(self, *path: str) -> Any:
        """Return the value of a key in the last file that has it; None where none has."""
        *tables, key = path
        for document in reversed(self.documents):
            if key in (table := _table_at(document, tables)):
                return table[key]
        return None

    def model_layers(self, lineage: list[str], protocol: str | None, *, foreign: bool = False) -> list[Layer]:
        """Return the layers of a model and those it extends, the most general first; without a protocol, no wire's.

        Their price, site and status are those of the model itself. Limits and kinds of input come from models with the
        same weights only. `foreign` says that `protocol` is not the wire of tables for which no file names one.
        """
        layers: list[Layer] = []
        excluded: frozenset[str] = frozenset()
        for position, name in enumerate(lineage):
            provider = self.extends_chain("providers", name.partition("/")[0])
            paths = [*(("models", model) for model in lineage[position:]), *(("providers", p) for p in provider)]
            is_foreign = self._foreign_files(paths, protocol, foreign=foreign)
            layers[:0] = self.table_layers(("models", name), protocol, excluded, is_foreign)
            if position + 1 < len(lineage):
                excluded |= merge.OWN_FLAGS
                if not self.setting("models", name, "same_weights"):
                    excluded |= merge.WEIGHT_FLAGS
        return layers

    def with_weights(self, weights: str) -> list[str]:
        """List the models with these open weights, sorted: those that say so, and those that extend one of them."""
        stated: dict[str, str | None] = {}
        parents: dict[str, str] = {}
        for document in self.documents:
            for name, table in document.data.get("models", {}).items():
                if "weights" in table.get("unset", ()):
                    stated[name] = None
                if "weights" in table:
                    stated[name] = table["weights"]
                if table.get("same_weights"):
                    parents[name] = table.get("extends", parents.get(name, ""))
        names = []
        for name in sorted(self.names("models")):
            owner = name
            while owner not in stated and owner in parents:
                owner = parents[owner]
            if stated.get(owner) == weights:
                names.append(name)
        return names

    def provider_layers(self, key: SharedTables) -> list[Layer]:
        """Return the layers that all models of a family at a provider share."""
        if key in self._shared_layers:
            return self._shared_layers[key]
        provider, family, protocol = key.provider, key.family, key.protocol
        layers = list(self.table_layers(("defaults",), protocol))
        if protocol is not None:
            layers += self.table_layers(("protocols", protocol), protocol, excluded=key.not_of_wire)
        if family is not None:
            layers += self.table_layers(("families", family), protocol)
        chain = self.extends_chain("providers", provider)
        for position, name in reversed([*enumerate(chain)]):
            paths = [("providers", extended) for extended in chain[position:]]
            is_foreign = self._foreign_files(paths, protocol, foreign=key.foreign)
            excluded = frozenset() if name == provider else merge.OWN_FLAGS
            layers += self.table_layers(("providers", name), protocol, excluded, is_foreign)
            if family is not None:
                layers += self.table_layers(("providers", name, "families", family), protocol, excluded, is_foreign)
        self._shared_layers[key] = layers
        return layers

    def traces(self, key: SharedTables) -> dict[int, Trace]:
        """Return the traces of the shared layers, by the `id` of the layer."""
        if key not in self._traces:
            shared = self.provider_layers(key)
            self._traces[key] = {id(layer): Trace(layer, shared) for layer in shared}
        return self._traces[key]

    def merged_table(self, key: SharedTables) -> dict[str, Any]:
        """Return the shared layers merged, once for all models of a family at a provider."""
        if key not in self._merged_tables:
            self._merged_tables[key] = merge.merge_layers(self.provider_layers(key))
        return self._merged_tables[key]

    def table_layers(
        self,
        path: tuple[str, ...],
        protocol: str | None,
        excluded: frozenset[str] = frozenset(),
        foreign: frozenset[int] = frozenset(),
    ) -> Iterator[Layer]:
        """Yield a table's layer in every file that has it, then the layers for this wire.

        From a table about another wire (`foreign`: the numbers of its files) only flags that hold on every wire are
        taken. Flags in `excluded` are left out.
        """
        tables: list[tuple[Document, dict[str, Any]]] = []
        for number, document in enumerate(self.documents):
            if table := _table_at(document, path):
                table = merge.without_flags(table, excluded) if excluded else table
                tables.append((document, table))
                own = merge.on_every_wire(table) if number in foreign else table
                yield Layer(".".join(path), document, path, own)
        for document, table in tables if protocol is not None else ():
            if overrides := table.get("on", {}).get(protocol):
                wire = (*path, "on", str(protocol))
                overrides = merge.without_flags(overrides, excluded) if excluded else overrides
                yield Layer(".".join(wire), document, wire, overrides)

    def _foreign_files(self, paths: list[tuple[str, str]], protocol: str | None, *, foreign: bool) -> frozenset[int]:
        """Return the numbers of the files in which the first of these tables is about another wire than `protocol`.

        A table is about the wire that the tables, the nearest first, name in its file and those before it: a later file
        that names another wire has changed nothing of what the earlier ones say. `foreign` holds where none is named.
        """
        if protocol is None:
            return frozenset()
        numbers: set[int] = set()
        named: dict[tuple[str, ...], object] = {}
        for number, document in enumerate(self.documents):
            for path in (*paths, ("defaults",)):
                table = _table_at(document, path)
                if "protocol" in table or "protocol" in table.get("unset", ()):
                    named[path] = table.get("protocol")
            wire = next((named[path] for path in (*paths, ("defaults",)) if path in named), None)
            if foreign if wire is None else wire != protocol:
                numbers.add(number)
        return frozenset(numbers)

    def family(self, id: str) -> str | None:
        """Return the family with the most specific pattern (the longest literal start) for an id."""
        folded = id.casefold()
        if folded not in self._families:
            self._families[folded] = next(
                (name for pieces, name in self._family_patterns if _matches(pieces, folded)), None
            )
        return self._families[folded]

    @cached_property
    def _family_patterns(self) -> list[tuple[list[str], str]]:
        """Return each family's patterns, split at their stars, the most specific first."""
        patterns: list[tuple[int, int, str, str]] = []
        for name in self.names("families"):
            for pattern in self.setting("families", name, "match") or ():
                glob = pattern.casefold()
                patterns.append((glob.find("*") if "*" in glob else len(glob), len(glob), name, glob))
        return [(glob.split("*"), name) for _, _, name, glob in sorted(patterns, reverse=True)]

    def endpoint_layers(self, provider: str) -> list[Layer]:
        """Return the layers of a provider and of those it extends, the most general first, without those of a wire."""
        chain = reversed(self.extends_chain("providers", provider))
        return [layer for name in chain for layer in self.table_layers(("providers", name), None)]

    def extends_chain(self, section: str, name: str) -> list[str]:
        """Return a provider or model and those it extends, nearest first."""
        chain = [name]
        while True:
            parent = self.setting(section, chain[-1], "extends")
            if parent is None:
                return chain
            path = [section, chain[-1], "extends"]
            if parent in chain or len(chain) > _MAX_EXTENDS:
                problem = "extends itself" if parent in chain else f"extends more than {_MAX_EXTENDS} others in a row"
                raise self.error(path, f'{section}."{name}" {problem}: {" → ".join([*chain, parent])}')
            if parent not in self.names(section):
                message = f'{section}."{chain[-1]}" extends {parent}, which is not there'
                raise self.error(path, message + did_you_mean(parent, self.names(section)))
            chain.append(parent)

    def place(self, path: list[str]) -> str:
        """Return the "file:line" of the last file that has a path; "" where none has."""
        document = self._last_with(path)
        return "" if document is None else document.place(path)

    def error(self, path: list[str], message: str) -> RegistryError:
        """Return the error for a path, with the file and line that hold it."""
        document = self._last_with(path)
        if document is None:
            return RegistryError(message)
        return RegistryError(message, file=document.label, line=document.line(path), hint="fix this line")

    def _last_with(self, path: list[str]) -> Document | None:
        """Return the last file that has a path."""
        return next((d for d in reversed(self.documents) if merge.find_path(d.data, path) is not None), None)


def _table_at(document: Document, path: Sequence[str]) -> Any:
    """Return the table at a path in a file; empty where there is none."""
    table: Any = document.data
    for key in path:
        table = table.get(key, {})
    return table


def _matches(pieces: list[str], id: str) -> bool:
    """Whether an id matches the pieces of a pattern, with any text between them. Faster than compiled expressions."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return id == first
    if not id.startswith(first) or len(id) < len(first) + len(last) or not id.endswith(last):
        return False
    middle = pieces[1:-1]
    start, end = len(first), len(id) - len(last)
    for piece in middle:
        index = id.find(piece, start, end)
        if index < 0:
            return False
        start = index + len(piece)
    return True
