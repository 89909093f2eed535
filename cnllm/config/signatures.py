"""Sign files with an Ed25519 key, and check such signatures. The package cryptography is optional: `upgrade`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["is_signed", "public_bytes", "read_signing_key"]


def read_signing_key(pem: bytes, label: str) -> Ed25519PrivateKey:
    """Return the key in a PEM file. Raise `CnllmError` where it holds none, or cryptography is not installed."""
    _, ed25519, serialization = _cryptography()
    try:
        key: Any = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:  # a key with a password is a TypeError
        raise CnllmError(f"{label} holds no key without a password", hint=_HOW) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise CnllmError(f"{label} holds no Ed25519 key", hint=_HOW)
    found: Ed25519PrivateKey = key
    return found


_HOW = "openssl genpkey -algorithm ed25519 -out KEY.pem"


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """Return the 32 bytes of the public key."""
    _, _, serialization = _cryptography()
    raw: bytes = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return raw


def is_signed(content: bytes, signature: bytes, key: bytes) -> bool:
    """Whether a public key signed a content. Raise `CnllmError` where cryptography is not installed."""
    exceptions, ed25519, _ = _cryptography()
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except (exceptions.InvalidSignature, ValueError):
        return False
    return True


def _cryptography() -> tuple[Any, Any, Any]:
    """Return its modules: exceptions, ed25519, serialization."""
    try:
        from cryptography import exceptions
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        from cnllm.config.distribution import install_command

        message = "cryptography, which checks signatures, is not installed"
        raise CnllmError(message, hint=install_command("upgrade")) from error
    return exceptions, ed25519, serialization
