"""Takes secrets out of whatever is shown or stored."""

from __future__ import annotations

import base64
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
"""Shorter secrets are left alone in running text, which they would tear up. Headers are hidden by name."""

_SECRET_WORDS = {"authorization", "auth", "key", "apikey", "token", "secret", "cookie", "password"}
_SECRET_WORDS |= {"credential", "credentials", "signature", "sig"}
_SCHEME = re.compile(r"(Bearer|Basic|Token|Key)\s+\S", re.IGNORECASE)
_QUERY = re.compile(r"([?&;]([^=&;#]*)=)([^&;#]+)")
_USERINFO = re.compile(r"(?:(?<=://)|^(?![a-zA-Z+.-]+://))[^/?#]+@")
_PLAIN = {"accept", "accept-encoding", "accept-language", "content-length", "content-type", "host", "user-agent"}
_PLAIN_ENDS = ("-version", "-beta")
_LIKE_A_KEY = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])(?!.*://)[\x21-\x7e]{16,}")


def redact(text: str, secrets: Iterable[str], *, cut: bool = False) -> str:
    """The text with `[redacted]` for each secret, in whatever spelling (see `cnllm.config.spellings`)."""
    hidden = secrets if type(secrets) is tuple else tuple(secrets)
    if not hidden:
        return text
    found = secret_spans(text, hidden, cut=cut)
    if not found:
        return text
    pieces, at = [], 0
    for start, end in found:
        pieces += [text[at:start], MARK]
        at = end
    return "".join([*pieces, text[at:]])


def secret_spans(text: str, secrets: Iterable[str], *, cut: bool = False) -> list[tuple[int, int]]:
    """Where secrets stand in a text, in any spelling (see `cnllm.config.spellings`), as (start, end) in order.

    None touches another. `cut`: the beginning of a secret counts where the text, or what was taken of it, ends.
    """
    long = tuple(secret for secret in secrets if len(secret) >= SHORTEST)
    return secret_finder(long).spans(text, cut=cut) if long else []


def redact_headers(fields: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """The headers with every value hidden that stands under an auth-like name; a scheme (`Bearer`) stays."""
    hidden = tuple(secrets)
    return {
        name: _hidden_value(value) if is_secret_name(name) else redact(value, hidden) for name, value in fields.items()
    }


def redact_request_headers(fields: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """A request's headers with every value hidden but those that say nothing, and those that hold only `{key}`.

    What a header of the caller's own carries is unknown: `x-team` may be a password. Its name is shown.
    """
    hidden = tuple(secrets)
    return {
        name: redact(value, hidden) if is_harmless_header(name, value) else _hidden_value(value)
        for name, value in fields.items()
    }


def is_harmless_header(name: str, value: str) -> bool:
    """Does a request's header hold nothing that anybody would hide?"""
    if "{key}" in value:
        return value.partition("{key}")[::2] in (("", ""), ("Bearer ", ""), ("Key ", ""), ("Token ", ""))
    return name.lower() in _PLAIN or name.lower().endswith(_PLAIN_ENDS)


def request_secrets(address: str, fields: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets that go with a request: in headers, before the host, and in auth-like parameters of the query.

    A header that is not named like a secret counts where its value looks like one: hiding every word that some
    header holds would tear up what an endpoint says.
    """
    found: list[str] = []
    for name, value in fields.items():
        if "{key}" in value or is_harmless_header(name, value):
            continue
        if is_secret_name(name):
            found += _said(value)
        elif looks_secret(value):
            found.append(value)
    if "@" in address and (before := _USERINFO.search(address)):
        found += _passwords(before[0][:-1])
    if "?" in address:
        found += [each for m in _QUERY.finditer(address) if is_secret_name(m[2]) for each in (m[3], unquote(m[3]))]
    return tuple(dict.fromkeys(secret for secret in found if len(secret) >= SHORTEST))


def looks_secret(value: str) -> bool:
    """Is it long and without a space, of letters and digits, and no address?"""
    return _LIKE_A_KEY.fullmatch(value) is not None


def _said(value: str) -> list[str]:
    """What a header of authorization says, without its scheme; of a name and password, the password."""
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
    """The password of `name:password`; where there is none, the name may be a token."""
    name, colon, password = userinfo.partition(":")
    told = password if colon and password else name
    return [told, unquote(told)]


def redact_url(address: str, secrets: Iterable[str] = ()) -> str:
    """The address without a password and without the values of auth-like query parameters."""
    if "@" in address:
        address = _USERINFO.sub("redacted@", address)
    if "?" in address:
        address = _QUERY.sub(lambda m: m[1] + MARK if is_secret_name(m[2]) else m[0], address)
    return redact(address, secrets)


def redact_cut_data(value: object, secrets: Iterable[str]) -> Any:
    """The same as `data`, also without the beginning of a secret that was cut off."""
    return redact_data(value, secrets, cut=True)


def redact_data(value: object, secrets: Iterable[str], *, cut: bool = False) -> object:
    """What JSON can hold, with every string in it redacted, keys too."""
    hidden = tuple(secrets)
    if not hidden:
        return value
    if isinstance(value, str):
        return redact(value, hidden, cut=cut)
    if isinstance(value, dict):
        return {redact(str(key), hidden, cut=cut): redact_data(item, hidden, cut=cut) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_data(item, hidden, cut=cut) for item in value]
    return value


@lru_cache(maxsize=256)
def is_secret_name(name: str) -> bool:
    """Does a header or parameter of this name carry a secret? `x-api-key` does, `x-limit-tokens` does not."""
    return not _SECRET_WORDS.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def _hidden_value(value: str) -> str:
    scheme = _SCHEME.match(value)
    return f"{scheme[1]} {MARK}" if scheme else MARK
