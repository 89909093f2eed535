"""Whom to trust, as httpx decides it: SSL_CERT_FILE, SSL_CERT_DIR, or certifi's list."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cnllm.errors import TransportError

if TYPE_CHECKING:
    import ssl

__all__ = ["client_context"]

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # the first one counts


def client_context() -> ssl.SSLContext:
    """A context for clients. Reading the certificates takes 20 ms: keep it. Raises `TransportError`."""
    import ssl  # it takes 17 ms, which a program that never connects does without

    name, place = next(((n, p) for n in _VARIABLES if (p := os.environ.get(n))), ("", ""))
    keylog = os.environ.get("SSLKEYLOGFILE")
    try:
        if keylog:
            with open(keylog, "a"):
                pass
    except OSError as error:
        raise _unusable("SSLKEYLOGFILE", keylog or "", error.strerror) from error
    try:
        if name == "SSL_CERT_DIR":
            os.listdir(place)
            made = ssl.create_default_context(capath=place)
        elif name:
            made = ssl.create_default_context(cafile=place)
        else:
            import certifi

            made = ssl.create_default_context(cafile=certifi.where())
    except (OSError, ValueError) as error:  # among the former is ssl.SSLError: it holds no certificate
        said = getattr(error, "strerror", None) or str(error)
        if not name:
            raise TransportError(f"certifi's certificates cannot be read: {said}", hint="reinstall certifi") from error
        raise _unusable(name, place, said) from error
    made.set_alpn_protocols(["http/1.1"])
    return made


def _unusable(name: str, place: str, said: str | None) -> TransportError:
    return TransportError(f"{name}={place} cannot be used: {said}", hint=f"correct {name}, or unset it")
