"""Read JSON from a text and validate it by a schema; errors use the words of the validator. Arguments of calls, too.

A schema of usual keywords is recognised first: to check it by the schema of its dialect takes a hundred times as long,
and a client of a gateway may send many long ones.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.schemas.coerce import finite_number, refuse_constant
from cnllm.schemas.work import WorkBudget, WorkLimitExceeded, depth

__all__ = [
    "AnswerError",
    "Undecided",
    "UnusableSchema",
    "build_value",
    "is_usual",
    "read_json",
    "undecided_patterns",
    "validates_itself",
    "validation_errors",
]


_MAX_LISTED = 3  # errors that a message lists
_MAX_ERRORS = 50  # errors that are collected
_MAX_STARTS = 8  # places in a text where JSON may begin
_MAX_LEVELS = 500  # of an answer: what writes it again has a stack that ends
_MAX_LENGTH = 200  # characters of one error: a validator quotes the whole wrong value
_INFO = r"\A(?:[A-Za-z]+(?=[\s{\[]))?\s*"
_OPENS = re.compile(r"[{\[]")
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]]', re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}
_FENCE = r"(?:```|~~~)[A-Za-z]*\s*"
_BEGINS = re.compile(r'\{|\[(?!\d+\])\s*[]\[{"\d-]')
"""The beginning of JSON; [1] and [Note] before prose are none."""
_SCHEMA_STEPS = 500  # for each value in a schema, when the schema itself is checked
_MAX_SCHEMA_STEPS = 3_000_000
_LONGEST_KEPT = 64 * 1024  # bytes of a schema
_MIN_DEPTH = 8  # levels of a value; an endless validation of a flatter value is the schema's fault

_MOST_LEVELS = 32
_DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-07/schema#",
}
_KEYWORDS = {
    "types": ["type"],
    "schema": [
        *("items", "additionalProperties", "not", "propertyNames", "contains", "if", "then", "else"),
        *("additionalItems", "unevaluatedProperties", "unevaluatedItems"),
    ],
    "schemas": ["anyOf", "allOf", "oneOf", "prefixItems"],
    "named schemas": ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"],
    "text": ["title", "description", "format", "pattern", "$comment", "contentEncoding", "contentMediaType"],
    "count": [
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("minContains", "maxContains"),
    ],
    "number": ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
    "names": ["required"],
    "values": ["enum", "examples"],
    "flag": ["uniqueItems", "deprecated", "readOnly", "writeOnly"],
    "reference": ["$ref"],
    "dialect": ["$schema"],
    "rare": [
        *("$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "$vocabulary"),
        *("dependencies", "dependentRequired", "contentSchema", "multipleOf"),
    ],
}
_KINDS = {keyword: kind for kind, keywords in _KEYWORDS.items() for keyword in keywords}
"""The kinds of the values that keywords have in all these dialects. Further keywords may have any value."""

_TYPES = {"null", "boolean", "object", "array", "number", "string", "integer"}


class AnswerError(ValueError):
    """The answer does not fit the schema. The message gives the reason; the model gets it with the correction."""


class UnusableSchema(ValueError):
    """The schema itself cannot be used; another request would not help."""


class Undecided(ValueError):
    """It is not known whether a value is valid: that would take more work than one validation may do."""


# ── text → JSON ───────────────────────────────────────────────────────────────


def read_json(text: str, *, lenient: bool) -> tuple[Any, str]:
    """Return the JSON of a text, with or without a code fence, and the prose before it, if `lenient` allows prose.

    No part of broken JSON is taken for the answer. Raises `AnswerError`.
    """
    stripped = text.strip()
    if not stripped:
        raise AnswerError("there is no text")
    try:
        return _decode(_strip_fence(stripped)), ""
    except AnswerError as error:
        fence = re.match(_FENCE, stripped)
        if not lenient or _BEGINS.match(stripped, fence.end() if fence else 0):
            raise
        first_error = error if stripped[0] in "{[`~" else None
    end = stripped[:-3].rstrip() if stripped.endswith(("```", "~~~")) else stripped
    for start in itertools.islice(_starts(end), _MAX_STARTS):
        try:
            return _decode(end[start:]), end[:start].strip()
        except AnswerError as error:
            first_error = first_error or error
    raise first_error or AnswerError("there is no JSON in it")


def _starts(text: str) -> Iterator[int]:
    """Yield the places of brackets that are inside of no other ones. What never ends holds the rest of the text."""
    position = 0
    while opening := _OPENS.search(text, position):
        yield opening.start()
        expected = [_CLOSERS[opening[0]]]
        position = opening.end()
        while expected:
            mark = _MARKS.search(text, position)
            if mark is None:
                return
            position = mark.end()
            if mark[0] in _CLOSERS:
                expected.append(_CLOSERS[mark[0]])
            elif mark[0] == expected[-1]:
                expected.pop()


def _strip_fence(text: str) -> str:
    """Return a text without the code fence around it."""
    mark = text[:3]
    if mark not in ("```", "~~~") or len(text) < 6 or not text.endswith(mark):
        return text
    inner = text[3:-3]
    return re.sub(_INFO, "", inner, count=1)


def _decode(text: str) -> Any:
    """Decode JSON. Raises `AnswerError`, also where it is nested so deeply that it could not be written again."""
    try:
        value = json.loads(text, parse_constant=refuse_constant, parse_float=finite_number)
    except ValueError as error:
        raise AnswerError(f"it is not JSON: {error}") from None
    except RecursionError:
        pass
    else:
        if text.count("{") + text.count("[") < _MAX_LEVELS or depth(value, _MAX_LEVELS + 1) <= _MAX_LEVELS:
            return value
    raise AnswerError(f"it is nested more than {_MAX_LEVELS} levels deep")


# ── JSON → value ──────────────────────────────────────────────────────────────


def build_value(value: Any, schema: dict[str, Any], kind: Any = None) -> Any:
    """Return the value, or the instance of `kind` built from it.

    Raises `AnswerError`, `Undecided` or `UnusableSchema`.
    """
    if not validates_itself(kind):
        if errors := validation_errors(value, schema):
            raise AnswerError(_join_errors(f"{error.json_path}: {error.message}" for error in errors))
        return value
    try:
        return kind.model_validate_json(json.dumps(value))
    except ValueError as error:
        list_errors = getattr(error, "errors", None)
        message = _join_errors(map(_error_text, list_errors())) if callable(list_errors) else _short(str(error))
        raise AnswerError(message) from error
    except Exception as error:  # a model class runs its author's code; the reply is worth more
        name = getattr(kind, "__name__", kind)
        raise UnusableSchema(f"{name} cannot be built: {type(error).__name__}: {error}") from error


def validates_itself(kind: Any) -> bool:
    """Whether a class builds the value and so validates it itself."""
    return callable(getattr(kind, "model_validate_json", None))


def _error_text(error: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors as a sentence."""
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.get("loc", ()))
    return f"${path}: {error.get('msg')}"


