"""Make the settings that travel to the workers: names and numbers, no key and no client."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from msgspec import Struct

from cnllm.batch.settings import BatchSettings, make_settings
from cnllm.client.async_client import AsyncClient
from cnllm.config import keys, redact
from cnllm.errors import CnllmError
from cnllm.registry import Registry
from cnllm.registry.documents import Document
from cnllm.registry.model import Model
from cnllm.registry.read import builtin_path, read

__all__ = ["ModelSettings", "model_settings"]

_ELSEWHERE = (
    *("transport", "out", "order", "cache", "changed", "unsure", "strict", "format", "encoding", "group_by", "plot"),
    *("max_steps", "approve", "on_progress", "on_step"),
)


class ModelSettings(Struct, frozen=True, kw_only=True):
    """The model of a dataset. `documents` are the registry files beside the built-in one. `run` names the budget."""

    name: str
    protocol: str | None
    base_url: str | None
    documents: tuple[Document, ...]
    key_env: str | None
    id_column: str
    prefix: str
    state: str | None
    run: str
    batch: BatchSettings

    def registry(self) -> Registry:
        """Return the registry as the driver had it, whatever files the node has."""
        return Registry([read(builtin_path(), builtin=True), *self.documents])

    def model(self, registry: Registry) -> Model:
        """Return the model."""
        return registry.resolve(self.name, protocol=self.protocol, base_url=self.base_url)


def model_settings(
    name: str,
    *,
    key_env: str | None,
    base_url: str | None,
    protocol: str | None,
    registry: Registry | None,
    id_column: str,
    prefix: str,
    state: str | None,
    settings: dict[str, Any],
) -> ModelSettings:
    """Return the settings of a model. Raises what is wrong with them before any worker starts."""
    _refuse_secrets(settings, base_url, key_env)
    for option in _ELSEWHERE:
        if option in settings:
            raise TypeError(f"{option} is no option of cnllm.ray.Model; `cnllm batch --ray` has what belongs to a file")
    registry = Registry.load() if registry is None else registry
    batch = make_settings((), name, out="dataset", **settings)
    made = ModelSettings(
        name=name,
        protocol=protocol,
        base_url=base_url,
        documents=tuple(document for document in registry.documents if not document.builtin),
        key_env=key_env,
        id_column=id_column,
        prefix=prefix,
        state=state,
        run=uuid4().hex,
        batch=batch,
    )
    model = made.model(registry)
    for document in made.documents:
        _refuse_secrets_in(document)
    AsyncClient(registry, simulate=batch.simulate).plan(model, "Hello", stream=False, **batch.options)
    return made


def _refuse_secrets(settings: dict[str, Any], base_url: str | None, key_env: str | None) -> None:
    """Raise for a key among the options: they travel to the workers in pickles, which others can read."""
    if settings.get("api_key") is not None or settings.get("api_keys"):
        raise TypeError(
            "cnllm.ray.Model takes no key: its options travel between processes. Each node reads the key from its own "
            'environment or its keys file (`cnllm keys set NAME`); key_env="NAME" names another variable'
        )
    if key_env is not None and not keys.NAME.fullmatch(key_env):
        raise ValueError('key_env takes the name of a variable, not a key; for example: key_env="MY_API_KEY"')
    if redact.request_secrets(base_url or "", dict(settings.get("extra_headers") or {})):
        raise CnllmError(
            "base_url or extra_headers hold a secret, which would travel to the workers",
            hint="leave it out, and name the variable that holds it on each node: key_env=…",
        )


def _refuse_secrets_in(document: Document) -> None:
    """Raise for a registry file with a key in its headers or addresses, since it travels, too."""
    for section in ("providers", "models"):
        for name, table in document.data.get(section, {}).items():
            headers = {key: value for key, value in (table.get("headers") or {}).items() if isinstance(value, str)}
            if redact.request_secrets(str(table.get("base_url") or ""), headers):
                raise CnllmError(
                    f"{document.label}: {section}.{name} holds a secret, which would travel to the workers",
                    hint="write {key} in its place, and set the key on each node",
                )
