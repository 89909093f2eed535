"""Whom to trust, as httpx decides it: SSL_CERT_FILE, SSL_CERT_DIR, or certifi's list."""

from __future__ import annotations

import os
import ssl

__all__ = ["context"]


def context() -> ssl.SSLContext:
    """A context for clients. Reading the certificates takes 20 ms: keep it."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file:
        made = ssl.create_default_context(cafile=file)
    elif folder:
        made = ssl.create_default_context(capath=folder)
    else:
        import certifi

        made = ssl.create_default_context(cafile=certifi.where())
    made.set_alpn_protocols(["http/1.1"])
    return made