def undecided_patterns(schema: dict[str, Any]) -> tuple[str, ...]:
    """Return the patterns of a schema that are not judged, each with the reason.

    Raises `ValueError` if the schema is no JSON Schema.
    """
    undecided: tuple[str, ...] = _compute(_find_undecided, msgspec.json.encode(schema))
    return undecided


def _compute(function: Any, encoded: bytes) -> Any:
    """Return the result of a cached function; that of a long schema is not kept: clients of a gateway may send many."""
    return function(encoded) if len(encoded) <= _LONGEST_KEPT else function.__wrapped__(encoded)


@lru_cache(maxsize=256)
def _find_undecided(encoded: bytes) -> tuple[str, ...]:
    """Return the patterns that are not judged. A usual schema without patterns needs no validator."""
    if b'"pattern' not in encoded and is_usual(json.loads(encoded)):
        return ()
    undecided: tuple[str, ...] = _compute(_compile, encoded).undecided
    return undecided


class _Compiled(Struct, frozen=True):
    """The validator of a schema, and the patterns that it does not judge."""

    validator: Any
    undecided: tuple[str, ...]


@lru_cache(maxsize=256)
def _compile(encoded: bytes) -> _Compiled:
    """Return the validator of a schema, which reads its own dialect and fetches nothing."""
    import jsonschema
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    from cnllm.schemas.keywords import bounded_validator, undecided_patterns

    schema = json.loads(encoded)
    if type(schema.get("$schema", "")) is not str:
        raise ValueError("schema is not a JSON Schema: $.$schema is not a text")
    kind: Any = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    if not is_usual(schema):
        older = () if "$schema" in schema else (jsonschema.Draft7Validator, jsonschema.Draft4Validator)
        kind = _dialect(schema, (kind, *older), bounded_validator)
    patterns = undecided_patterns(schema) if b'"pattern' in encoded else []
    for pattern in patterns:
        if pattern.is_broken:
            raise ValueError(f"schema is not a JSON Schema: the pattern {_short(pattern.source)!r}: {pattern.problem}")
    reasons = tuple(f"the pattern {_short(pattern.source)!r}: {_short(str(pattern.problem))}" for pattern in patterns)
    return _Compiled(bounded_validator(kind)(schema, registry=REGISTRY), reasons)


def _dialect(schema: Any, kinds: Sequence[Any], make_validator: Callable[[Any], Any]) -> Any:
    """Return the first dialect that allows a schema. Raises `ValueError` where none does, with the words of the first.

    A schema that names no dialect may be of an older one, where `items` is a list, for example.
    """
    first_error: ValueError | None = None
    for kind in kinds:
        try:
            _require_valid(schema, kind.META_SCHEMA, make_validator(kind))
        except ValueError as error:
            first_error = first_error or error
        else:
            return kind
    assert first_error is not None
    raise first_error


