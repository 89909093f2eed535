"""A client's key: what it may do, and its form. Only its hash is stored."""

from __future__ import annotations

import re
import secrets
from fnmatch import fnmatchcase

from msgspec import Struct

__all__ = ["KEY", "NAME", "KeyRecord", "new_key"]

_PREFIX = "sk-cnllm-"
KEY = re.compile(re.escape(_PREFIX) + "[A-Za-z0-9_-]{43}")
"""The form of a key: 256 random bits.

A hash of so many random bits cannot be guessed, however fast it is computed. Slow hashes are for passwords that people
choose; here they would only slow each request down.
"""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""The form of a key's name."""


class KeyRecord(Struct, frozen=True):
    """The rights of a key. `created` and `revoked` are seconds since 1970, `budgets` units of money by currency."""

    name: str
    created: float
    models: tuple[str, ...] = ()
    rpm: int | None = None
    tpm: int | None = None
    budgets: dict[str, int] = {}
    revoked: float | None = None

    def allows(self, model: str) -> bool:
        """Whether the key may use a model, by its name "provider/id".

        A pattern with a slash stands for the whole name, one without for an id at any provider.
        """
        if not self.models:
            return True
        id = model.partition("/")[2]
        return any(fnmatchcase(model if "/" in pattern else id, pattern) for pattern in self.models)


def new_key() -> str:
    """Return a new random key."""
    return _PREFIX + secrets.token_urlsafe(32)
