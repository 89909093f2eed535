"""A text → the value a schema asks for, or why it is not one, in the validator's words; a call's arguments too."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

__all__ = [
    "InvalidAnswer",
    "Undecided",
    "UnusableSchema",
    "build_value",
    "check_schema",
    "read_json",
    "undecided_patterns",
    "validates_itself",
    "validation_errors",
]

_MOST = 3  # faults that are told
_LOOKED = 50  # faults that are looked for
_TRIES = 8  # places in a text where JSON may begin
_LENGTH = 200  # characters of one fault: a validator quotes what it finds wrong, whole
_INFO = re.compile(r"(?:[A-Za-z]+(?=[\s{\[]))?\s*")
_OPENS = re.compile(r"[{\[]")
_SCHEMA_STEPS = 500  # for each value in a schema, when the schema itself is checked
_MOST_SCHEMA_STEPS = 3_000_000
_DEEP = 8  # levels of a value; less deep, and a validation without end is the schema's fault


class InvalidAnswer(ValueError):
    """The answer is not what the schema asks for; says why. What the model is told when it is asked again."""


class UnusableSchema(ValueError):
    """The schema itself cannot be worked with; asking again would not help."""


class Undecided(ValueError):
    """Whether a value is valid is not known: to find out takes more work than a validation may do."""


# ── text → JSON ──────────────────────────────────────────────────────────────


def read_json(text: str, *, lenient: bool) -> tuple[Any, str]:
    """The JSON that a text is, in a code fence or without; and the prose before it, where `lenient` allows any.

    Raises `InvalidAnswer`.
    """
    bare = text.strip()
    if not bare:
        raise InvalidAnswer("there is no text")
    try:
        return _decoded(_unfenced(bare)), ""
    except InvalidAnswer as error:
        if not lenient:
            raise
        failed = error if bare[0] in "{[`~" else None
    end = bare[:-3].rstrip() if bare.endswith(("```", "~~~")) else bare
    for match in itertools.islice(_OPENS.finditer(end), _TRIES):
        try:
            return _decoded(end[match.start() :]), end[: match.start()].strip()
        except InvalidAnswer as error:
            failed = failed or error
    raise failed or InvalidAnswer("there is no JSON in it")


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
        raise InvalidAnswer(f"it is not JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"it is not JSON: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


# ── JSON → value ─────────────────────────────────────────────────────────────


def build_value(value: Any, schema: dict[str, Any], kind: Any = None) -> Any:
    """The value, or the instance of `kind` built from it. Raises `InvalidAnswer`, `Undecided` or `UnusableSchema`."""
    if not validates_itself(kind):
        if found := validation_errors(value, schema):
            raise InvalidAnswer(_listed(f"{error.json_path}: {error.message}" for error in found))
        return value
    try:
        return kind.model_validate_json(json.dumps(value))
    except ValueError as error:
        told = getattr(error, "errors", None)
        raise InvalidAnswer(_listed(map(_told, told())) if callable(told) else _short(str(error))) from error
    except Exception as error:  # a model class runs its author's code; the reply is worth more
        raise UnusableSchema(
            f"{getattr(kind, '__name__', kind)} cannot be built: {type(error).__name__}: {error}"
        ) from error


def validates_itself(kind: Any) -> bool:
    """Whether a class builds the value, and so judges it itself."""
    return callable(getattr(kind, "model_validate_json", None))


def _told(fault: Mapping[str, Any]) -> str:
    """One of pydantic's faults."""
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in fault.get("loc", ()))
    return f"${place}: {fault.get('msg')}"


def check_schema(schema: dict[str, Any]) -> None:
    """Raises `ValueError` for what is no JSON Schema, before it costs anything."""
    _compiled(msgspec.json.encode(schema))


def undecided_patterns(schema: dict[str, Any]) -> tuple[str, ...]:
    """Return the patterns of a schema that are not judged, each with the reason. Raises as `checked`."""
    return _compiled(msgspec.json.encode(schema)).unjudged


class _Compiled(Struct, frozen=True):
    """The validator of a schema, and what it does not judge."""

    validator: Any
    unjudged: tuple[str, ...]


@lru_cache(maxsize=256)
def _compiled(encoded: bytes) -> _Compiled:
    """The validator of a schema, which reads its own dialect and fetches nothing."""
    import jsonschema
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    from cnllm.schemas import WorkBudget, bounded_validator, undecided_patterns

    schema = json.loads(encoded)
    kind: Any = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    meta = bounded_validator(kind)(
        kind.META_SCHEMA, registry=REGISTRY, format_checker=WorkBudget(schema, _SCHEMA_STEPS, _MOST_SCHEMA_STEPS)
    )
    try:
        error = next(_errors(meta, schema), None)
    except Undecided as unknown:
        raise ValueError(f"schema is too large or too deep to be checked: {unknown}") from None
    if error is not None:
        raise ValueError(f"schema is no JSON Schema: {error.json_path}: {_short(error.message)}")
    patterns = undecided_patterns(schema) if b'"pattern' in encoded else []
    for pattern in patterns:
        if pattern.is_broken:
            raise ValueError(f"schema is no JSON Schema: the pattern {_short(pattern.source)!r}: {pattern.problem}")
    told = tuple(f"the pattern {_short(pattern.source)!r}: {_short(str(pattern.problem))}" for pattern in patterns)
    return _Compiled(bounded_validator(kind)(schema, registry=REGISTRY), told)


def validation_errors(value: Any, schema: dict[str, Any]) -> list[Any]:
    """The errors that jsonschema finds, of several branches the one that fits best.

    Raises `UnusableSchema`, `Undecided`, or `ValueError` for what is no JSON Schema. Nothing that a schema refers to is
    fetched, and the work is bounded: it is counted, whatever the value and the schema are.
    """
    from jsonschema.exceptions import best_match

    from cnllm.schemas import WorkBudget

    validator = _compiled(msgspec.json.encode(schema)).validator.evolve(format_checker=WorkBudget(value))
    found = []
    try:
        for error in itertools.islice(_errors(validator, value), _LOOKED):
            found.append(best_match([error]))
    except Undecided:  # what was wrong before stays wrong
        if not found:
            raise
    return found


def _errors(validator: Any, value: Any) -> Iterator[Any]:
    """Yield the errors of a value. Raises `UnusableSchema` or `Undecided`."""
    from referencing.exceptions import Unresolvable

    from cnllm.schemas import WorkLimitExceeded, depth

    try:
        yield from validator.iter_errors(value)
    except Unresolvable as error:
        raise UnusableSchema(f"the schema refers to {_short(str(error.ref))}, which is not in it") from error
    except RecursionError:
        if depth(value, _DEEP) < _DEEP:
            raise UnusableSchema("the schema cannot be applied: it refers to itself without end") from None
        raise Undecided("it is nested too deeply") from None
    except WorkLimitExceeded as error:
        raise Undecided(str(error)) from None
    except (ArithmeticError, ValueError) as error:  # of numbers with thousands of digits
        raise Undecided(f"it holds a number that cannot be checked: {_short(str(error))}") from error


def _listed(faults: Iterable[str]) -> str:
    """The first few faults in one line."""
    told = list(dict.fromkeys(map(_short, faults)))
    more = f"; and {len(told) - _MOST} more" if len(told) > _MOST else ""
    return "; ".join(told[:_MOST]) + more


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LENGTH else text[: _LENGTH - 1] + "…"
