"""Settings from the environment: how long to wait, how often to try, how much to take, for clients that are not told
otherwise.

pydantic-settings reads and checks them. It takes longer to import than a short call takes, so plain numbers are read
without it; whatever else is said is its business.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from cnllm.errors import CnllmError
from cnllm.types.policy import Limits, Retry, Timeouts

__all__ = ["VARIABLES", "Settings", "read_settings"]

VARIABLES = {
    "CNLLM_TIMEOUT": "seconds, for all four of the waits below",
    "CNLLM_CONNECT_TIMEOUT": "seconds until there is a connection",
    "CNLLM_FIRST_BYTE_TIMEOUT": "seconds until the status line",
    "CNLLM_IDLE_TIMEOUT": "seconds between any two bytes of a reply",
    "CNLLM_PROGRESS_TIMEOUT": "seconds between two pieces of what the model says",
    "CNLLM_ATTEMPTS": "how often a call is tried in all",
    "CNLLM_MAX_REPLY_BYTES": "bytes of a reply that are taken",
    "CNLLM_MAX_EVENT_BYTES": "bytes of one event of a stream that are taken",
}
"""The variables that are read here, each with what it sets."""
_WHOLE = frozenset({"CNLLM_ATTEMPTS", "CNLLM_MAX_REPLY_BYTES", "CNLLM_MAX_EVENT_BYTES"})


class Settings(Struct, frozen=True):
    """What the environment asks for."""

    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    limits: Limits = Limits()


def read_settings() -> Settings:
    """The settings in force. Raises `CnllmError` naming a variable whose value is no number or out of range."""
    if not any(os.environ.get(name) for name in VARIABLES):
        return Settings()
    read = _plain() or _read()
    base = Timeouts.of(read["timeout"])
    waits = {name: read[f"{name}_timeout"] for name in ("connect", "first_byte", "idle", "progress")}
    return Settings(
        timeouts=Timeouts(**{name: getattr(base, name) if value is None else value for name, value in waits.items()}),
        retry=Retry() if read["attempts"] is None else Retry(attempts=read["attempts"]),
        limits=Limits(**{name: read[name] for name in Limits.__struct_fields__ if read[name] is not None}),
    )


def _plain() -> dict[str, Any] | None:
    """The same as `_read` where there is nothing but plain numbers under these very names; None where there is more."""
    given = {name: value for name, value in os.environ.items() if name.upper() in VARIABLES and value}
    read: dict[str, Any] = {name.removeprefix("CNLLM_").lower(): None for name in VARIABLES}
    for name, value in given.items():
        whole, _, part = value.partition(".")
        digits = whole + part if name not in _WHOLE else value
        plain = name in VARIABLES and digits.isascii() and digits.isdigit() and len(whole) > 0 and len(digits) < 10
        if not plain or not int(digits) or value.endswith("."):
            return None
        read[name.removeprefix("CNLLM_").lower()] = int(value) if name in _WHOLE else float(value)
    return read


def _read() -> dict[str, Any]:
    from pydantic import Field, ValidationError
    from pydantic_settings import BaseSettings, SettingsConfigDict

    class Environment(BaseSettings):
        model_config = SettingsConfigDict(env_prefix="CNLLM_", extra="ignore", env_ignore_empty=True)

        timeout: float | None = Field(None, gt=0)
        connect_timeout: float | None = Field(None, gt=0)
        first_byte_timeout: float | None = Field(None, gt=0)
        idle_timeout: float | None = Field(None, gt=0)
        progress_timeout: float | None = Field(None, gt=0)
        attempts: int | None = Field(None, ge=1)
        max_reply_bytes: int | None = Field(None, ge=1)
        max_event_bytes: int | None = Field(None, ge=1)

    try:
        return Environment().model_dump()  # type: ignore[call-arg]
    except ValidationError as error:
        first = error.errors()[0]
        name = f"CNLLM_{str(first['loc'][0]).upper()}"
        raise CnllmError(
            f"{name}={first['input']}: {first['msg'].lower()}", hint=f"{name} is {VARIABLES[name]}"
        ) from error
