"""Reduce a public list to what `registry update` reads, as test data.

`python -m maintenance.reduced_lists FILE OUT.json.xz`; FILE is api.json of models.dev or the file of prices of LiteLLM
(model_prices_and_context_window.json). The same file gives the same bytes.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NESTED = {
    "limit": {"context": None, "output": None},
    "cost": {
        "input": None,
        "output": None,
        "cache_read": None,
        "cache_write": None,
        "tiers": None,
        "context_over_200k": None,
    },
    "modalities": {"input": None, "output": None},
    "reasoning": None,
    "reasoning_options": None,
    "status": None,
    "provider": None,
}
_FLAT = {
    "litellm_provider": None,
    "mode": None,
    "max_input_tokens": None,
    "max_output_tokens": None,
    "input_cost_per_token": None,
    "output_cost_per_token": None,
    "cache_read_input_token_cost": None,
    "cache_creation_input_token_cost": None,
    "supported_modalities": None,
}


def reduced(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a list with the fields that an update reads."""
    if any("litellm_provider" in entry for entry in data.values()):
        return {name: _flat(entry) for name, entry in data.items() if name != "sample_spec"}
    return {
        provider: {
            **({"api": entry["api"]} if entry.get("api") else {}),
            "models": {id: _kept(model, _NESTED) for id, model in entry["models"].items()},
        }
        for provider, entry in data.items()
    }


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of LiteLLM; that a long request costs more is one field."""
    tiers = {"input_cost_per_token_above_200k_tokens": 0} if any("_above_" in key for key in entry) else {}
    return {**_kept(entry, _FLAT), **tiers}


def _kept(table: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named fields of a table."""
    return {
        name: _kept(table[name], inner) if isinstance(inner, dict) and isinstance(table[name], dict) else table[name]
        for name, inner in fields.items()
        if table.get(name) is not None
    }


def main() -> None:
    """Write the reduced list."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    text = json.dumps(reduced(json.loads(Path(sys.argv[1]).read_bytes())), separators=(",", ":"), ensure_ascii=False)
    Path(sys.argv[2]).write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
