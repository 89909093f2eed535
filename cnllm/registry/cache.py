"""Entries of the cache: plain data, under a name that only the content it was made from has.

An entry is replaced whole and begins with its own digest, so that one that is damaged, half written or another one's is
read as absent. A cache that cannot be read or written costs time and nothing else.
"""

from __future__ import annotations

import os

from cnllm.config import paths
from cnllm.errors import CnllmError

try:
    from _blake2 import blake2b  # hashlib would bring OpenSSL along, which takes longer than all the rest
except ImportError:  # a Python that was built otherwise
    from hashlib import blake2b

__all__ = ["DIGEST", "cache_entry", "digest", "read_entry", "write_entry"]

DIGEST = 32
"""Bytes of a digest."""


def digest(key: bytes, content: bytes | memoryview) -> bytes:
    """Return the digest of a content. `key` names the format of what is made from it."""
    return blake2b(content, digest_size=DIGEST, key=key).digest()


def cache_entry(kind: str, key: bytes, *contents: bytes, person: bytes = b"") -> str | None:
    """Where what was made from these contents is kept; None where there is no place for a cache.

    `key` names the format: a change of what is kept, or of how it is made, changes it.
    """
    try:
        folder = paths.folder("cache")
    except (OSError, RuntimeError, CnllmError) as error:
        _tell("no cache folder: %s", error)
        return None
    if len(contents) == 1:
        name = blake2b(contents[0], digest_size=16, key=key, person=person)
    else:  # one by one, lest the end of one be taken for the beginning of the next
        each = b"".join(blake2b(content, digest_size=32).digest() for content in contents)
        name = blake2b(each, digest_size=16, key=key, person=person)
    return os.path.join(folder, f"{kind}-{name.hexdigest()}.bin")


def read_entry(place: str | None) -> memoryview | None:
    """What an entry holds, or None."""
    if place is None:
        return None
    try:
        with open(place, "rb") as file:
            blob = memoryview(file.read())
    except OSError:
        return None  # the usual first time
    if _seal(place, blob[DIGEST:]) != blob[:DIGEST]:
        _tell("damaged cache entry %s", place)
        return None
    return blob[DIGEST:]


def write_entry(place: str | None, payload: bytes) -> None:
    """Keeps an entry, if that can be done."""
    if place is None:
        return
    import tempfile
    from pathlib import Path

    from cnllm.config import private_files

    folder = os.path.dirname(place)
    try:
        private_files.make_private_folder(Path(folder))
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(_seal(place, payload) + payload)
        os.replace(name, place)
    except OSError as error:
        _tell("cache entry %s not written: %s", place, error)


def _seal(place: str, payload: bytes | memoryview) -> bytes:
    """A digest of an entry that is that of no other."""
    return blake2b(payload, digest_size=DIGEST, key=os.path.basename(place).encode()).digest()


def _tell(said: str, *more: object) -> None:
    import logging

    logging.getLogger("cnllm.registry").debug(said, *more)
