"""The settings of cnllm: variables of the environment whose names begin with CNLLM_. `SETTINGS` declares all of them.

A value is read and checked at the moment of the call. A wrong value stops only what needs it. Every program imports
this module, completion too: it imports nothing that takes time.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from cnllm.types.policy import Limits, Retry, Timeouts

__all__ = [
    "SETTINGS",
    "LogMode",
    "Setting",
    "call_settings",
    "check_settings",
    "parse_setting",
    "read_secret",
    "read_setting",
]

LogMode = Literal["on", "no-exchanges", "off"]
"""Log everything; log conversations without raw requests and responses; log nothing."""

_PREFIX = "CNLLM_"
_SWITCH = dict.fromkeys(("1", "on", "true", "yes"), True) | dict.fromkeys(("0", "off", "false", "no"), False)
_TRANSPORTS = ("fast", "httpx", "httpx2")


class _NoHome(ValueError):
    """A path begins with the home folder of a user that does not exist."""


class Setting(NamedTuple):
    """One setting: the values that it takes and what it sets, in words, and how a text is read.

    `read` raises `ValueError` for a wrong text. `default` is shown in the manual: the types of `types.policy` hold it.
    """

    values: str
    purpose: str
    read: Callable[[str], Any] = str.strip
    default: Any = None
    examples: tuple[str, ...] = ("30",)
    is_secret: bool = False


def _positive(text: str) -> float:
    """Return a number above 0."""
    if not (value := float(text)) > 0:  # NaN is neither above nor below
        raise ValueError
    return value


def _whole(text: str) -> int:
    """Return a whole number from 1."""
    if (value := int(text)) < 1:
        raise ValueError
    return value


def _word(words: tuple[str, ...], *, lower: bool = False) -> Callable[[str], str]:
    """Return what reads one of some words."""

    def read(text: str) -> str:
        word = text.strip().lower() if lower else text
        if word not in words:
            raise ValueError
        return word

    return read


def _folder(text: str) -> str:
    """Return the path as it is: the home folder is looked up where the path is used."""
    if text.startswith("~") and os.path.expanduser(text).startswith("~"):
        raise _NoHome("there is no home folder of such a user")
    return text


def _switch(text: str) -> bool | str:
    """Return a boolean for a word that switches, and a folder as it is."""
    word = text.strip()
    return _SWITCH[word.lower()] if word.lower() in _SWITCH else _folder(word)


def _on_or_off(text: str) -> bool:
    """Return a boolean for a word that switches."""
    if (word := text.strip().lower()) not in _SWITCH:
        raise ValueError
    return _SWITCH[word]


def _seconds(purpose: str) -> Setting:
    return Setting(values="a number of seconds above 0", purpose=purpose, read=_positive)


def _count(purpose: str, default: int, example: str) -> Setting:
    return Setting(values="a whole number from 1", purpose=purpose, read=_whole, default=default, examples=(example,))


def _path(purpose: str, example: str) -> Setting:
    return Setting(values="the path of a folder", purpose=purpose, read=_folder, examples=(example,))


def _key(purpose: str, values: str = "a key") -> Setting:
    return Setting(values=values, purpose=purpose, read=str, is_secret=True)


SETTINGS: Final[Mapping[str, Setting]] = {
    "timeout": _seconds("seconds for each of the four waits below; a connection never gets more than by default"),
    "connect_timeout": _seconds("seconds until there is a connection; 10 if nothing is set"),
    "first_byte_timeout": _seconds("seconds until the status line; 600 if nothing is set"),
    "idle_timeout": _seconds("seconds between any two bytes of a reply; 300 if nothing is set"),
    "progress_timeout": _seconds("seconds between two pieces of the model's output; 600 if nothing is set"),
    "attempts": _count("the number of attempts of a call in all", 3, "5"),
    "max_reply_bytes": _count("the largest number of bytes of a reply", 134217728, "1000000"),
    "max_event_bytes": _count("the largest number of bytes of one event of a stream", 67108864, "1000000"),
    "idle_connections": _count("the most connections to endpoints that are kept open for a minute", 500, "1000"),
    "transport": Setting(
        values=f"one of {', '.join(_TRANSPORTS)}",
        purpose="the transport of clients; fast if httptools is installed, else httpx",
        read=_word(_TRANSPORTS),
        examples=("httpx",),
    ),
    "raw_log": Setting(
        values="on, off, or the path of a folder",
        purpose="whether every exchange is recorded as bytes: in the folder raw of the data folder, or another one",
        read=_switch,
        examples=("on",),
    ),
    "config_dir": _path("the folder of keys, registry files, templates and the default model", "~/cnllm"),
    "data_dir": _path("the folder of conversations and logs", "~/cnllm"),
    "cache_dir": _path("the folder of files that may be deleted at any time", "/tmp/cnllm"),
    "providers": Setting(
        values="the paths of registry files, separated as in PATH",
        purpose="the registry files in use instead of providers.toml in the config folder; empty for none",
        read=str,
        examples=("home.toml",),
    ),
    "model": Setting(
        values="the name of a model",
        purpose="the model of a command without one; it wins over cnllm models default",
        examples=("glm-4.7",),
    ),
    "log": Setting(
        values=f"one of {', '.join(get_args(LogMode))}",
        purpose="whether the command line logs calls; it wins over cnllm logs on and off",
        read=_word(get_args(LogMode), lower=True),
        examples=("off",),
    ),
    "log_calls": Setting(
        values="on or off",
        purpose="whether clients of the library write what calls cost to the file of cnllm logs, without their words",
        read=_on_or_off,
        examples=("on",),
    ),
    "serve_key": _key("the key that clients of the gateway must send"),
    "admin_key": _key("the key of the gateway's /metrics and /ui"),
    "gateway_key": _key(
        "the keys that seal the gateway's tokens, instead of the file serve.keys; the first one seals",
        "keys of 32 random bytes in base64, with commas between them",
    ),
}
"""Every setting, by the name that the variable has in small letters behind CNLLM_.

