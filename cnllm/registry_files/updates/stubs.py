"""Make stubs of models that a public list has and the registry does not: limits, price and kinds of input, no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cnllm.errors import CnllmError
from cnllm.registry.data_rules import MAX_LIMIT, MAX_PRICE, MODEL_NAME, is_amount
from cnllm.registry_files.public_lists import CURRENCY, ListName, PublishedModel

if TYPE_CHECKING:
    from cnllm.registry.registry import Registry
    from cnllm.registry_files.updates.changes import PublicList

__all__ = ["new_models"]


def new_models(
    registry: Registry, names: Sequence[str], lists: Sequence[PublicList]
) -> dict[str, tuple[dict[str, Any], tuple[ListName, ...]]]:
    """Return the table of each new model with the list it is from, by name. The first list that has a model counts.

    A list may add to a provider of exactly this name and host. It adds no provider, because that needs an address.
    """
    known = {name.casefold() for name in names}
    hosts = {provider: _host(registry, provider) for provider in (*registry.providers, *registry.catalogue_providers())}
    found: dict[str, tuple[dict[str, Any], tuple[ListName, ...]]] = {}
    for one in lists:
        for entry in one.models:
            name = f"{entry.provider}/{entry.id}"
            if name.casefold() in known or entry.provider not in hosts or not _is_stub(name, entry):
                continue
            if entry.base_url and _host_of(entry.base_url) != hosts[entry.provider]:
                continue  # another provider of the same name
            if table := _table(entry):
                known.add(name.casefold())
                found[name] = table, (one.name,)
    return found


def _is_stub(name: str, entry: PublishedModel) -> bool:
    """Whether an entry is a chat model that still answers, with a name that a data file may hold."""
    return entry.is_chat and entry.status != "retired" and MODEL_NAME.match(name) is not None


def _table(entry: PublishedModel) -> dict[str, Any]:
    """Return the table of a stub. A price of nothing is mostly an unknown price, and a tiered one is left out."""
    table: dict[str, Any] = {}
    limits = _numbers(entry.values, "limits", MAX_LIMIT)
    if entry.input_only:
        limits.pop("context", None)
    if limits := {key: int(value) for key, value in limits.items() if value and value == int(value)}:
        table["limits"] = limits
    price = _numbers(entry.values, "price", MAX_PRICE)
    if not entry.tiered and (price.get("input") or price.get("output")):
        table["price"] = {"currency": CURRENCY, **price}
    if entry.listed_input is not None:
        table["input"] = list(entry.listed_input)
    return table


def _numbers(values: Mapping[str, float], table: str, most: float) -> dict[str, float]:
    """Return the possible numbers of one table."""
    pairs = ((flag.partition("."), value) for flag, value in values.items())
    return {name: value for (head, _, name), value in pairs if head == table and is_amount(value, most, zero=True)}


def _host(registry: Registry, provider: str) -> str:
    """Return the host of a provider; "" where it has none, or more than one can be."""
    try:
        return _host_of(registry.resolve(f"{provider}/any").flags.base_url or "")
    except CnllmError:  # `cnllm registry check` reports it
        return ""


def _host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").casefold()
    except ValueError:
        return ""
