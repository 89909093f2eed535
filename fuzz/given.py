"""One input of a target: eight bytes that choose how it is read, then what is read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["HEAD", "Given", "given", "pack"]

HEAD = 8
"""Bytes of an input that are choices."""


@dataclass(frozen=True)
class Given:
    """An input, taken apart. `which` chooses the model, `mode` the request, `how` further things by its bits."""

    which: int
    mode: int
    how: int
    most: int
    seed: int
    payload: bytes

    def pieces(self) -> Iterator[bytes]:
        """Yield the payload in pieces of random sizes, which the choices settle."""
        dice = random.Random(self.seed)
        most = (1, 2, 7, 40, 300, 5000)[self.most % 6]
        at = 0
        while at < len(self.payload):
            size = dice.randint(0, most)  # a piece may be empty
            yield self.payload[at : at + size]
            at += size


def given(data: bytes) -> Given:
    """Take an input apart; choices that are missing are 0."""
    head = data[:HEAD].ljust(HEAD, b"\0")
    return Given(head[0], head[1], head[2], head[3], int.from_bytes(head[4:], "big"), data[HEAD:])


def pack(payload: bytes, which: int = 0, mode: int = 0, how: int = 0, most: int = 0, seed: int = 0) -> bytes:
    """Return the input that `given` takes apart so."""
    return bytes([which & 255, mode & 255, how & 255, most & 255]) + seed.to_bytes(4, "big") + payload
