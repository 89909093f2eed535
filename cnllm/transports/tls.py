"""Load the trusted certificates as httpx does: from SSL_CERT_FILE, SSL_CERT_DIR, or certifi."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cnllm.errors import TransportError
from cnllm.system.files import open_private

if TYPE_CHECKING:
    import ssl

__all__ = ["client_context"]

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # the first one counts


def client_context() -> ssl.SSLContext:
    """Return a TLS context for clients. Raise `TransportError`. Reading the certificates takes 20 ms: reuse it."""
    import ssl  # takes 17 ms, which a program that never connects should not pay

    name, path = next(((n, p) for n in _VARIABLES if (p := os.environ.get(n))), ("", ""))
    keylog = os.environ.get("SSLKEYLOGFILE")
    try:
        if keylog:
            os.close(open_private(keylog, os.O_WRONLY | os.O_APPEND | os.O_CREAT))  # else OpenSSL makes it for all
    except OSError as error:
        raise _unusable("SSLKEYLOGFILE", keylog or "", error.strerror) from error
    try:
        if name == "SSL_CERT_DIR":
            os.listdir(path)  # only reads
            context = ssl.create_default_context(capath=path)
        elif name:
            context = ssl.create_default_context(cafile=path)
        else:
            import certifi

            context = ssl.create_default_context(cafile=certifi.where())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError: the file holds no certificate
        reason = getattr(error, "strerror", None) or str(error)
        if not name:
            raise TransportError(
                f"certifi's certificates cannot be read: {reason}", hint="reinstall certifi"
            ) from error
        raise _unusable(name, path, reason) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unusable(name: str, path: str, reason: str | None) -> TransportError:
    return TransportError(f"{name}={path} cannot be used: {reason}", hint=f"correct {name}, or unset it")