def _require_valid(schema: Any, meta_schema: Any, validator: Any) -> None:
    """Raise `ValueError` for a schema that its dialect does not allow, or that takes too much work to check."""
    from jsonschema_specifications import REGISTRY

    budget = WorkBudget(schema, _SCHEMA_STEPS, _MAX_SCHEMA_STEPS)
    try:
        error = next(_errors(validator(meta_schema, registry=REGISTRY, format_checker=budget), schema), None)
    except Undecided as unknown:
        raise ValueError(f"schema is too large or too deep to be checked: {unknown}") from None
    if error is not None:
        error = next((e for e in error.context or () if e.validator == "enum"), error)  # it lists the valid words
        raise ValueError(f"schema is not a JSON Schema: {error.json_path}: {_short(error.message)}")


def validation_errors(value: Any, schema: dict[str, Any]) -> list[Any]:
    """Return the errors that jsonschema finds, of several branches those of the best match.

    Raises `UnusableSchema`, `Undecided`, or `ValueError` if the schema is no JSON Schema. No reference is fetched,
    and the work is bounded: it is counted, whatever the value and the schema are.
    """
    from jsonschema.exceptions import best_match

    validator = _compute(_compile, msgspec.json.encode(schema)).validator.evolve(format_checker=WorkBudget(value))
    errors = []
    try:
        for error in itertools.islice(_errors(validator, value), _MAX_ERRORS):
            errors.append(best_match([error]))
    except Undecided:  # errors that were found before stay valid
        if not errors:
            raise
    return errors


def _errors(validator: Any, value: Any) -> Iterator[Any]:
    """Yield the errors of a value. Raises `UnusableSchema` or `Undecided`."""
    from referencing.exceptions import Unresolvable

    try:
        yield from validator.iter_errors(value)
    except Unresolvable as error:
        raise UnusableSchema(f"the schema refers to {_short(str(error.ref))}, which is not in it") from error
    except RecursionError:
        if depth(value, _MIN_DEPTH) < _MIN_DEPTH:
            raise UnusableSchema("the schema cannot be applied: it refers to itself without end") from None
        raise Undecided("it is nested too deeply") from None
    except WorkLimitExceeded as error:
        raise Undecided(str(error)) from None
    except (ArithmeticError, ValueError) as error:  # from numbers with thousands of digits
        raise Undecided(f"it holds a number that cannot be checked: {_short(str(error))}") from error


def _join_errors(errors: Iterable[str]) -> str:
    """Return the first few errors in one line."""
    sentences = list(dict.fromkeys(map(_short, errors)))
    remainder = f"; and {len(sentences) - _MAX_LISTED} more" if len(sentences) > _MAX_LISTED else ""
    return "; ".join(sentences[:_MAX_LISTED]) + remainder


def _short(text: str) -> str:
    """Return a text in one line, shortened."""
    text = " ".join(text.split())
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


# ── usual schemas ────────────────────────────────────────────────────────────


def is_usual(schema: Any) -> bool:
    """Whether a schema is surely valid, apart from its patterns. False says nothing: the whole check decides."""
    level = [schema]
    for _ in range(_MOST_LEVELS):
        inner: list[Any] = []
        for part in level:
            if type(part) is bool:
                continue
            if type(part) is not dict:
                return False
            for key, value in part.items():
                kind = _KINDS.get(key)
                if kind == "schema":
                    inner.append(value)
                elif kind == "schemas":
                    if type(value) is not list or not value:
                        return False
                    inner += value
                elif kind == "named schemas":
                    if type(value) is not dict:
                        return False
                    inner += value.values()
                elif kind is not None and not _IS_VALID[kind](value):
                    return False
        if not inner:
            return True
        level = inner
    return False


def _are_names(value: Any) -> bool:
    """Whether a value is a list of different texts."""
    return type(value) is list and all(type(name) is str for name in value) and len({*value}) == len(value)


_IS_VALID: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: type(value) is str,
    "reference": lambda value: type(value) is str and value.isascii() and value.startswith("#/") and "%" not in value,
    "count": lambda value: type(value) is int and value >= 0,
    "number": lambda value: type(value) is int or (type(value) is float and value - value == 0),
    "flag": lambda value: type(value) is bool,
    "names": _are_names,
    "types": lambda value: (
        value in _TYPES if type(value) is str else _are_names(value) and 0 < len(value) == len(_TYPES & {*value})
    ),
    "values": lambda value: type(value) is list and len(value) > 0,
    "dialect": lambda value: type(value) is str and value in _DIALECTS,
    "rare": lambda value: False,
}
"""Tells by its kind whether a keyword has a valid value."""
