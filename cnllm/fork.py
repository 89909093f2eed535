"""Release state that a forked child must not share with its parent: sockets, and locks held by other threads.

A child of `os.fork()` (gunicorn, multiprocessing) has a copy of every socket and every lock, but none of the threads.
It closes its copies of registered sockets at once, frees registered locks, and registered owners drop their inherited
state. The child sends no TLS or TCP close, which the peer would take for the parent's.
"""

from __future__ import annotations

import functools
import os
import stat
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

__all__ = ["INHERITED", "cached_property", "drop_after_fork", "fork_safe", "generation", "register_socket"]

INHERITED = "the connection belongs to the process that forked this one"


class ProcessBound(Protocol):
    """An object with connections or other state of one process."""

    def drop_inherited(self) -> None:
        """Start empty in a child process. No other thread runs there yet."""


T = TypeVar("T")
_FORKS = hasattr(os, "register_at_fork")
_sockets: dict[int, int] = {}  # descriptor → inode, which differs for a later file with the same descriptor
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_owners: weakref.WeakSet[ProcessBound] = weakref.WeakSet()
_pid = os.getpid()
_generation = 0


def generation() -> int:
    """Return a number that this process shares with none of its parents. State is kept for one generation."""
    if os.getpid() != _pid:  # forked by code that does not run Python's hooks
        _reset_child()
    return _generation


def register_socket(descriptor: int) -> None:
    """Close a socket in forked children. A socket that this process closes need not be reported."""
    if _FORKS and descriptor >= 0:
        with suppress(OSError):
            _sockets[descriptor] = os.fstat(descriptor).st_ino


def drop_after_fork(owner: ProcessBound) -> None:
    """Call `owner.drop_inherited()` in each forked child, before any other code runs there."""
    _owners.add(owner)


def fork_safe(lock: T) -> T:
    """Free a lock or a condition in forked children, whichever thread holds it in the parent."""
    _locks.add(lock)
    return lock


class cached_property(functools.cached_property[T]):
    """`functools.cached_property` whose lock (of Python 3.11) is free in forked children."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        lock = getattr(self, "lock", None)
        if lock is not None:
            fork_safe(lock)


def _reset_child() -> None:
    """Reset the state of a new process."""
    global _generation, _pid
    _pid = os.getpid()
    _generation += 1
    for lock in list(_locks):
        lock._at_fork_reinit()
    _drop_sockets()
    for owner in list(_owners):
        with suppress(Exception):  # a failing owner must not stop the others
            owner.drop_inherited()


def _drop_sockets() -> None:
    """Replace each inherited socket with another file.

    This closes the child's copy and nothing else: no shutdown, no TLS alert. Code that still has the descriptor cannot
    read the parent's bytes, and closes no other file when it is collected.
    """
    inherited = dict(_sockets)
    _sockets.clear()
    for descriptor, inode in inherited.items():
        with suppress(OSError):
            status = os.fstat(descriptor)
            if status.st_ino == inode and stat.S_ISSOCK(status.st_mode):
                _replace(descriptor)


def _replace(descriptor: int) -> None:
    try:
        replacement = os.open(os.devnull, os.O_RDWR)
    except OSError:  # no file can be opened
        os.close(descriptor)
        return
    os.dup2(replacement, descriptor, inheritable=False)
    os.close(replacement)


if _FORKS:
    os.register_at_fork(after_in_child=_reset_child)
