"""Read and write cache entries: plain data, under a name that depends on the content from which it was computed.

An entry is replaced as a whole and begins with its own checksum: one that is damaged, incomplete or another entry's is
read as absent. One that another user could write is not read either: its data say which address gets a key. A cache
that cannot be read or written only costs time.
"""

from __future__ import annotations

import os
from binascii import crc32

from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.system import files

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL, which takes longer than everything else
except ImportError:  # a Python without this module
    from hashlib import blake2b

__all__ = ["CHECKSUM", "cache_entry", "checksum", "digest", "read_entry", "write_entry"]

CHECKSUM = 4
"""Bytes of a checksum."""


def digest(key: bytes, content: bytes | memoryview) -> bytes:
    """Return the digest of a content. `key` names the format of the data computed from it."""
    return blake2b(content, digest_size=32, key=key).digest()


def checksum(kind: bytes, content: bytes | memoryview) -> bytes:
    """Return a checksum that tells damaged content, and content of another kind. A digest takes five times as long."""
    return crc32(content, crc32(kind)).to_bytes(CHECKSUM, "big")


def cache_entry(kind: str, key: bytes, *digests: bytes, person: bytes = b"") -> str | None:
    """Return the path of the entry for contents with these digests; None where there is no cache folder.

    `key` names the format: it changes with the cached data and with the way they are computed.
    """
    try:
        folder = paths.folder("cache")
    except (OSError, RuntimeError, CnllmError) as error:
        _log("no cache folder: %s", error)
        return None
    name = blake2b(b"".join(digests), digest_size=16, key=key, person=person)
    return os.path.join(folder, f"{kind}-{name.hexdigest()}.bin")


def read_entry(path: str | None) -> memoryview | None:
    """Return the content of an entry, or None."""
    if path is None:
        return None
    try:
        content = files.read_safe_file(path)
    except (OSError, ValueError) as error:
        _log("cache entry %s not read: %s", path, error)
        return None
    if content is None:  # as on every first use
        return None
    blob = memoryview(content)
    if checksum(_name(path), blob[CHECKSUM:]) != blob[:CHECKSUM]:
        _log("damaged cache entry %s", path)
        return None
    return blob[CHECKSUM:]


def write_entry(path: str | None, payload: bytes) -> None:
    """Write an entry, if that is possible."""
    if path is None:
        return
    from pathlib import Path

    try:
        files.make_private_folder(Path(path).parent)
        files.write_file(Path(path), checksum(_name(path), payload) + payload, durable=False)
    except OSError as error:
        _log("cache entry %s not written: %s", path, error)


def _name(path: str) -> bytes:
    return os.path.basename(path).encode()


def _log(message: str, *arguments: object) -> None:
    """Log a message for debugging."""
    import logging

    logging.getLogger("cnllm.registry").debug(message, *arguments)
