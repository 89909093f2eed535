"""One model at one endpoint, over one wire: every flag that holds, and who said so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import lru_cache

from msgspec import Struct

from cnllm.registry.flags import Flags
from cnllm.types import Note, checks

__all__ = ["ATOMS", "Fact", "Model", "conditions"]

ATOMS = ("reasoning", "tools", "stream", "schema", "strict", "forced", "images")
"""What a `when` may ask about, each also as `no-…`."""


class Fact(Struct, frozen=True):
    """One effective flag: its dotted name, value, layer ("providers.zai"), "file:line", and the source behind it."""

    flag: str
    value: object
    layer: str
    where: str
    source: str | None = None
    seen: str | None = None
    how: str | None = None


@lru_cache(maxsize=4096)
def conditions(**atoms: bool | None) -> frozenset[str]:
    """The atoms that hold: `conditions(reasoning=True, tools=False)` → {"reasoning", "no-tools"}; None: neither."""
    return frozenset(a if on else f"no-{a}" for a, on in atoms.items() if on is not None)


class Model:
    """What `Registry.resolve` returns. Immutable; hash and equality are by identity.

    `id` is the id on the wire, `provider` and `protocol` name the endpoint, `flags` are those that hold whatever the
    mode; `under` adds what a mode changes. `notes` say what resolving had to assume (unknown id, retired).
    `distrusts(env, origin)`: the place in a file that keeps the key of that variable from that origin, or None.
    `family(id)`: whose weights?
    `over(protocol)`: the same model over another wire of its endpoint; None where the caller chose the wire.
    """

    __slots__ = (
        "_explain",
        "_family",
        "_layer",
        "_modes",
        "_notes",
        "_under",
        "_where",
        "distrusts",
        "flags",
        "id",
        "over",
        "protocol",
        "provider",
    )

    def __init__(
        self,
        *,
        id: str,
        provider: str,
        protocol: str,
        flags: Flags,
        notes: Callable[[], Iterable[Note]] = tuple,
        distrusts: Callable[[str, str], str | None] = lambda env, origin: None,
        under: Callable[[frozenset[str]], Flags],
        where: Callable[[str, frozenset[str]], str],
        layer: Callable[[str, frozenset[str]], str] = lambda flag, mode: "",
        explain: Callable[[], list[Fact]],
        family: Callable[[str], str | None] = lambda id: None,
        over: Callable[[str], Model] | None = None,
    ) -> None:
        self.id = id
        self.provider = provider
        self.protocol = protocol
        self.flags = flags
        self._notes: tuple[Note, ...] | Callable[[], Iterable[Note]] = notes
        self.distrusts = distrusts
        self._under = under
        self._where = where
        self._layer = layer
        self._explain = explain
        self._family = family
        self.over = over
        self._modes: dict[frozenset[str], Flags] = {}

    @property
    def name(self) -> str:
        """ "provider/id", which names it without doubt and goes into `Message.by`."""
        return f"{self.provider}/{self.id}"

    @property
    def notes(self) -> tuple[Note, ...]:
        """What resolving had to assume. Their lines are looked up when somebody asks."""
        if callable(self._notes):
            self._notes = tuple(self._notes())
        return self._notes

    def trusts(self, env: str, origin: str) -> bool:
        """Whether the key in the variable `env` may go to `origin`. Raises `TypeError` for what is no text."""
        checks.require_text("env", env)
        checks.require_text("origin", origin)
        return self.distrusts(env, origin) is None

    def is_author(self, by: str | None) -> bool:
        """Did this endpoint, with a model of this family, write a turn by "provider/id"? One without `by` counts."""
        if by is None:
            return True
        if type(by) is not str:
            checks.require_text("by", by)
        provider, _, id = by.partition("/")
        if provider != self.provider:
            return False
        return not id or id == self.id or self._family(id) == self._family(self.id)

    def flags_for(self, mode: frozenset[str]) -> Flags:
        """The flags in a mode (see `conditions`): each `when` table whose atoms all hold is laid over `flags`."""
        if type(mode) is not frozenset:
            mode = _mode(mode)
        found = self._modes.get(mode)
        if found is None:
            found = self._modes[mode] = self._under(mode)
        return found

    def where(self, flag: str, mode: frozenset[str] = frozenset()) -> str:
        """ "providers.toml:97", the line that set a flag (dotted) in a mode; "" when none did."""
        checks.require_text("flag", flag)
        return self._where(flag, _mode(mode))

    def layer(self, flag: str, mode: frozenset[str] = frozenset()) -> str:
        """ "providers.zai", the layer that set a flag (dotted) in a mode; "" when none did. Looks no line up."""
        checks.require_text("flag", flag)
        return self._layer(flag, _mode(mode))

    def explain(self) -> list[Fact]:
        """Every effective flag with its layer, line and source, those under a `when` too."""
        return self._explain()

    def __repr__(self) -> str:
        return f"<Model {self.name} over {self.protocol}>"


def _mode(given: Iterable[str]) -> frozenset[str]:
    """The atoms of a mode. Raises `TypeError` for what holds others than words."""
    if not isinstance(given, frozenset | set):
        raise checks.wrong_type("mode", given, "a frozenset of conditions (cnllm.registry.model.ATOMS)")
    for atom in given:
        if not isinstance(atom, str):
            raise checks.wrong_type("a condition in mode", atom, "a string")
    return frozenset(given)


def modes() -> Iterable[frozenset[str]]:
    """Every complete mode: all atoms decided, for tests and listings."""
    for values in itertools.product((True, False), repeat=len(ATOMS)):
        yield conditions(**dict(zip(ATOMS, values, strict=True)))
