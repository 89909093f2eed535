"""A text → the value a schema asks for, or why it is not one, in the validator's words; a call's arguments too."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

__all__ = ["Invalid", "Unusable", "built", "checked", "faults", "read_json"]

_MOST = 3  # faults that are told
_LOOKED = 50  # faults that are looked for
_TRIES = 8  # places in a text where JSON may begin
_LENGTH = 200  # characters of one fault: a validator quotes what it finds wrong, whole
_INFO = re.compile(r"(?:[A-Za-z]+(?=[\s{\[]))?\s*")
_OPENS = re.compile(r"[{\[]")


class Invalid(ValueError):
    """The answer is not what the schema asks for; says why. What the model is told when it is asked again."""


class Unusable(ValueError):
    """The schema itself cannot be worked with; asking again would not help."""


# ── text → JSON ──────────────────────────────────────────────────────────────


def read_json(text: str, *, lenient: bool) -> tuple[Any, str]:
    """The JSON that a text is, in a code fence or without; and the prose before it, where `lenient` allows any.

    Raises `Invalid`.
    """
    bare = text.strip()
    if not bare:
        raise Invalid("there is no text")
    try:
        return _decoded(_unfenced(bare)), ""
    except Invalid as error:
        if not lenient:
            raise
        failed = error if bare[0] in "{[`~" else None
    end = bare[:-3].rstrip() if bare.endswith(("```", "~~~")) else bare
    for match in itertools.islice(_OPENS.finditer(end), _TRIES):
        try:
            return _decoded(end[match.start() :]), end[: match.start()].strip()
        except Invalid as error:
            failed = failed or error
    raise failed or Invalid("there is no JSON in it")


def _unfenced(text: str) -> str:
    mark = text[:3]
    if mark not in ("```", "~~~") or len(text) < 6 or not text.endswith(mark):
        return text
    inner = text[3:-3]
    return inner[_INFO.match(inner).end() :]  # type: ignore[union-attr]


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise Invalid(f"it is not JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise Invalid(f"it is not JSON: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


# ── JSON → value ─────────────────────────────────────────────────────────────


def built(value: Any, schema: dict[str, Any], kind: Any = None) -> Any:
    """The value, or the instance of `kind` built from it. Raises `Invalid` or `Unusable`."""
    build = getattr(kind, "model_validate_json", None)
    if not callable(build):
        if found := faults(value, schema):
            raise Invalid(_listed(f"{error.json_path}: {error.message}" for error in found))
        return value
    try:
        return build(json.dumps(value))
    except ValueError as error:
        told = getattr(error, "errors", None)
        raise Invalid(_listed(map(_told, told())) if callable(told) else _short(str(error))) from error
    except Exception as error:  # a model class runs its author's code; the reply is worth more
        raise Unusable(f"{getattr(kind, '__name__', kind)} cannot be built: {type(error).__name__}: {error}") from error


def _told(fault: Mapping[str, Any]) -> str:
    """One of pydantic's faults."""
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in fault.get("loc", ()))
    return f"${place}: {fault.get('msg')}"


def checked(schema: dict[str, Any]) -> None:
    """Raises `ValueError` for what is no JSON Schema, before it costs anything."""
    _validator(msgspec.json.encode(schema))


@lru_cache(maxsize=256)
def _validator(encoded: bytes) -> Any:
    """The validator of a schema, which reads its own dialect and fetches nothing."""
    import jsonschema
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    schema = json.loads(encoded)
    kind: Any = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"schema is no JSON Schema: {error.json_path}: {_short(error.message)}") from None
    return kind(schema, registry=REGISTRY)


def faults(value: Any, schema: dict[str, Any]) -> list[Any]:
    """The errors that jsonschema finds, of several branches the one that fits best.

    Raises `Unusable`, or `ValueError` for what is no JSON Schema. Nothing that a schema refers to is fetched.
    """
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    validator = _validator(msgspec.json.encode(schema))
    try:
        return [best_match([error]) for error in itertools.islice(validator.iter_errors(value), _LOOKED)]
    except Unresolvable as error:
        raise Unusable(f"the schema refers to {error.ref}, which is not in it") from error
    except (re.error, RecursionError) as error:
        raise Unusable(f"the schema cannot be applied: {error}") from error


def _listed(faults: Iterable[str]) -> str:
    """The first few faults in one line."""
    told = list(dict.fromkeys(map(_short, faults)))
    more = f"; and {len(told) - _MOST} more" if len(told) > _MOST else ""
    return "; ".join(told[:_MOST]) + more


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LENGTH else text[: _LENGTH - 1] + "…"
