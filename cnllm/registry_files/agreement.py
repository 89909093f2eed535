"""Judge whether two statements of a limit or a price mean the same."""

from __future__ import annotations

import re

__all__ = ["is_near", "is_rounded", "plain_name", "url_address"]

_LEAST_ROUNDED = 10_000  # tokens; smaller limits are written out
_ROUNDING = 0.005  # of a ratio
_LOCAL = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?![\w.])")


def is_near(a: float, b: float) -> bool:
    """Whether two numbers are equal up to the precision of a float."""
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def is_rounded(a: float, b: float) -> bool:
    """Whether two limits are the same number of K or M, once by 1,000 and once by 1,024, or rounded to three digits."""
    small, large = sorted((a, b))
    if small < _LEAST_ROUNDED:
        return False
    ratio = large / small
    return any(abs(ratio - 1.024**power) <= _ROUNDING for power in (0, 1, 2))


def plain_name(name: str) -> str:
    """Return a name without case and punctuation."""
    return "".join(c for c in name.casefold() if c.isalnum())


def url_address(url: str) -> str:
    """Return a URL without case and scheme; "" for one of this machine."""
    address = url.casefold().partition("://")[2].rstrip("/")
    return "" if _LOCAL.match(address) else address
