"""Put the names of tools into a form that the endpoint accepts.

A name gets the same form each time, so that prompt caches hit.
"""

from __future__ import annotations

import re

from cnllm.protocols.call_ids import matches_pattern
from cnllm.registry.flags import Tools

__all__ = ["accepted_name", "distinct_name"]

_USUAL_LENGTH = 64  # where a name has to be changed and no limit is known
_REFUSED = re.compile(r"[^A-Za-z0-9_-]+")


def accepted_name(name: str, rules: Tools) -> tuple[str, str] | None:
    """Return a form of a name that the endpoint accepts, and the flag that requires it; None for an accepted name.

    Characters that may not stand in a name become an underscore. Where letters are lost in that way, or the name is
    too long, it ends with digits of its own.
    """
    longest, pattern = rules.name_max_length, rules.name_pattern
    is_long = longest is not None and len(name) > longest
    if matches_pattern(pattern, name):
        return (distinct_name(name, rules), "tools.name_max_length") if is_long else None
    has_lost = is_long or any(char.isalnum() for text in _REFUSED.findall(name) for char in text)
    short = _plain_form(name, pattern)
    if has_lost or (longest is not None and len(short) > longest):
        short = distinct_name(name, rules)
    return (short, "tools.name_pattern") if matches_pattern(pattern, short) else None  # nothing is known to match


def distinct_name(name: str, rules: Tools) -> str:
    """Return a form of a name that no other name has."""
    import hashlib  # loads OpenSSL, so only where it is needed

    longest = rules.name_max_length if rules.name_max_length is not None else _USUAL_LENGTH
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    if longest <= 9:
        return digest[:longest]
    plain = name if matches_pattern(rules.name_pattern, name) else _plain_form(name, rules.name_pattern)
    return f"{plain[: longest - 9]}_{digest}"


def _plain_form(name: str, pattern: str | None) -> str:
    """Return a name without the characters that endpoints refuse; it begins with a letter where it has to."""
    plain = _REFUSED.sub("_", name)
    return plain if matches_pattern(pattern, plain) else f"tool_{plain}"
