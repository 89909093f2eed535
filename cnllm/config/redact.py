"""Remove secrets from text and data before they are shown or stored."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from cnllm.config.spellings import secret_finder

__all__ = [
    "MARK",
    "redact",
    "redact_data",
    "redact_headers",
    "redact_request_headers",
    "redact_url",
    "request_secrets",
    "secret_spans",
]

MARK = "[redacted]"
SHORTEST = 4
"""Shorter secrets are not removed from running text, which would damage it. Headers are hidden by name."""

_SECRET_WORDS = {"authorization", "auth", "key", "apikey", "token", "secret", "cookie", "password"}
_SECRET_WORDS |= {"credential", "credentials", "signature", "sig"}
_SCHEME = re.compile(r"(Bearer|Basic|Token|Key)\s+\S", re.IGNORECASE)
_QUERY = re.compile(r"([?&;]([^=&;#]*)=)([^&;#]+)")
_USERINFO = r"(?:(?<=://)|^(?![a-zA-Z+.-]+://))[^/?#]+@"
_PLAIN = {"accept", "accept-encoding", "accept-language", "content-length", "content-type", "host", "user-agent"}
_PLAIN_ENDS = ("-version", "-beta")
_KEY_SHAPE = r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])(?!.*://)[\x21-\x7e]{16,}"


def redact(text: str, secrets: Iterable[str], *, cut: bool = False, begin: int = 0) -> str:
    """Return the text with `[redacted]` for each secret in any spelling (see `cnllm.config.spellings`).

    With `begin` it is the text from that index on: what stands before it went out already.
    """
    needles = secrets if type(secrets) is tuple else tuple(secrets)
    spans = secret_spans(text, needles, cut=cut) if needles else []
    if not spans:
        return text[begin:]
    pieces, position = [], begin
    for start, end in spans:
        if end > position:
            pieces += [text[position : max(start, position)], MARK]
            position = end
    return "".join([*pieces, text[position:]])


def secret_spans(text: str, secrets: Iterable[str], *, cut: bool = False) -> list[tuple[int, int]]:
    """Return the places of secrets in a text, in any spelling (see `cnllm.config.spellings`), as sorted (start, end).

    No two overlap. With `cut` the beginning of a secret counts at the end of the text.
    """
    searchable = tuple(secret for secret in secrets if len(secret) >= SHORTEST)
    return secret_finder(searchable).spans(text, cut=cut) if searchable else []


def redact_headers(fields: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """Return headers with every value hidden under an auth-like name. A scheme (`Bearer`) stays."""
    needles = tuple(secrets)
    return {
        name: _hidden_value(value) if is_secret_name(name) else redact(value, needles) for name, value in fields.items()
    }


def redact_request_headers(fields: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """Return a request's headers with only harmless values shown, and values that hold only `{key}`.

    A caller's own header may carry anything: `x-team` may be a password. Its name is shown.
    """
    needles = tuple(secrets)
    return {
        name: redact(value, needles) if is_harmless_header(name, value) else _hidden_value(value)
        for name, value in fields.items()
    }


def is_harmless_header(name: str, value: str) -> bool:
    """Whether a request's header holds nothing secret."""
    if "{key}" in value:
        return value.partition("{key}")[::2] in (("", ""), ("Bearer ", ""), ("Key ", ""), ("Token ", ""))
    return name.lower() in _PLAIN or name.lower().endswith(_PLAIN_ENDS)


def request_secrets(address: str, fields: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets of a request: in headers, before the host, and in auth-like query parameters.

    A header with a harmless name counts only where its value looks like a secret: hiding every word of every header
    would damage an endpoint's text.
    """
    secrets: list[str] = []
    for name, value in fields.items():
        if "{key}" in value or is_harmless_header(name, value):
            continue
        if is_secret_name(name):
            secrets += _authorization_secrets(value)
        elif looks_secret(value):
            secrets.append(value)
    if "@" in address and (userinfo := re.search(_USERINFO, address)):
        secrets += _passwords(userinfo[0][:-1])
    if "?" in address:
        secrets += [text for m in _QUERY.finditer(address) if is_secret_name(m[2]) for text in (m[3], unquote(m[3]))]
    return tuple(dict.fromkeys(secret for secret in secrets if len(secret) >= SHORTEST))


def proxy_secrets() -> tuple[str, ...]:
    """Return the passwords in the proxy addresses of the environment, and what a proxy gets of them."""
    secrets: list[str] = []
    for name, address in os.environ.items():
        if name.lower().endswith("_proxy") and "@" in address:
            secrets += request_secrets(address if "://" in address else f"http://{address}", {})
            userinfo = address.rpartition("@")[0].rpartition("//")[2]
            for text in (userinfo, unquote(userinfo)):
                pair = text if ":" in text else f"{text}:"
                secrets.append(base64.b64encode(pair.encode("utf-8", "surrogateescape")).decode())
    return tuple(dict.fromkeys(secrets))


def looks_secret(value: str) -> bool:
    """Whether a value is long, without a space, of letters and digits, and no address."""
    return re.fullmatch(_KEY_SHAPE, value) is not None


def _authorization_secrets(value: str) -> list[str]:
    """Return the secrets of an authorization header, without its scheme; of a name and password, the password."""
    scheme, _, rest = value.partition(" ")
    bare = rest.strip() if rest and scheme.isalpha() else value
    if scheme.lower() != "basic":
        return [bare]
    try:
        decoded = base64.b64decode(bare, validate=True).decode()
    except ValueError:
        return [bare]
    return [bare, *_passwords(decoded)]


def _passwords(userinfo: str) -> list[str]:
    """Return the password of `name:password`. Without one, the name may be a token."""
    name, colon, password = userinfo.partition(":")
    secret = password if colon and password else name
    return [secret, unquote(secret)]


def redact_url(address: str, secrets: Iterable[str] = ()) -> str:
    """Return the address without a password and without the values of auth-like query parameters."""
    if "@" in address:
        address = re.sub(_USERINFO, "redacted@", address)
    if "?" in address:
        address = _QUERY.sub(lambda m: m[1] + MARK if is_secret_name(m[2]) else m[0], address)
    return redact(address, secrets)


def redact_data(value: Any, secrets: Iterable[str], *, cut: bool = False) -> Any:
    """Return JSON data with every string redacted, keys too. With `cut` the beginning of a secret counts at an end."""
    needles = tuple(secrets)
    if not needles:
        return value
    if isinstance(value, str):
        return redact(value, needles, cut=cut)
    if isinstance(value, dict):
        return {redact(str(key), needles, cut=cut): redact_data(item, needles, cut=cut) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_data(item, needles, cut=cut) for item in value]
    return value


@lru_cache(maxsize=256)
def is_secret_name(name: str) -> bool:
    """Whether a header or parameter of this name carries a secret: `x-api-key` does, `x-limit-tokens` does not."""
    return not _SECRET_WORDS.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def _hidden_value(value: str) -> str:
    scheme = _SCHEME.match(value)
    return f"{scheme[1]} {MARK}" if scheme else MARK
