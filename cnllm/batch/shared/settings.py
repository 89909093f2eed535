"""Make the settings that travel to the workers: names and numbers, no key and no client."""

from __future__ import annotations

import os
from typing import Any, Unpack
from uuid import uuid4

from msgspec import Struct

from cnllm.batch.settings import AllowanceOptions, BatchSettings, make_settings
from cnllm.client.async_client import AsyncClient
from cnllm.config import keys, redact
from cnllm.errors import CnllmError
from cnllm.registry import Registry
from cnllm.registry.documents import Document
from cnllm.registry.model import Model
from cnllm.registry.read import builtin_path, read
from cnllm.registry.sites import choose_site
from cnllm.types import checks
from cnllm.types.call_options import CallOptions
from cnllm.types.policy import Fallback

__all__ = ["ModelOptions", "ModelSettings", "model_settings"]

_OWN = ("base_url", "id_column", "key_env", "prefix", "protocol")
_ELSEWHERE = (
    *("transport", "out", "order", "cache", "changed", "unsure", "strict", "format", "encoding", "group_by", "plot"),
    *("max_steps", "approve", "on_progress", "on_step"),
)


class ModelOptions(AllowanceOptions, CallOptions, total=False):
    """The options of `cnllm.ray.Model`: its own, those of a batch for all workers together, and those of a call."""

    id_column: str
    prefix: str
    state: str | os.PathLike[str] | None
    key_env: str | None
    base_url: str | None
    protocol: str | None


class ModelSettings(Struct, frozen=True, kw_only=True):
    """The model of a dataset. `documents` are the registry files beside the built-in one. `run` names the budget."""

    name: str
    documents: tuple[Document, ...]
    run: str
    batch: BatchSettings
    state: str | None
    protocol: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    id_column: str = "id"
    prefix: str = ""

    def registry(self) -> Registry:
        """Return the registry as the driver had it, whatever files the node has."""
        return Registry([read(builtin_path(), builtin=True), *self.documents])

    def model(self, registry: Registry) -> Model:
        """Return the model."""
        return choose_site(registry, self.name, protocol=self.protocol, base_url=self.base_url, key_env=self.key_env)


def model_settings(name: str, **options: Unpack[ModelOptions]) -> ModelSettings:
    """Return the settings of a model. Raises what is wrong with them before any worker starts."""
    rest: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    for option in _OWN:
        if option in rest:
            checks.require_text(option, rest[option])
    if "state" in rest:
        checks.require_path("state", rest["state"])
    if "fallback" in rest:
        Fallback.of(rest["fallback"])
    _refuse_secrets(rest, rest.get("base_url"), rest.get("key_env"))
    for option in _ELSEWHERE:
        if option in rest:
            raise TypeError(
                f"{option} is not an option of cnllm.ray.Model; `cnllm batch --ray` has what belongs to a file"
            )
    registry, state = rest.pop("registry", None) or Registry.load(), rest.pop("state", None)
    own = {option: rest.pop(option) for option in _OWN if option in rest}
    batch = make_settings((), name, out="dataset", **rest)
    settings = ModelSettings(
        name=name,
        documents=tuple(document for document in registry.documents if not document.builtin),
        run=uuid4().hex,
        batch=batch,
        state=None if state is None else os.path.abspath(state),
        **own,
    )
    model = settings.model(registry)
    for document in settings.documents:
        _refuse_secrets_in(document)
    AsyncClient(registry, simulate=batch.simulate).plan(model, "Hello", stream=False, **batch.options)
    return settings


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