A variable of white space alone counts as not set, except CNLLM_PROVIDERS.
"""


def read_setting(name: str) -> Any:
    """Return the value of one setting; None where nothing sets it. Raise `CnllmError` for a wrong value."""
    return _read(name, _variables())


def read_secret(name: str) -> str | None:
    """Return a key; None where nothing sets it."""
    key: str | None = read_setting(name)
    return key


def call_settings() -> tuple[Timeouts, Retry, Limits]:
    """Return the settings of clients without their own. Raise `CnllmError` for a wrong value."""
    from msgspec.structs import replace

    from cnllm.types.policy import Limits, Retry, Timeouts

    variables = _variables()
    timeouts = Timeouts.of(_read("timeout", variables))
    if not variables:
        return timeouts, Retry(), Limits.of(None)
    waits = {name: _read(f"{name}_timeout", variables) for name in Timeouts.__struct_fields__}
    attempts = {"attempts": _read("attempts", variables)}
    limits = {name: _read(name, variables) for name in Limits.__struct_fields__}
    return replace(timeouts, **_drop_unset(waits)), Retry(**_drop_unset(attempts)), Limits(**_drop_unset(limits))


def _drop_unset(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are set."""
    return {name: value for name, value in values.items() if value is not None}


def check_settings() -> None:
    """Raise `CnllmError` for the first variable with a wrong value."""
    variables = _variables()
    for name in SETTINGS:
        _read(name, variables)


def parse_setting(name: str, text: str, file: object, hint: str) -> Any:
    """Return the value of a setting that a file holds. Raise `CnllmError` for a wrong one."""
    return _parse(name, text if text.strip() else "", f"{file}: {text.strip()!r}", hint)


def _variables() -> dict[str, str]:
    """Return the variables with the prefix, by setting. Other threads may change the environment meanwhile."""
    stored = getattr(os.environ, "_data", None)  # undecoded: to decode all names takes longer than to prepare a call
    names = _names(tuple(os.environ if stored is None else stored))
    return {name[len(_PREFIX) :].lower(): value for name in names if (value := os.environ.get(name)) is not None}


def _read(name: str, variables: Mapping[str, str]) -> Any:
    """Return the value that a variable sets; None where none does."""
    text = variables.get(name)
    if text is None or (not text.strip() and name != "providers"):
        return None
    return _parse(name, text, _place(name, text), None)


def _parse(name: str, text: str, place: str, hint: str | None) -> Any:
    """Return the value of a text. Raise `CnllmError`, which names the place, for a wrong one."""
    setting, fault = SETTINGS[name], ""
    try:
        return setting.read(text)
    except ValueError as error:  # it holds the text, which may be a secret: ours is raised without it
        fault = str(error) if isinstance(error, _NoHome) else f"it must be {setting.values}"
    example = f"write {setting.values}, for example {_PREFIX}{name.upper()}={setting.examples[0]}"
    raise CnllmError(f"{place}: {fault}", hint=hint or example)


def _place(name: str, text: str) -> str:
    """Return a variable and its value, which is left out where it may be a secret."""
    from cnllm.config.redact import looks_secret

    variable = f"{_PREFIX}{name.upper()}"
    is_secret = SETTINGS[name].is_secret or len(text) > 200 or looks_secret(text)
    return variable if is_secret else f"{variable}={text}"


@functools.lru_cache(maxsize=4)
def _names(variables: tuple[bytes | str, ...]) -> list[str]:
    """Return the names with the prefix among those of all variables."""
    decoded = [os.fsdecode(name) for name in variables]
    names = [name for name in decoded if name[: len(_PREFIX)].upper() == _PREFIX]
    for name in names:
        _point_out_slip(name)
    return names


@functools.cache
def _point_out_slip(name: str) -> None:
    """Log a warning for a variable whose name resembles that of a setting, once in a process."""
    field = name[len(_PREFIX) :].lower()
    if field in SETTINGS:
        return
    import logging
    from difflib import get_close_matches

    if close := get_close_matches(field, SETTINGS, n=1, cutoff=0.8):
        logging.getLogger("cnllm.config").warning(
            "%s is not a setting of cnllm: did you mean %s%s?", name, _PREFIX, close[0].upper()
        )
