"""Read and write cache entries: plain data, under a name that depends on the content from which it was computed.

An entry is replaced as a whole and begins with its own digest: one that is damaged, incomplete or another entry's is
read as absent. One that another user could write is not read either: its data say which address gets a key. A cache
that cannot be read or written only costs time.
"""

from __future__ import annotations

import os

from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.system import files

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL, which takes longer than everything else
except ImportError:  # a Python without this module
    from hashlib import blake2b

__all__ = ["DIGEST", "cache_entry", "digest", "read_entry", "write_entry"]

DIGEST = 32
"""Bytes of a digest."""


def digest(key: bytes, content: bytes | memoryview) -> bytes:
    """Return the digest of a content. `key` names the format of the data computed from it."""
    return blake2b(content, digest_size=DIGEST, key=key).digest()


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
    if _entry_digest(path, blob[DIGEST:]) != blob[:DIGEST]:
        _log("damaged cache entry %s", path)
        return None
    return blob[DIGEST:]


def write_entry(path: str | None, payload: bytes) -> None:
    """Write an entry, if that is possible."""
    if path is None:
        return
    from pathlib import Path

    try:
        files.make_private_folder(Path(path).parent)
        files.write_file(Path(path), _entry_digest(path, payload) + payload, durable=False)
    except OSError as error:
        _log("cache entry %s not written: %s", path, error)


def _entry_digest(path: str, payload: bytes | memoryview) -> bytes:
    """Return a digest of an entry that no other entry has."""
    return blake2b(payload, digest_size=DIGEST, key=os.path.basename(path).encode()).digest()


def _log(message: str, *arguments: object) -> None:
    """Log a message for debugging."""
    import logging

    logging.getLogger("cnllm.registry").debug(message, *arguments)
