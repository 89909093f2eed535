"""The registry compared with a public file of limits and prices: where the two disagree, for a person to settle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from cnllm.registry.flags import Flags
from cnllm.registry.model import Fact, Model
from cnllm.registry.public_lists import CURRENCY, PublishedModel
from cnllm.registry.registry import Registry

__all__ = ["Comparison", "Disagreement", "compare"]

FLAGS = ("limits.context", "limits.output", "price.input", "price.output", "price.cached", "price.cache_write")


class Disagreement(Struct, frozen=True):
    """A number that the file has otherwise: `fact` is ours, with line and source, `there` the file's name for it."""

    model: str
    flag: str
    ours: float
    theirs: float
    there: str
    fact: Fact | None


class Comparison(Struct, frozen=True):
    """What a comparison found: `found` of `models` are in the file, `numbers` could be compared."""

    models: int
    found: int
    numbers: int
    disagreements: tuple[Disagreement, ...]


def compare(registry: Registry, published: Iterable[PublishedModel]) -> Comparison:
    """Every model that the file has too, number by number. Prices in another currency are left alone."""
    index: dict[str, list[PublishedModel]] = {}
    for one in published:
        index.setdefault(one.id.casefold(), []).append(one)
    found, numbers, disagreements = 0, 0, list[Disagreement]()
    names = registry.names()
    for name in names:
        model = registry.resolve(name)
        matches = _matching(model, index.get(model.id.casefold(), []))
        found += bool(matches)
        for match in matches:
            pairs = list(_pairs(model.flags, match))
            numbers += len(pairs)
            disagreements += [
                Disagreement(name, flag, ours, theirs, f"{match.provider}/{match.id}", _fact(model, flag))
                for flag, ours, theirs, same in pairs
                if not same
            ]
    return Comparison(len(names), found, numbers, tuple(dict.fromkeys(disagreements)))


def _matching(model: Model, there: list[PublishedModel]) -> list[PublishedModel]:
    """The entries for the same id at the same provider.

    A provider is the same by its name; else by its address; else if the model's key is named after it.
    """
    flags = model.flags
    words = {_plain(key.removesuffix("_KEY").removesuffix("_API")) for key in flags.keys or ()}
    for same in (
        [one for one in there if _plain(one.provider) == _plain(model.provider)],
        [one for one in there if one.base_url and _address(one.base_url) == _address(flags.base_url or "")],
        [one for one in there if _plain(one.provider) in words],
    ):
        if same:
            return same
    return []


def _plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def _address(url: str) -> str:
    return url.casefold().partition("://")[2].rstrip("/")


def _pairs(flags: Flags, match: PublishedModel) -> Iterator[tuple[str, float, float, bool]]:
    """(flag, ours, theirs, do they agree?) of the numbers that both have."""
    price_too = flags.price is not None and flags.price.currency == CURRENCY
    for flag in FLAGS:
        table, _, name = flag.partition(".")
        if table == "price" and not price_too:
            continue
        ours, theirs = getattr(getattr(flags, table), name, None), match.values.get(flag)
        if ours is None or theirs is None:
            continue
        same = _near(ours, theirs)
        if flag == "limits.context" and match.input_only and flags.limits is not None:
            output = max(flags.limits.output or 0, match.values.get("limits.output", 0))
            same = theirs <= ours <= theirs + output
        yield flag, ours, theirs, same


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def _fact(model: Model, flag: str) -> Fact | None:
    return next((fact for fact in model.explain() if fact.flag == flag), None)
