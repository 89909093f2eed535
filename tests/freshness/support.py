"""Lists, data files and releases that a test writes."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from cnllm import Registry
from cnllm.registry.files import data_folder
from cnllm.registry_files.public_lists import PublicList, published_models
from cnllm.registry_files.updates.changes import Change, find_changes

DAY = datetime.date(2027, 1, 20)  # later than every source of the registry
NAME = "zai/glm-4.7"
ID = "glm-4.7"


def nested(*place: str, **models: Any) -> bytes:
    """A list in the form of models.dev, of one provider: its name and its address, and its models by id."""
    provider, *api = place or ("zai",)
    entry: dict[str, Any] = {"id": provider, "models": models}
    return json.dumps({provider: entry | ({"api": api[0]} if api else {})}).encode()


def flat(*place: str, **models: Any) -> bytes:
    """A list in the form of litellm, of one provider."""
    provider = place[0] if place else "zai"
    base = {"litellm_provider": provider, "mode": "chat"}
    return json.dumps({f"{provider}/{id}": base | model for id, model in models.items()}).encode()


def cost(**prices: float) -> dict[str, float]:
    """Prices for a million tokens in the form of litellm."""
    return {f"{name}_cost_per_token": price / 1e6 for name, price in prices.items()}


def as_list(content: bytes, day: datetime.date = DAY) -> PublicList:
    """The list with this content, of a day."""
    name, models = published_models(content, "list.json")
    return PublicList(name, "https://example.org/list.json", day, models)


def changes(
    *contents: bytes, registry: Registry | None = None, day: datetime.date = DAY
) -> dict[tuple[str, str], Change]:
    """What these lists of a day change, by model and flag."""
    registry = registry or Registry.load()
    own = [document.label for document in registry.documents if not (document.builtin or document.is_data)]
    found = find_changes(registry, [as_list(content, day) for content in contents], own)
    out = {(change.model, change.flag): change for change in found}
    assert len(out) == len(found)
    return out


def write_data(text: str, name: str = "updates.toml") -> Path:
    """Write a data file of this user."""
    path = Path(data_folder()) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_own(text: str) -> Path:
    """Write the user's own registry file."""
    path = Path(data_folder()).parent / "providers.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
