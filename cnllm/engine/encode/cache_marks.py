"""Leave out marks of the prompt cache beyond the number that endpoints take: a request with more is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.protocols import wire
from cnllm.types import Note
from cnllm.types.client_data import counted
from cnllm.types.parts import CACHE_MARK, SYSTEM_ROLES

__all__ = ["limit_cache_marks"]

_MOST = 4
"""Documented for the Messages protocol (https://platform.claude.com/docs/en/build-with-claude/prompt-caching); the mark
of the body itself is one of them. Chat completions have marks for the same models."""
_KEY = b'"%b":' % CACHE_MARK.encode()
_DID = f"left out, so that {_MOST} stay, those of tools and system and the newest: endpoints refuse more"


def limit_cache_marks(plan: Plan) -> Plan:
    """Return a plan whose body has no more marks than endpoints take, with a note on those that were left out.

    Turns may have been encoded before, so the bytes are searched: no other text in them can look like the key.
    """
    rules = plan.flags.messages
    written = wire(plan.model.protocol).part_keys or (rules.fields if rules is not None else None) or ()
    if CACHE_MARK not in written or plan.content.count(_KEY) <= _MOST:
        return plan
    body = msgspec.json.decode(plan.content)
    first, later = _marked(body)
    automatic = body.get(CACHE_MARK) is not None
    room = _MOST - automatic
    for_later = max(room - len(first), not automatic)
    surplus = [*later[: max(len(later) - for_later, 0)]]
    kept = len(later) - len(surplus)
    surplus += first[: max(len(first) - (room - kept), 0)]
    if not surplus:
        return plan
    for block in surplus:
        del block[CACHE_MARK]
    note = Note("cache-mark", "protocol", counted(CACHE_MARK, len(surplus)), _DID, plan.model.where("protocol"))
    return replace(plan, content=msgspec.json.encode(body), notes=[*plan.notes, note])


def _marked(body: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what has a mark in the order of the prompt: of tools and system, and of the turns behind them."""
    first = [block for key in ("tools", "system") for item in _items(body.get(key)) for block in _blocks(item)]
    later: list[dict[str, Any]] = []
    for message in _items(body.get("messages")):
        is_first = not later and message.get("role") in SYSTEM_ROLES
        (first if is_first else later).extend(_blocks(message))
    return first, later


def _blocks(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the marked ones of a message or block and of the blocks in its content, which stand before it."""
    for inner in _items(block.get("content")):
        yield from _blocks(inner)
    if block.get(CACHE_MARK) is not None:
        yield block


def _items(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    return [item for item in value if type(item) is dict] if type(value) is list else []
