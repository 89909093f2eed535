"""Write the counts of a reply with what else the endpoint counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cnllm.jsonpath import merge_patch

__all__ = ["with_counts"]


def with_counts(counts: dict[str, Any], extra: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the counts of a protocol with lower-case keys, and the endpoint's own keys beside and inside them.

    `names` renames keys that another protocol calls differently.
    """
    out: dict[str, Any] = {}
    for key, value in extra.get("usage", {}).items():
        if key.islower():
            out[names.get(key, key)] = value
    merge_patch(out, counts)
    return out
