"""Write a reply's id, its counts and its opaque tokens in the form that the client's protocol has, and read the tokens.

A token is the field of a part that clients of a protocol send back unchanged.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import merge_patch
from cnllm.types import Citation, Part, Seal
from cnllm.types.parts import seal_data

__all__ = [
    "TokenField",
    "citation_fields",
    "is_refusal",
    "reply_id",
    "select_keys",
    "stream_id",
    "with_counts",
]


_FOREIGN_PREFIX = r"^(?:chatcmpl|resp|msg|cmpl)[-_]"


def reply_id(id: str | None, prefix: str, *, is_own: bool = False) -> str:
    """Return an id in the form of the client's protocol; a new one for a reply without an id.

    `is_own`: the id comes from an endpoint of the same protocol, and stays as it is.
    """
    if not id:
        return f"{prefix}{uuid4().hex}"
    if is_own or id.startswith(prefix):
        return id
    rest = re.sub(r"[^A-Za-z0-9_-]", "_", re.sub(_FOREIGN_PREFIX, "", id))
    return f"{prefix}{rest or uuid4().hex}"


def is_refusal(extra: Mapping[str, Any]) -> bool:
    """Whether the text of a reply with these data is a refusal of the model."""
    return extra.get("refusal") is True


def citation_fields(citation: Citation, offset: int = 0) -> dict[str, Any]:
    """Return the fields of a source of a text that begins at an offset, as two of the protocols have them.

    The range is empty where the source is for no piece of the text.
    """
    start, end = max((citation.start or 0) - offset, 0), max((citation.end or 0) - offset, 0)
    url, title = citation.url or "", citation.title or citation.url or ""
    return {"start_index": start, "end_index": end, "title": title, "url": url}


def stream_id(id: str, prefix: str) -> str:
    """Return the id of a stream: the caller's own, unless it has the form of another protocol."""
    return id if id.startswith(prefix) else reply_id(id, prefix, is_own=re.match(_FOREIGN_PREFIX, id) is None)


def with_counts(counts: dict[str, Any], extra: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the counts of a protocol with lower-case keys, and the endpoint's own keys beside and inside them.

    `names` renames keys that another protocol calls differently.
    """
    if "usage" not in extra:
        return counts
    out: dict[str, Any] = {}
    for key, value in extra["usage"].items():
        if key.islower():
            out[names.get(key, key)] = value
    merge_patch(out, counts)
    return out


def select_keys(data: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the keys of data with these names, as far as they are there."""
    return {name: data[name] for name in names if name in data}


_STANDARD = str.maketrans("-_", "+/")
"""Clients may encode the bytes with the other alphabet of base64."""


# ── opaque tokens ────────────────────────────────────────────────────────────


class TokenField(Struct, frozen=True):
    """The field of a token in parts of some kinds: a token is read from the first name that has one.

    It is written to the first name.

    `is_bytes`: the field holds bytes in base64, which clients decode and encode again. `base` returns the other data of
    the new seal of a part.
    """

    protocol: str
    kinds: frozenset[type]
    names: tuple[str, ...]
    is_bytes: bool = False
    base: Callable[[Any], Mapping[str, Any]] = lambda part: {}

    def read(self, part: Part) -> str | None:
        """Return the token of a part, or None."""
        data = seal_data(part.seal, self.protocol) if type(part) in self.kinds else {}
        token = next((value for name in self.names if isinstance(value := data.get(name), str) and value), None)
        return _decode(token) if self.is_bytes and token is not None else token

    def write(self, part: Part, token: str) -> Part:
        """Return a part with a token, without its own seal, which belongs to somebody else.

        It is the part itself if it has no field for one.
        """
        if type(part) not in self.kinds:
            return part
        value = base64.b64encode(token.encode()).decode() if self.is_bytes else token
        return replace(part, seal=Seal(self.protocol, "", "", {**self.base(part), self.names[0]: value}))


def _decode(text: str) -> str:
    """Return the token in a field of bytes; the text itself if the bytes are no text."""
    try:
        return base64.b64decode(text.translate(_STANDARD), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return text
