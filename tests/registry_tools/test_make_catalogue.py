"""What `maintenance.catalogue` takes over from two lists."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from maintenance.catalogue import catalogue, read_list, read_package

COST = {"input": 2, "output": 10, "cache_read": 0.2, "cache_write": 2.5}
CHAT = {"modalities": {"input": ["text", "image", "video"], "output": ["text"]}, "tool_call": True}


def lists(folder: Path, models: dict[str, Any], pi: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the catalogue of one provider from a list of models.dev and a newer package of pi-ai."""
    table = {"npm": "@ai-sdk/openai-compatible", "api": "https://api.example.com/v1", "env": ["EXAMPLE_KEY"]}
    file = folder / "api-2026-09-30.json"
    file.write_text(json.dumps({"example": {**table, "models": models}}))
    package = folder / "pi-ai-2026-11-10"
    data = package / "dist/providers/data"
    data.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "1.5.2"}')
    entries = {wire: {id: {"id": id, **entry} for id, entry in found.items()} for wire, found in pi.items()}
    (data / "example.json").write_text(json.dumps(entries))
    return tomllib.loads(catalogue([read_list(file), read_package(package)]))


def test_dearer_tiers_and_the_longest_input_are_taken_over(tmp_path: Path) -> None:
    tiers = [{"input": 4, "output": 15, "tier": {"type": "context", "size": 272_000}}]
    copied = {**CHAT, "limit": {"context": 200_000, "input": 200_000, "output": 8_000}}
    model = {
        **CHAT,
        "limit": {"context": 400_000, "input": 272_000, "output": 128_000},
        "cost": {**COST, "tiers": tiers},
    }
    over = {**CHAT, "limit": {}, "cost": {**COST, "context_over_200k": {"input": 4, "output": 15}}}
    made = lists(tmp_path, {"a": model, "b": copied, "c": over}, {})["models"]
    assert made["example/a"]["limits"] == {"context": 400_000, "input": 272_000, "output": 128_000}
    assert made["example/a"]["price"]["tiers"] == [{"above": 272_000, "input": 4, "output": 15}]
    assert made["example/b"]["limits"] == {"context": 200_000, "output": 8_000}
    assert made["example/c"]["price"]["tiers"] == [{"above": 200_000, "input": 4, "output": 15}]


def test_a_newer_list_decides_limits_and_prices(tmp_path: Path) -> None:
    old = {**CHAT, "limit": {"context": 200_000, "output": 8_000}, "cost": COST}
    new = {
        "input": ["text"],
        "contextWindow": 400_000,
        "maxTokens": 8_000,
        "cost": {"input": 1, "output": 5, "cacheRead": 0},
    }
    made = lists(tmp_path, {"a": old}, {"openai-completions": {"a": new, "b": new}})
    assert made["models"]["example/a"] == {
        "limits": {"context": 400_000, "output": 8_000},
        "price": {"currency": "USD", "input": 1, "output": 5},
        "input": ["text", "image", "video"],
        "tools": {"supported": True},
        "sources": {"pi-ai": ["limits", "price"]},
    }
    assert made["models"]["example/b"]["sources"] == {"pi-ai": ["limits", "price", "input", "tools"]}
    assert made["sources"]["pi-ai"]["url"].endswith("/1.5.2")


def test_a_list_without_words_for_video_does_not_take_it_away(tmp_path: Path) -> None:
    """models.dev has the model at another wire, so that it comes from pi-ai, which knows text and pictures alone."""
    old = {**CHAT, "limit": {"context": 200_000, "output": 8_000}, "provider": {"npm": "@ai-sdk/openai"}}
    new = {"input": ["text", "image"], "contextWindow": 200_000, "maxTokens": 8_000, "cost": COST}
    made = lists(tmp_path, {"a": old, "c": {**CHAT, "limit": {}}}, {"openai-completions": {"a": new, "b": new}})
    assert made["models"]["example/a"]["input"] == ["text", "image", "video"]
    assert made["models"]["example/a"]["sources"] == {"pi-ai": ["limits", "price", "tools"]}
    assert "models.input" in made["providers"]["example"]["sources"]["list1"]["backs"]
    assert made["models"]["example/b"]["input"] == ["text", "image"]


def test_other_wires_and_batches_are_left_out(tmp_path: Path) -> None:
    entry = {"input": ["text"], "contextWindow": 1_000, "maxTokens": 100, "cost": {"input": 0, "output": 0}}
    pi = {
        "bedrock-converse-stream": {"a": entry},
        "openai-completions": {"b:batch": entry, "c-batch": entry, "d:free": entry, "e": entry},
    }
    made = lists(tmp_path, {}, pi)["models"]
    assert sorted(made) == ["example/d:free", "example/e"]
    assert made["example/d:free"]["price"]["input"] == 0
    assert "price" not in made["example/e"]
