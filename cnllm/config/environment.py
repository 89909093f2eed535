"""Read the settings (`cnllm.config.settings.Settings`): variables of the environment whose names begin with CNLLM_.

The class and pydantic are imported only where such a variable, or a file, sets something. A value is read at the moment
of the call, and is parsed again only after a variable has changed. A wrong value stops only what needs it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnllm.config.settings import Settings
    from cnllm.errors import CnllmError
    from cnllm.types.policy import Limits, Retry, Timeouts

__all__ = ["call_settings", "check_settings", "parse_setting", "read_secret", "read_setting"]

_PREFIX = "CNLLM_"
_CHANGES = 20  # how often variables may change while they are read

_Variables = tuple[tuple[str, str], ...]
_Outcome = tuple["Settings", Mapping[str, str]]  # the faults of fields with a wrong value, which have their default


class _Latest:
    """The latest variables and what they set. It is one value, so that no thread can see half of a change."""

    entry: tuple[_Variables, _Outcome] | None = None


def read_setting(name: str) -> Any:
    """Return the value of one setting; None where nothing sets it. Raise `CnllmError` for a wrong value."""
    return _read_settings(name)[0]


def read_secret(name: str) -> str | None:
    """Return a key as text; None where nothing sets it."""
    secret = read_setting(name)
    return None if secret is None else str(secret.get_secret_value())


def call_settings() -> tuple[Timeouts, Retry, Limits]:
    """Return the settings of clients without their own. Raise `CnllmError` for a wrong value."""
    from msgspec.structs import replace

    from cnllm.types.policy import Limits, Retry, Timeouts

    names = Timeouts.__struct_fields__
    timeout, attempts, reply, event, *waits = _read_settings(
        "timeout", "attempts", "max_reply_bytes", "max_event_bytes", *(f"{name}_timeout" for name in names)
    )
    timeouts = Timeouts.of(timeout)
    if attempts is None:  # nothing is set
        return timeouts, Retry(), Limits.of(None)
    changes = {name: value for name, value in zip(names, waits, strict=True) if value is not None}
    return replace(timeouts, **changes), Retry(attempts=attempts), Limits(max_reply_bytes=reply, max_event_bytes=event)


def check_settings() -> None:
    """Raise `CnllmError` for the first variable with a wrong value."""
    if variables := _variables():
        for name, fault in _read(variables)[1].items():
            raise _error(name, _place(name, variables), fault)


def parse_setting(name: str, text: str, file: object, hint: str) -> Any:
    """Return the value of a setting that a file holds. Raise `CnllmError` for a wrong one."""
    settings, faults = _build({name: text})
    value = getattr(settings, name)
    if name in faults or value is None:  # None: the file is blank
        raise _error(name, f"{file}: {text.strip()!r}", faults.get(name, ""), hint)
    return value


def _read_settings(*names: str) -> tuple[Any, ...]:
    """Return the values of settings, all of one moment. Raise `CnllmError` for the first wrong one."""
    variables = _variables()
    if not variables:
        return (None,) * len(names)
    settings, faults = _read(variables)
    for name in names:
        if name in faults:
            raise _error(name, _place(name, variables), faults[name])
    return tuple(getattr(settings, name) for name in names)


def _variables() -> _Variables:
    """Return the variables with the prefix. Other threads may change the environment meanwhile."""
    names = [name for name in os.environ if name[: len(_PREFIX)].upper() == _PREFIX]
    return tuple((name, value) for name in names if (value := os.environ.get(name)) is not None)


def _read(variables: _Variables) -> _Outcome:
    latest = _Latest.entry
    if latest is not None and latest[0] == variables:
        return latest[1]
    outcome = _build({})
    if _variables() == variables:
        _Latest.entry = (variables, outcome)
    for name, _ in variables:
        _point_out_slip(name)
    return outcome


def _build(values: dict[str, Any]) -> _Outcome:
    """Return the settings of these values and of the environment, with the default for each wrong value."""
    from pydantic import ValidationError

    from cnllm.config.settings import Settings

    faults: dict[str, str] = {}
    while True:
        try:
            return _construct(values), faults
        except ValidationError as error:
            for fault in error.errors(include_url=False, include_input=False):
                name = str(fault["loc"][0])
                faults[name] = fault["msg"] if fault["type"] == "no_home" else ""
                values[name] = Settings.model_fields[name].default


def _construct(values: dict[str, Any]) -> Settings:
    from cnllm.config.settings import Settings

    for _ in range(_CHANGES):
        with suppress(KeyError):  # another thread has removed a variable meanwhile
            return Settings(**values)
    return Settings(**values)


def _place(name: str, variables: _Variables) -> str:
    """Return a variable and its value, which is left out where it may be a secret."""
    from cnllm.config.redact import looks_secret

    variable = f"{_PREFIX}{name.upper()}"
    value = {name.upper(): value for name, value in variables}.get(variable, "")
    return variable if len(value) > 200 or looks_secret(value) else f"{variable}={value}"


def _error(name: str, place: str, fault: str, hint: str | None = None) -> CnllmError:
    from cnllm.config.settings import Settings
    from cnllm.errors import CnllmError

    field = Settings.model_fields[name]
    example = next(iter(field.examples or ()), "30")
    return CnllmError(
        f"{place}: {fault or f'it must be {field.title}'}",
        hint=hint or f"write {field.title}, for example {_PREFIX}{name.upper()}={example}",
    )


@functools.cache
def _point_out_slip(name: str) -> None:
    """Log a warning for a variable whose name resembles that of a setting, once in a process."""
    from cnllm.config.settings import Settings

    field = name[len(_PREFIX) :].lower()
    if field in Settings.model_fields:
        return
    import logging
    from difflib import get_close_matches

    if close := get_close_matches(field, Settings.model_fields, n=1, cutoff=0.8):
        logging.getLogger("cnllm.config").warning(
            "%s is no setting of cnllm: did you mean %s%s?", name, _PREFIX, close[0].upper()
        )
