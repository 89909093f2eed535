"""Tools in strict mode, compared."""

from __future__ import annotations

from typing import Any

STRICTNESS: dict[str, Any] = {"required": list, "additionalProperties": bool, "default": object}


def without_strictness(schema: Any) -> Any:
    """A schema without what the form of strict mode adds or takes away: it demands more than some endpoints do."""
    if isinstance(schema, list):
        return [without_strictness(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    added = {key for key, value in schema.items() if key in STRICTNESS and isinstance(value, STRICTNESS[key])}
    kept = {key: without_strictness(value) for key, value in schema.items() if key not in added}
    branches = [one for one in kept.get("anyOf", []) if one != {"type": "null"}]
    if len(branches) == 1 and len(branches) < len(kept["anyOf"]):
        return {key: value for key, value in kept.items() if key != "anyOf"} | branches[0]
    return kept
