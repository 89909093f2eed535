"""Drop connections in the child of a fork: the sockets are its parent's, and the parent goes on with them.

The child closes its copies of the sockets. It says no goodbye (neither TLS's nor TCP's), which the peer would take for
the parent's, and it leaves the parent's event loop alone.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol

__all__ = ["INHERITED", "drop_after_fork"]

INHERITED = "the connection belongs to the process that forked this one"


class Owner(Protocol):
    """What keeps connections or locks."""

    def drop_inherited(self) -> None:
        """Begin anew in a child process. No other thread runs there yet."""


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def drop_after_fork(owner: Owner) -> None:
    """Have an owner drop what it inherited, in each child process, before anything else runs there."""
    _owners.add(owner)


def _drop() -> None:
    for owner in list(_owners):
        with contextlib.suppress(Exception):  # one that fails keeps no other from it
            owner.drop_inherited()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop)
