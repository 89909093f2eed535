"""The settings of a `prompt` on a worker: plain values that may travel, and no key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from cnllm.client.sync_client import Client
from cnllm.config import redact
from cnllm.config.settings_files import default_model
from cnllm.errors import CnllmError
from cnllm.registry import Registry, tiers
from cnllm.registry.model import Model
from cnllm.registry.sites import choose_site
from cnllm.tools import has_sets
from cnllm.types import checks
from cnllm.types.policy import Retry

__all__ = ["PromptSettings", "read_settings", "refuse_keys", "resolve_model"]

_OWN = ("base_url", "concurrency", "max_retries", "on_error", "protocol", "simulate")
_ON_ERROR = ("raise", "log", "ignore")
_ADVICE = "each worker reads keys from its own environment or keys file: export them there, or `cnllm keys set NAME`"


class PromptSettings(Struct, frozen=True, kw_only=True):
    """The settings of a `prompt`. `options` are those of each call; `as_answer` makes each row an `Answer`."""

    provider: str
    model: str
    options: dict[str, Any]
    as_answer: bool = False
    base_url: str | None = None
    protocol: str | None = None
    concurrency: int = 64
    max_retries: int | None = None
    on_error: Literal["raise", "log", "ignore"] = "raise"
    simulate: bool = False

    @property
    def retry(self) -> Retry | None:
        """Return the settings for retries; None for those of the process."""
        return None if self.max_retries is None else Retry(attempts=self.max_retries + 1)


def read_settings(
    provider: str, model: str | None, schema: Any, system: str | None, values: Mapping[str, Any], *, as_answer: bool
) -> PromptSettings:
    """Return the settings of a `prompt`, with the model and the options checked against the registry.

    Raises `TypeError` or `ValueError` for a wrong option, `UnknownModel`, and `CnllmError` for an option with a key.
    """
    own = {name: values[name] for name in _OWN if values.get(name) is not None}
    options = {name: value for name, value in values.items() if name not in _OWN and value is not None}
    for name, value, argument in (("schema", schema, "return_format"), ("system", system, "system_message")):
        if value is not None:
            if name in options:
                raise TypeError(f"{name} and {argument} are the same: give one of them")
            options[name] = value
    _check_own(own)
    refuse_keys(values)
    settings = PromptSettings(provider=provider, model=_model_name(model), options=options, as_answer=as_answer, **own)
    if not settings.model.startswith(tiers.PREFIX):  # a tier takes the first model with a key, which workers have
        with Client(simulate=settings.simulate) as client:
            client.plan(resolve_model(client.registry, settings), "Hello", **options)
    return settings


def resolve_model(registry: Registry, settings: PromptSettings) -> str | Model:
    """Return the model of a `prompt`: a name, or a `Model` where the endpoint is the caller's own."""
    if settings.base_url is None and settings.protocol is None:
        return settings.model
    return choose_site(registry, settings.model, protocol=settings.protocol, base_url=settings.base_url)


def _model_name(model: str | None) -> str:
    if model is not None:
        if not isinstance(model, str):
            raise checks.wrong_type("model", model, "the name of a model")
        return model
    default = default_model()
    if default is None:
        raise CnllmError("no model is given", hint='prompt(…, model="PROVIDER/ID"), or provider(model=…)')
    return default[0]


def _check_own(own: Mapping[str, Any]) -> None:
    checks.number("concurrency", own.get("concurrency"), 1, none=True)
    checks.number("max_retries", own.get("max_retries"), 0, none=True)
    if own.get("on_error", "raise") not in _ON_ERROR:
        raise checks.wrong_value("on_error", own["on_error"], '"raise", "log" or "ignore"')


def refuse_keys(options: Mapping[str, Any]) -> None:
    """Raise `CnllmError` for what holds a key, or may: a `prompt` is pickled, and its options may be logged."""
    if options.get("api_key") is not None:
        raise CnllmError("api_key would travel to the workers with the query", hint=_ADVICE)
    if redact.request_secrets(options.get("base_url") or "", {}):
        raise CnllmError("base_url holds a password or a key, which would travel to the workers", hint=_ADVICE)
    headers = options.get("extra_headers")
    if isinstance(headers, Mapping) and redact.request_secrets("", dict(headers)):
        raise CnllmError("extra_headers hold a key, which would travel to the workers with the query", hint=_ADVICE)
    if has_sets(options.get("tools")):
        raise CnllmError("a set of tools belongs to one process", hint="give the definitions of the tools instead")
