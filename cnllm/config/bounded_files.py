"""Read files whose name a user gave: never more than a bound of bytes, and never longer than a bound of time.

A name may stand for a device without an end, or for a pipe that nobody writes to. Both end in an `OSError` whose
`strerror` says what is wrong, like that of a file that is not there.
"""

from __future__ import annotations

import errno
import os
import stat
import time

__all__ = ["CASSETTE_BYTES", "MOST_BYTES", "open_nonblocking", "read_bounded", "read_descriptor"]

MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of a file with settings, JSON or TOML."""
CASSETTE_BYTES = 256 * 1024 * 1024
"""The most bytes of a file with recorded exchanges."""
_BLOCK = 1 << 20
_SILENCE = 8.0  # seconds without a byte from a pipe or a device
_DURATION = 60.0  # seconds for all of it
_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOCTTY"):  # O_NONBLOCK: a pipe without a writer opens at once
    _FLAGS |= getattr(os, _name, 0)


def read_bounded(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return the content of a file of at most so many bytes. Raises `OSError`.

    A pipe is read to its end, unless it is silent for seconds.
    """
    descriptor = open_nonblocking(path)
    try:
        return read_descriptor(descriptor, most)
    finally:
        os.close(descriptor)


def open_nonblocking(path: str | os.PathLike[str]) -> int:
    """Open a file for reading. A pipe that nobody writes to opens at once."""
    return os.open(path, _FLAGS)


def read_descriptor(descriptor: int, most: int = MOST_BYTES) -> bytes:
    """Return what an open file holds from where it stands. Raises `OSError`; see `read_bounded`."""
    status = os.fstat(descriptor)
    has_size = stat.S_ISREG(status.st_mode) and status.st_size > 0  # a file below /proc has none, and may never end
    if has_size and status.st_size > most:
        raise _too_large(most)
    blocks: list[bytes] = []
    rest, end = most + 1, time.monotonic() + _DURATION
    while rest > 0:
        if not has_size:
            _wait(descriptor, end)
        try:
            block = os.read(descriptor, min(_BLOCK, rest))
        except BlockingIOError:
            continue
        if not block:
            return b"".join(blocks)
        blocks.append(block)
        rest -= len(block)
    raise _too_large(most)


def _wait(descriptor: int, end: float) -> None:
    """Wait until something can be read. Raises `OSError` after a while, where the system can tell."""
    import select

    left = end - time.monotonic()
    ready = left > 0
    if ready and hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ready = bool(poll.poll(min(left, _SILENCE) * 1000))
    if not ready and left > _SILENCE:
        raise OSError(errno.ETIMEDOUT, f"nothing came for {_SILENCE:g} seconds")
    if not ready:
        raise OSError(errno.ETIMEDOUT, f"it did not end within {_DURATION:g} seconds")


def _too_large(most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {most:,} bytes")
