"""What the tests of the gateway's stores share: turns, a model of what a store holds, and other processes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cnllm.gateway.store import Ambiguous, AsyncStore, StateStore, StoreCall, TurnRecord, Turns, encode_turn
from cnllm.types import Reasoning, Seal, ToolCall

ROOT = Path(__file__).parent.parent.parent
SEAL = Seal("anthropic-messages", "zai", "glm-4.7", {"signature": "c2lnbmVk", "list": [1, None, {"deep": 1.5}]})


def turn(text: str = "hm", size: int = 0) -> TurnRecord:
    """A turn whose content depends on the text."""
    parts = (Reasoning(text + "." * size, SEAL), ToolCall("call_1", "run", {"a": text}, seal=SEAL))
    return TurnRecord("zai", "glm-4.7", "anthropic-messages", parts)


def turn_by_call(store: StateStore, identity: str, call_id: str) -> TurnRecord | None:
    """The turn that made a call."""
    return store.find_turns(identity, call_ids=[call_id]).by_call.get(call_id)


def turn_at_end(store: StateStore, identity: str, prefix: bytes) -> TurnRecord | Ambiguous | None:
    """The turn at the end of a conversation."""
    return store.find_turns(identity, prefixes=[prefix]).by_prefix.get(prefix)


async def awaited(store: AsyncStore, method: str, *arguments: Any, **options: Any) -> Any:
    """Return the result of a method of the store, awaited."""
    return await store.run(StoreCall(method, arguments, options))


async def async_turn_by_call(store: AsyncStore, identity: str, call_id: str) -> TurnRecord | None:
    """The same, awaited."""
    found: Turns = await awaited(store, "find_turns", identity, call_ids=[call_id])
    return found.by_call.get(call_id)


async def async_turn_at_end(store: AsyncStore, identity: str, prefix: bytes) -> TurnRecord | Ambiguous | None:
    """The same, awaited."""
    found: Turns = await awaited(store, "find_turns", identity, prefixes=[prefix])
    return found.by_prefix.get(prefix)


IDENTITIES = ["alice", "bob", "", "\ud83d"]
CALLS = ["call_1", "call_2", "call_3", ""]
PREFIXES = [b"one", b"two", b"", bytes(32)]
TEXTS = ["hm", "aha", "\ud83d half a pair", "思考"]


class Expected:
    """What a store of these operations holds: each key's contents, in any order."""

    def __init__(self) -> None:
        self.contents: dict[tuple[str, str | bytes], dict[bytes, TurnRecord]] = defaultdict(dict)
        self.responses: dict[tuple[str, str], bytes] = {}

    def keep(self, identity: str, kept: TurnRecord, call_ids: Sequence[str], prefix: bytes | None) -> None:
        keys: list[str | bytes] = [*call_ids, *([] if prefix is None else [prefix])]
        for key in keys:
            self.contents[identity, key][encode_turn(kept)] = kept

    def check(self, store: StateStore) -> None:
        for identity in IDENTITIES:
            ends: dict[bytes, TurnRecord | Ambiguous] = {}
            calls: dict[str, TurnRecord] = {}
            for call_id in CALLS:
                kept = self.contents[identity, call_id]
                expected = next(iter(kept.values())) if len(kept) == 1 else None
                assert turn_by_call(store, identity, call_id) == expected, (identity, call_id)
                if expected is not None:
                    calls[call_id] = expected
            for prefix in PREFIXES:
                kept = self.contents[identity, prefix]
                end = next(iter(kept.values()), None) if len(kept) < 2 else Ambiguous()
                assert turn_at_end(store, identity, prefix) == end, (identity, prefix)
                if end is not None:
                    ends[prefix] = end
            every = store.find_turns(identity, call_ids=[*CALLS, "other"], prefixes=[*PREFIXES, b"other"])
            assert every.by_call == calls
            assert every.by_prefix == ends
            assert every.failure is None
            for id_ in CALLS:
                assert store.response(identity, id_) == self.responses.get((identity, id_))


def random_operations(store: StateStore, seed: int, count: int = 30) -> None:
    """Do any operations in any order, and compare what the store holds with what it must hold."""
    chance = random.Random(seed)
    expected = Expected()
    for _ in range(count):
        identity = chance.choice(IDENTITIES)
        if chance.random() < 0.7:
            kept = turn(chance.choice(TEXTS))
            call_ids = chance.choices(CALLS, k=chance.randrange(3))
            prefix = chance.choice([*PREFIXES, None])
            store.keep_turn(identity, kept, call_ids, prefix)
            expected.keep(identity, kept, call_ids, prefix)
        else:
            id_, blob = chance.choice(CALLS), chance.choice([b"", b"blob", bytes(1000)])
            if chance.random() < 0.6:
                assert store.keep_response(identity, id_, blob)
                expected.responses[identity, id_] = blob
            else:
                there = expected.responses.pop((identity, id_), None) is not None
                assert store.delete_response(identity, id_) is there
    expected.check(store)
    assert store.failure is None


def program(code: str, *args: str) -> subprocess.Popen[str]:
    """Another process that runs some code; its lines can be read."""
    return subprocess.Popen(
        [sys.executable, "-u", "-W", "error", "-c", code, *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
