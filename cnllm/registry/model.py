"""A model at one endpoint, over one wire: its effective flags, and the origin of each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from cnllm.errors import UnknownModel
from cnllm.jsonpath import merge_patch, nest
from cnllm.registry.flags import Flags
from cnllm.types import Note, checks

__all__ = ["ATOMS", "Fact", "Model", "ModelSource", "conditions", "currency_of"]

_MOST_PLACES = 256  # lines of flags that a model keeps

ATOMS = ("reasoning", "tools", "stream", "schema", "strict", "forced", "images", "search")
"""The conditions that a `when` may name, each also as `no-…`."""


class Fact(Struct, frozen=True):
    """An effective flag: its dotted name, value, layer ("providers.zai"), "file:line", and the source that backs it.

    `rounded` says that the source has a more exact value, `quote` is a sentence of it.
    """

    flag: str
    value: object
    layer: str
    where: str
    source: str | None = None
    seen: str | None = None
    how: str | None = None
    rounded: bool = False
    quote: str | None = None


@lru_cache(maxsize=4096)
def conditions(**atoms: bool | None) -> frozenset[str]:
    """Return the atoms that hold: `conditions(reasoning=True, tools=False)` → {"reasoning", "no-tools"}.

    None gives neither atom.
    """
    return frozenset(a if on else f"no-{a}" for a, on in atoms.items() if on is not None)


class ModelSource(Struct, frozen=True, kw_only=True):
    """The functions with which a model looks up what it does not hold.

    `notes` are the assumptions of the registry, `distrusts` returns the place in a file that keeps the key of a
    variable from an origin, `flags_for` the flags of a mode. `addresses` are the base URLs of all modes. `where` and
    `layer` name the place of a flag in a mode, `explain` all of them. `family` returns the family of a model's weights,
    `sites` the vendor's other sites, `nearest` the listed model with a similar id, `over` the model over another wire,
    `data_version` the version of the data.
    """

    flags_for: Callable[[frozenset[str]], Flags]
    where: Callable[[str, frozenset[str]], str]
    explain: Callable[[], list[Fact]]
    notes: Callable[[], Iterable[Note]] = tuple
    distrusts: Callable[[str, str], str | None] = lambda env, origin: None
    addresses: tuple[str, ...] = ()
    layer: Callable[[str, frozenset[str]], str] = lambda flag, mode: ""
    family: Callable[[str], str | None] = lambda id: None
    sites: Callable[[], Sequence[str]] = lambda: ()
    nearest: Callable[[], str | None] = lambda: None
    over: Callable[[str], Model] | None = None
    data_version: Callable[[], str] = str


class Model:
    """A model as `Registry.resolve` returns it. Immutable; hash and equality are by identity.

    `id` is the id on the wire, `provider` and `protocol` name the endpoint, `name` is "provider/id", which is
    unambiguous and goes into `Message.by`. `flags` are those of every mode; `flags_for` adds the changes of a mode.
    `notes` hold the assumptions of the registry (unknown id, retired). `memo` belongs to the engine, which keeps there
    what it computed for this model.
    """

    __slots__ = ("_modes", "_notes", "_places", "_source", "flags", "id", "memo", "name", "protocol", "provider")

    def __init__(self, *, id: str, provider: str, protocol: str, flags: Flags, source: ModelSource) -> None:
        self.id = id
        self.provider = provider
        self.name = f"{provider}/{id}"
        self.protocol = protocol
        self.flags = flags
        self._source = source
        self._notes: tuple[Note, ...] | None = None
        self._modes: dict[frozenset[str], Flags] = {}
        self._places: dict[tuple[str, frozenset[str]], str] = {}
        self.memo: dict[Any, Any] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and hasattr(self, name):
            raise AttributeError(f"a model is immutable: {name} cannot be set")
        object.__setattr__(self, name, value)

    @property
    def family(self) -> str | None:
        """Return the family of the model's weights; None where the registry knows none."""
        return self._source.family(self.id)

    @property
    def other_sites(self) -> tuple[str, ...]:
        """Return the providers that are other sites of the same vendor, which refuse a key of this one."""
        return tuple(self._source.sites())

    @property
    def nearest_name(self) -> str | None:
        """Return the listed model of the provider with the most similar id, where the registry does not list this."""
        return self._source.nearest()

    @property
    def data_version(self) -> str:
        """Return the version of the data that the model comes from (`Registry.version`); "" where it has none."""
        return self._source.data_version()

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return the assumptions of the registry. Their lines are looked up on demand."""
        if self._notes is None:
            self._notes = tuple(self._source.notes())
        return self._notes

    @property
    def over(self) -> Callable[[str], Model] | None:
        """Return a function to the model over another wire of its endpoint; None where the caller chose the wire."""
        return self._source.over

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the base URLs of all modes: a call may go on in another mode than it began in."""
        return self._source.addresses

    def distrusts(self, env: str, origin: str) -> str | None:
        """Return the place in a file that keeps the key of a variable from an origin; None where it may go there.

        Raises `TypeError` for values that are no text.
        """
        checks.require_text("env", env)
        checks.require_text("origin", origin)
        return self._source.distrusts(env, origin)

    def trusts(self, env: str, origin: str) -> bool:
        """Whether the key in the variable `env` may go to `origin`. Raises `TypeError` for values that are no text."""
        return self.distrusts(env, origin) is None

    def is_author(self, by: str | None) -> bool:
        """Whether this endpoint, with a model of this family, wrote the turn of "provider/id".

        A turn without `by` counts as its own.
        """
        if by is None:
            return True
        if type(by) is not str:
            checks.require_text("by", by)
        provider, _, id = by.partition("/")
        if provider != self.provider:
            return False
        return not id or id == self.id or self._source.family(id) == self.family

    def flags_for(self, mode: frozenset[str]) -> Flags:
        """Return the flags in a mode (see `conditions`): each `when` table whose atoms all hold overrides `flags`."""
        if type(mode) is not frozenset:
            mode = _mode(mode)
        flags = self._modes.get(mode)
        if flags is None:
            flags = self._modes[mode] = self._source.flags_for(mode)
        return flags

    def derive(self, change: Callable[[Flags], Flags]) -> Model:
        """Return the same model with changed flags, in every mode. What `explain` says stays that of the registry.

        Raises `TypeError` where `change` is no function.
        """
        if not callable(change):
            raise checks.wrong_type("change", change, "a function that takes and returns flags")
        source = replace(self._source, notes=lambda: self.notes, flags_for=lambda mode: change(self.flags_for(mode)))
        return Model(
            id=self.id, provider=self.provider, protocol=self.protocol, flags=change(self.flags), source=source
        )

    def pin(self, upstream: str) -> Model:
        """Return this model of a router, answered by one endpoint behind it alone (`upstream`, in the router's word).

        Raises `UnknownModel` for a provider that is no router, as far as the registry knows.
        """
        checks.require_text("upstream", upstream)
        rule = self.flags.upstream
        if rule is None or (rule.at is None and rule.id is None):
            raise UnknownModel(
                f"{self.provider} is not a router that can be told to use {upstream}",
                hint=f"leave @{upstream} out, or set the flag upstream of {self.provider}",
            )
        path = rule.at

        def restrict(flags: Flags) -> Flags:
            fixed = copy.deepcopy(flags.body.set or {})
            if path is not None:
                merge_patch(fixed, nest(path, [upstream]))
            return replace(flags, body=replace(flags.body, set=fixed))

        pinned = self.derive(restrict)
        id = (rule.id or "{model}").replace("{model}", self.id).replace("{upstream}", upstream)
        return Model(id=id, provider=self.provider, protocol=self.protocol, flags=pinned.flags, source=pinned._source)

    def with_note(self, note: Note) -> Model:
        """Return the same model with a further note, over every wire."""
        over = self._source.over
        source = replace(
            self._source,
            notes=lambda: (note, *self.notes),
            over=None if over is None else cache(lambda wire: over(wire).with_note(note)),
        )
        return Model(id=self.id, provider=self.provider, protocol=self.protocol, flags=self.flags, source=source)

    def where(self, flag: str, mode: frozenset[str] = frozenset()) -> str:
        """Return the line that set a flag (dotted) in a mode, such as "providers.toml:97"; "" where none did."""
        place = self._places.get((flag, mode)) if type(flag) is str and type(mode) is frozenset else None
        if place is None:
            checks.require_text("flag", flag)
            mode = _mode(mode)
            place = self._source.where(flag, mode)
            if len(self._places) < _MOST_PLACES:
                self._places[flag, mode] = place
        return place

    def layer(self, flag: str, mode: frozenset[str] = frozenset()) -> str:
        """Return the layer that set a flag (dotted) in a mode, such as "providers.zai"; "" where none did.

        Looks up no line.
        """
        checks.require_text("flag", flag)
        return self._source.layer(flag, _mode(mode))

    def explain(self) -> list[Fact]:
        """Return every effective flag with its layer, line and source, also those in a `when`."""
        return self._source.explain()

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        """Return the model itself: it is immutable."""
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a model belongs to its registry, which no other process has; send its name, and resolve that")

    def __repr__(self) -> str:
        return f"<Model {self.name} over {self.protocol}>"


def currency_of(model: Model) -> str | None:
    """Return the currency of a model's price, None where no price for input and output is known."""
    price = model.flags.price
    return price.currency if price is not None and price.input is not None and price.output is not None else None


def _mode(mode: Iterable[str]) -> frozenset[str]:
    """Return the atoms of a mode. Raises `TypeError` for a value that is not a set of words."""
    if not isinstance(mode, frozenset | set):
        raise checks.wrong_type("mode", mode, "a frozenset of conditions (cnllm.registry.model.ATOMS)")
    for atom in mode:
        if not isinstance(atom, str):
            raise checks.wrong_type("a condition in mode", atom, "a string")
    return frozenset(mode)
