"""What a forked child must not share with its parent: sockets, and locks that another thread held.

A child of `os.fork()` (gunicorn, multiprocessing) has a copy of every socket and every lock, but none of the threads.
Its copies of registered sockets are closed at once, registered locks are free, and registered owners drop what they
inherited. The child says no goodbye (neither TLS's nor TCP's), which the peer would take for the parent's.
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
    """What keeps connections or other state of one process."""

    def drop_inherited(self) -> None:
        """Begin anew in a child process. No other thread runs there yet."""


T = TypeVar("T")
_FORKS = hasattr(os, "register_at_fork")
_sockets: dict[int, int] = {}  # descriptor → inode, which no later file of the same descriptor has
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_owners: weakref.WeakSet[ProcessBound] = weakref.WeakSet()
_pid = os.getpid()
_generation = 0


def generation() -> int:
    """Return a number that this process shares with none of its parents. State is kept for one generation."""
    if os.getpid() != _pid:  # forked by code that does not run Python's hooks
        _begin()
    return _generation


def register_socket(descriptor: int) -> None:
    """Have a socket closed in forked children. There is no need to say when it is closed here."""
    if _FORKS and descriptor >= 0:
        with suppress(OSError):
            _sockets[descriptor] = os.fstat(descriptor).st_ino


def drop_after_fork(owner: ProcessBound) -> None:
    """Have an owner drop what it inherited, in each forked child, before anything else runs there."""
    _owners.add(owner)


def fork_safe(lock: T) -> T:
    """Have a lock or a condition free in forked children, whoever holds it in the parent."""
    _locks.add(lock)
    return lock


class cached_property(functools.cached_property[T]):
    """`functools.cached_property`; the lock that it has in Python 3.11 is free in forked children."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        lock = getattr(self, "lock", None)
        if lock is not None:
            fork_safe(lock)


def _begin() -> None:
    """Begin as a new process."""
    global _generation, _pid
    _pid = os.getpid()
    _generation += 1
    for lock in list(_locks):
        lock._at_fork_reinit()
    _drop_sockets()
    for owner in list(_owners):
        with suppress(Exception):  # one that fails keeps no other from it
            owner.drop_inherited()


def _drop_sockets() -> None:
    """Put another file in the place of each inherited socket.

    This closes the child's copy and nothing else: no shutdown, no TLS alert. Whoever still has the descriptor cannot
    read the parent's bytes, and closes no stranger's file when it is collected.
    """
    inherited = dict(_sockets)
    _sockets.clear()
    for descriptor, inode in inherited.items():
        with suppress(OSError):
            found = os.fstat(descriptor)
            if found.st_ino == inode and stat.S_ISSOCK(found.st_mode):
                _replace(descriptor)


def _replace(descriptor: int) -> None:
    try:
        other = os.open(os.devnull, os.O_RDWR)
    except OSError:  # no file can be opened
        os.close(descriptor)
        return
    os.dup2(other, descriptor, inheritable=False)
    os.close(other)


if _FORKS:
    os.register_at_fork(after_in_child=_begin)
