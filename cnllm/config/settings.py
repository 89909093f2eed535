"""The settings of cnllm. Each is a variable of the environment: CNLLM_ and the name of the field in capital letters.

`Settings` declares, documents, reads and checks them. Importing pydantic-settings takes longer than a short call, so
other modules read through `cnllm.config.environment`, which imports this module only where something is set.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from cnllm.config.log_mode import Mode
from cnllm.types.policy import Limits, Retry, Timeouts

__all__ = ["Settings"]

_SWITCH = dict.fromkeys(("1", "on", "true", "yes"), True) | dict.fromkeys(("0", "off", "false", "no"), False)
_MODES: tuple[str, ...] = get_args(Mode)
_WAITS = Timeouts()

TransportName = Literal["fast", "httpx", "httpx2"]


def _check_folder(path: str | None) -> str | None:
    """Return the path as it is: the home folder is looked up where the path is used."""
    if path is not None and path.startswith("~") and os.path.expanduser(path).startswith("~"):
        raise PydanticCustomError("no_home", "there is no home folder of such a user")
    return path


def _read_switch(value: Any) -> Any:
    """Return a boolean for a word that switches; a folder as it is."""
    if not isinstance(value, str):
        return value
    word = value.strip()
    return _SWITCH.get(word.lower(), _check_folder(word))


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


Seconds = Annotated[float | None, Field(gt=0, title="a number of seconds above 0")]
Count = Annotated[int, Field(ge=1, title="a whole number from 1")]
Folder = Annotated[str | None, AfterValidator(_check_folder), Field(title="the path of a folder")]
Key = Annotated[SecretStr | None, Field(title="a key")]


class Settings(BaseSettings):
    """All settings, read from the environment. None: nothing is set.

    The title of a field says which values it takes, its description what it sets. A variable of white space alone
    counts as not set, except CNLLM_PROVIDERS.
    """

    model_config = SettingsConfigDict(env_prefix="CNLLM_", extra="ignore", frozen=True, hide_input_in_errors=True)

    timeout: Seconds = Field(
        default=None,
        description="seconds for each of the four waits below; a connection never gets more than by default",
    )
    connect_timeout: Seconds = Field(
        default=None, description=f"seconds until there is a connection; {_WAITS.connect:g} if nothing is set"
    )
    first_byte_timeout: Seconds = Field(
        default=None, description=f"seconds until the status line; {_WAITS.first_byte:g} if nothing is set"
    )
    idle_timeout: Seconds = Field(
        default=None, description=f"seconds between any two bytes of a reply; {_WAITS.idle:g} if nothing is set"
    )
    progress_timeout: Seconds = Field(
        default=None,
        description=f"seconds between two pieces of the model's output; {_WAITS.progress:g} if nothing is set",
    )
    attempts: Count = Field(
        default=Retry().attempts, description="the number of attempts of a call in all", examples=["5"]
    )
    max_reply_bytes: Count = Field(
        default=Limits().reply, description="the largest number of bytes of a reply", examples=["1000000"]
    )
    max_event_bytes: Count = Field(
        default=Limits().event, description="the largest number of bytes of one event of a stream", examples=["1000000"]
    )
    transport: Annotated[TransportName | None, Field(title=f"one of {', '.join(get_args(TransportName))}")] = Field(
        default=None,
        description="the transport of clients; fast if httptools is installed, else httpx",
        examples=["httpx"],
    )
    raw_log: Annotated[
        bool | str | None, BeforeValidator(_read_switch), Field(title="on, off, or the path of a folder")
    ] = Field(
        default=None,
        description="whether every exchange is recorded as bytes: in the folder raw of the data folder, or another one",
        examples=["on"],
    )
    config_dir: Folder = Field(
        default=None,
        description="the folder of keys, registry files, templates and the default model",
        examples=["~/cnllm"],
    )
    data_dir: Folder = Field(default=None, description="the folder of conversations and logs", examples=["~/cnllm"])
    cache_dir: Folder = Field(
        default=None, description="the folder of files that may be deleted at any time", examples=["/tmp/cnllm"]
    )
    providers: Annotated[str | None, Field(title="the paths of registry files, separated as in PATH")] = Field(
        default=None,
        description="the registry files in use instead of providers.toml in the config folder; empty for none",
        examples=["home.toml"],
    )
    model: Annotated[str | None, BeforeValidator(_strip), Field(title="the name of a model")] = Field(
        default=None,
        description="the model of a command without one; it wins over cnllm models default",
        examples=["glm-4.7"],
    )
    log: Annotated[Mode | None, BeforeValidator(_lower), Field(title=f"one of {', '.join(_MODES)}")] = Field(
        default=None,
        description="whether the command line logs calls; it wins over cnllm logs on and off",
        examples=["off"],
    )
    serve_key: Key = Field(default=None, description="the key that clients of the gateway must send")
    admin_key: Key = Field(default=None, description="the key of the gateway's /metrics and /ui")
    gateway_key: Annotated[Key, Field(title="keys of 32 random bytes in base64, with commas between them")] = Field(
        default=None,
        description="the keys that seal the gateway's tokens, instead of the file serve.keys; the first one seals",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _drop_blank(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the default for a blank text. An empty list of registry files means no file."""
        if isinstance(value, str) and not value.strip() and info.field_name and info.field_name != "providers":
            return cls.model_fields[info.field_name].default
        return value
