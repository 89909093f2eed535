"""Settings from the environment, for clients without their own: timeouts, number of attempts, size limits.

pydantic-settings reads and checks them. Importing it takes longer than a short call, so plain numbers are read without
it. It reads every other value.
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
    "CNLLM_PROGRESS_TIMEOUT": "seconds between two pieces of the model's output",
    "CNLLM_ATTEMPTS": "the number of attempts of a call in all",
    "CNLLM_MAX_REPLY_BYTES": "the largest number of bytes of a reply",
    "CNLLM_MAX_EVENT_BYTES": "the largest number of bytes of one event of a stream",
}
"""The variables that are read here, each with what it sets."""
_WHOLE = frozenset({"CNLLM_ATTEMPTS", "CNLLM_MAX_REPLY_BYTES", "CNLLM_MAX_EVENT_BYTES"})


class Settings(Struct, frozen=True):
    """The settings of the environment."""

    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    limits: Limits = Limits()


def read_settings() -> Settings:
    """Return the current settings. Raise `CnllmError` naming a variable with an invalid value."""
    if not any(os.environ.get(name) for name in VARIABLES):
        return Settings()
    values = _read_numbers() or _read_with_pydantic()
    base = Timeouts.of(values["timeout"])
    timeouts = {name: values[f"{name}_timeout"] for name in ("connect", "first_byte", "idle", "progress")}
    return Settings(
        timeouts=Timeouts(
            **{name: getattr(base, name) if value is None else value for name, value in timeouts.items()}
        ),
        retry=Retry() if values["attempts"] is None else Retry(attempts=values["attempts"]),
        limits=Limits(**{name: values[name] for name in Limits.__struct_fields__ if values[name] is not None}),
    )


def _read_numbers() -> dict[str, Any] | None:
    """Return the values where all are plain numbers under exact names. Otherwise None."""
    variables = {name: value for name, value in os.environ.items() if name.upper() in VARIABLES and value}
    values: dict[str, Any] = {name.removeprefix("CNLLM_").lower(): None for name in VARIABLES}
    for name, value in variables.items():
        integer, _, part = value.partition(".")
        digits = integer + part if name not in _WHOLE else value
        plain = name in VARIABLES and digits.isascii() and digits.isdigit() and len(integer) > 0 and len(digits) < 10
        if not plain or not int(digits) or value.endswith("."):
            return None
        values[name.removeprefix("CNLLM_").lower()] = int(value) if name in _WHOLE else float(value)
    return values


def _read_with_pydantic() -> dict[str, Any]:
    """Return the values of the variables. Raise `CnllmError` for an invalid one."""
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
