"""Say which keys of a seal are lost where the part that has it does not go back to its endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from cnllm.protocols import PROTOCOLS, fields
from cnllm.types import Seal
from cnllm.types.client_data import EMPTY
from cnllm.types.parts import seal_data

__all__ = ["lost_keys"]

_INNER = ("item", "part", "functionCall", "functionResponse")
"""Keys of sealed data under which the keys of an item, and of a part in it, stand."""


def lost_keys(seal: Seal, protocol: str) -> Iterator[str]:
    """Yield the keys that an endpoint wrote into its answer, and that an endpoint of a protocol does not get.

    A seal without a provider comes from a client. If it is for another wire, only the keys that go back to an endpoint
    are named here: the other keys of the client are named where its request is read.
    """
    if seal.protocol not in PROTOCOLS:
        return
    returned, reply_keys = _message_keys(seal.protocol)
    is_client = not seal.provider and seal.protocol != protocol
    block = seal_data(seal).get("type")
    for key in [block] if block in returned else dict.fromkeys(_sealed_keys(seal.data)):
        if key in returned if is_client else key not in reply_keys:
            yield key


def _sealed_keys(data: Any) -> Iterator[str]:
    """Yield the keys of sealed data, also of those in its objects for an item and its part."""
    for key, value in data.items() if type(data) is dict else ():
        if type(value) is dict and key in _INNER:
            yield from _sealed_keys(value)
        elif value not in EMPTY:
            yield key


@cache
def _message_keys(protocol: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return two sets of keys in the messages of a protocol: those that go back to the endpoint, and those never noted.

    The second set has the keys that cnllm writes itself, translates or answers, so that nothing of them is lost.
    """
    rows = [(name.rpartition(".")[2], row.outcome) for name, row in fields(protocol).inner]
    known = [name for name, outcome in rows if outcome in ("answer", "translate", "media")]
    returned = frozenset(name for name, outcome in rows if outcome == "return")
    return returned, frozenset([*known, "type", "at", "more", "index"])
