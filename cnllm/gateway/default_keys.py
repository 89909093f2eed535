"""The keys that seal reasoning into tokens: those of the configuration folder, or keys of this process."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import logging
import secrets
import threading
import zlib
from importlib import util

from cnllm.errors import CnllmError
from cnllm.gateway.thoughts import TokenKeys
from cnllm.gateway.tokens import MAX_PAYLOAD, PREFIX, Keyring
from cnllm.system.processes import fork_safe

__all__ = ["DefaultKeys", "ProcessKeys", "process_keys"]

_log = logging.getLogger("cnllm.gateway")
_MARK = b"process:"  # no other token begins so
_DIGEST = 32


class DefaultKeys:
    """The keys of the configuration folder, loaded at their first use; keys of this process where that fails."""

    def __init__(self) -> None:
        self._keys: TokenKeys | None = None
        self._lock = fork_safe(threading.Lock())

    def seal(self, identity: str, payload: bytes) -> str:
        """Return a token."""
        return self._loaded().seal(identity, payload)

    def open(self, identity: str, token: str) -> bytes | None:
        """Return the payload of a token; None for one that these keys did not seal."""
        return self._loaded().open(identity, token)

    def _loaded(self) -> TokenKeys:
        """Return the keys."""
        with self._lock:
            if self._keys is None:
                self._keys = _load()
            return self._keys


def _load() -> TokenKeys:
    """Return the keys of the configuration folder, or those of this process."""
    try:
        return Keyring.load()
    except CnllmError as error:
        hint = f"; {error.hint}" if error.hint else ""
        level = logging.WARNING if util.find_spec("cryptography") else logging.INFO  # the package is optional
        _log.log(level, "tokens that hold reasoning are valid in this process only: %s%s", error.message, hint)
        return process_keys()


@functools.cache
def process_keys() -> ProcessKeys:
    """Return the keys of this process and its children."""
    return ProcessKeys(secrets.token_bytes(32))


class ProcessKeys:
    """Signs tokens with a key that nothing stores. The program that gets a token can read it, but not change it."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, identity: str, payload: bytes) -> str:
        """Return a token."""
        content = zlib.compress(payload, 1)
        data = _MARK + self._digest(identity, content) + content
        return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def open(self, identity: str, token: str) -> bytes | None:
        """Return the payload of a token; None for one that this process did not sign."""
        text = token.removeprefix(PREFIX)
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (binascii.Error, ValueError):
            return None
        digest, content = data[len(_MARK) : len(_MARK) + _DIGEST], data[len(_MARK) + _DIGEST :]
        if not data.startswith(_MARK) or not hmac.compare_digest(digest, self._digest(identity, content)):
            return None
        return zlib.decompressobj().decompress(content, MAX_PAYLOAD)

    def _digest(self, identity: str, content: bytes) -> bytes:
        """Return the digest of a token's content."""
        owner = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest()
        return hmac.digest(self._key, owner + content, "sha256")

    def __repr__(self) -> str:
        return "<ProcessKeys>"
