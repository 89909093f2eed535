"""Check arguments: errors name the argument, its value and the expected one.

The checks run where a call enters cnllm, or after a failure. A value is shown only where it is short and plain;
otherwise only its type is named, so that no secret gets into a message.
"""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec

from cnllm.types.parts import Fields, Media, Opaque, Reasoning, Text, ToolCall, ToolResult

__all__ = [
    "FAILURES",
    "MOST_TAG",
    "as_bytes",
    "as_dict",
    "as_headers",
    "as_list",
    "as_tag",
    "as_text",
    "check_finite",
    "check_json_value",
    "has_plain_fields",
    "is_loopback",
    "kind_of",
    "matches_pattern",
    "message_fault",
    "number",
    "plain",
    "plural",
    "require_keys",
    "require_path",
    "require_text",
    "require_type",
    "seconds",
    "short_text",
    "struct_fault",
    "unfit_id",
    "unreadable",
    "wrong_type",
    "wrong_value",
]

FAILURES = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError, AssertionError)
"""Exceptions of code that meets a value of another type than it expects."""
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_MAX_SHOWN = 60  # characters of a value
_NULL = re.compile(rb"[:\[,]null")
_MAX_BITS = 9_000  # Python refuses to write much longer numbers
MOST_TAG = 100
"""The most characters of a call's tag."""
_MAX_SECONDS = 1e9  # 31 years; longer waits do not fit into the operating system's clocks


def kind_of(value: Any) -> str:
    """Return the name of a value's type; for a class, its own name."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def plural(number: int) -> str:
    """Return the ending of a noun behind a number, for a message."""
    return "" if number == 1 else "s"


def short_text(value: Any) -> str:
    """Return a short text for a value: plain values as they are written, others by their type."""
    if value is None or value is True or value is False:
        return str(value)
    if type(value) is int:
        return str(value) if value.bit_length() < 200 else "a number of many digits"
    if type(value) is float:
        return repr(value)
    if type(value) is str:
        return repr(value) if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]!r}…"
    return kind_of(value)


def wrong_type(name: str, value: Any, expected: str) -> TypeError:
    """Return the error for an argument of another type: `name is int; a string is expected`."""
    return TypeError(f"{name} is {kind_of(value)}; {expected} is expected")


def wrong_value(name: str, value: Any, expected: str) -> ValueError:
    """Return the error for an argument with an invalid value: `name=-1; a number above 0 is expected`."""
    return ValueError(f"{name}={short_text(value)}; {expected} is expected")


def unreadable(name: str, error: BaseException) -> TypeError:
    """Return the error for a caller's object that raises while it is read."""
    return TypeError(f"{name} raised {type(error).__name__} while it was read; a plain value is expected")


def require_type(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raise `TypeError` unless the value is of a type."""
    if not isinstance(value, kind):
        raise wrong_type(name, value, expected)


def require_text(name: str, value: Any) -> None:
    """Raise `TypeError` unless the value is a string."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string")


def as_word(name: str, value: Any, words: Sequence[str]) -> str:
    """Return a value that is one of some words. Raise `ValueError` for any other."""
    if not isinstance(value, str) or str.__str__(value) not in words:
        raise wrong_value(name, value, f"one of {', '.join(words)}")
    return str.__str__(value)


def as_tag(name: str, value: Any) -> str:
    """Return the tag of a call. Raise `TypeError` or `ValueError` for a long one, and for one nobody can print."""
    require_text(name, value)
    tag = str.__str__(value).strip()
    if not 1 <= len(tag) <= MOST_TAG or not tag.isprintable():
        raise wrong_value(name, value, f"a name of 1 to {MOST_TAG} printable characters")
    return tag


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    if host.lower() == "localhost":
        return True
    import ipaddress  # slow to load, and most hosts are names

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def matches_pattern(name: str, pattern: str) -> bool:
    """Whether a name is like a pattern, in which `*` stands for anything and `?` for one character.

    A bracket stands for itself, as in the name `sonnet[1m]`.
    """
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def require_path(name: str, value: Any) -> None:
    """Raise `TypeError` or `ValueError` unless the value can name a file."""
    if not isinstance(value, str | os.PathLike):
        raise wrong_type(name, value, "a path (a string or a pathlib.Path)")
    text = as_text(name, value)
    if "\0" in text:
        raise wrong_value(name, text, "a path without a NUL character")
    try:
        os.fsencode(text)
    except UnicodeError:
        raise wrong_value(name, text, "a path that the file system can name") from None


def as_text(name: str, value: Any) -> str:
    """Return `str(value)`. Raises `TypeError` or `ValueError` for a value without a text."""
    try:
        return str(value)
    except Exception as error:
        if isinstance(value, int):
            raise ValueError(f"{name} is a number of too many digits; a shorter one is expected") from error
        problem = f"{name} is {kind_of(value)}, which raised {type(error).__name__}; a string is expected"
        raise TypeError(problem) from error


def as_list(name: str, value: Any, expected: str) -> list[Any]:
    """Return an iterable as a list. Raises `TypeError` for text, bytes, tables and values that are no iterable."""
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping | type) or not isinstance(
        value, Iterable | Sequence
    ):
        raise wrong_type(name, value, expected)
    try:
        return list(value)
    except Exception as error:
        raise unreadable(name, error) from error


def as_dict(name: str, value: Any, expected: str = "a dict") -> dict[Any, Any]:
    """Return a mapping as a dict of its own. Raises `TypeError` for anything else."""
    if type(value) is not dict and not isinstance(value, Mapping):  # an abstract class is slow to ask
        raise wrong_type(name, value, expected)
    try:
        return dict(value)
    except Exception as error:
        raise unreadable(name, error) from error


def require_keys(name: str, table: Mapping[Any, Any], keys: Sequence[str]) -> None:
    """Raise `ValueError` for a key of a table that is none of these."""
    for key in table:
        if key not in keys:
            raise ValueError(f"{name} has no key {short_text(key)}; its keys are {', '.join(keys)}")


def plain(name: str, value: Any) -> Any:
    """Return a mapping of any kind as a dict, and every other value as it is."""
    return as_dict(name, value) if type(value) is not dict and isinstance(value, Mapping) else value


def as_bytes(name: str, value: Any) -> bytes:
    """Return a bytes-like value as bytes. Raises `TypeError` for anything else."""
    require_type(name, value, (bytes, bytearray, memoryview), "bytes")
    return bytes(value)


def as_headers(name: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers with names in lower case. Raises `TypeError` for names and values that are no strings."""
    if type(headers) is not dict:
        headers = as_dict(name, headers)
    try:
        return {k.lower(): v for k, v in headers.items() if isinstance(v, str) or _raise_header_type(name, k, v)}
    except AttributeError:
        raise TypeError(f"{name} has a name that is not a string; strings are expected") from None


def _raise_header_type(name: str, key: Any, value: Any) -> bool:
    """Raise `TypeError` for a header whose value is no string."""
    raise wrong_type(f"{name}[{short_text(key)}]", value, "a string")


def number(name: str, value: Any, minimum: int, *, none: bool = False) -> int | None:
    """Return a whole number from `minimum` on. Raises `TypeError` or `ValueError`."""
    if value is None and none:
        return None
    expected = f"a whole number from {minimum}{', or None,' if none else ''}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, value, expected)
    if value < minimum:
        raise wrong_value(name, value, expected)
    return int(value)


def amount(name: str, value: Any) -> Decimal:
    """Return an amount of money from 0. Raises `TypeError` or `ValueError`: NaN as a cap would hold nothing back."""
    expected = "an amount from 0"
    if isinstance(value, bool) or not isinstance(value, str | numbers.Real | Decimal):
        raise wrong_type(name, value, expected)
    try:
        money = Decimal(str(value))
    except InvalidOperation:
        money = Decimal("nan")
    if not money.is_finite() or money < 0:
        raise wrong_value(name, value, expected)
    return money


def seconds(name: str, value: Any, *, zero: bool = False, none: bool = True) -> float | None:
    """Return a time in seconds; None, infinity and more than 31 years mean no limit, which `none` allows.

    Raises `TypeError` or `ValueError` naming the argument.
    """
    if value is None and none:
        return None
    expected = "a number of seconds" + (" from 0" if zero else " above 0") + (", or None," if none else "")
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal):
        raise wrong_type(name, value, expected)
    try:
        time = float(value)
    except OverflowError:
        time = -1.0 if isinstance(value, int) and value < 0 else float("inf")
    except ValueError:  # a signalling NaN
        time = float("nan")
    if not (time > 0 or (zero and time == 0)):
        raise wrong_value(name, value, expected)
    if time <= _MAX_SECONDS:
        return time
    if not none:
        finite = "a finite number of seconds from 0" if zero else "a finite number of seconds above 0"
        raise wrong_value(name, value, finite)
    return None


def check_json_value(name: str, value: Any) -> None:
    """Raise `TypeError` or `ValueError` for a value that JSON cannot hold, naming its path."""
    todo: list[tuple[str, Any, int]] = [(name, value, 0)]
    while todo:
        place, item, depth = todo.pop()
        if depth > 500:
            raise ValueError(f"{name} is nested too deeply or holds itself; JSON of fewer levels is expected")
        if item is None or isinstance(item, bool | str):
            continue
        if isinstance(item, float):
            if item - item != 0:  # NaN and infinity
                raise wrong_value(place, item, "a finite number")
        elif isinstance(item, int):
            if item.bit_length() > _MAX_BITS:
                raise ValueError(f"{place} is a number of too many digits; a shorter one is expected")
        elif isinstance(item, Mapping):
            table = as_dict(place, item)
            for key in table:
                if not isinstance(key, str | int):
                    raise TypeError(f"{place} has a key that is {kind_of(key)}; a string is expected")
            todo += [(f"{place}[{short_text(key)}]", inner, depth + 1) for key, inner in table.items()]
        elif isinstance(item, list | tuple | Sequence) and not isinstance(item, bytes | bytearray | memoryview):
            items = as_list(place, item, "a list")
            todo += [(f"{place}[{index}]", inner, depth + 1) for index, inner in enumerate(items)]
        else:
            try:
                msgspec.json.encode(item)  # dates, for example, have a form in JSON
            except Exception as error:
                raise wrong_type(place, item, "a value that JSON can hold") from error


def check_finite(name: str, value: Any) -> None:
    """Raise `ValueError` for a value with a number that JSON does not have, such as NaN: null would be sent for it."""
    try:
        text = msgspec.json.encode(value)
    except Exception:  # noqa: BLE001  it is told where the request is built
        return
    if _NULL.search(text) is not None:
        check_json_value(name, value)


@lru_cache(maxsize=256)
def unfit_id(id: str) -> str | None:
    """Return why a model id cannot stand in a path; None where it can.

    Servers and proxies on the way may decode the path once more, so an id that is encoded is checked as they see it,
    and one that is encoded twice has no place there.
    """
    decoded = unquote(id, errors="replace") if "%" in id else id
    if _ESCAPE.search(decoded) and decoded != id:
        return "it is percent-encoded twice"
    if any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F or 0xD800 <= ord(char) <= 0xDFFF for char in decoded):
        return "a control character or half of a character cannot stand in a path"
    segments = decoded.replace("\\", "/").split("/")
    if any(segment.partition(";")[0].strip() in (".", "..", "") for segment in segments):
        return "it leaves the path of its endpoint: an id has no empty part, and none that is . or .."
    return None


# ── messages ─────────────────────────────────────────────────────────────────


_TEXT_OR_NONE = (str, type(None))
_PART_TYPES = frozenset([Text, Reasoning, Media, ToolCall, ToolResult, Opaque])


def has_plain_fields(part: Any) -> bool:
    """Whether the fields of a part that a request carries have their types; `message_fault` judges the others.

    Without this, a request would carry the representation of a value: nothing fails where bytes are put into a text.
    """
    kind = type(part)
    if kind is Text or kind is Reasoning:
        return type(part.text) is str
    if kind is Media:
        return type(part.data) in _TEXT_OR_NONE and type(part.url) in _TEXT_OR_NONE
    if kind is ToolCall:
        return type(part.id) is type(part.name) is str and (part.arguments is None or type(part.arguments) is dict)
    if kind is ToolResult:
        is_text = type(part.id) is type(part.text) is str
        return is_text and type(part.media) is tuple and all(map(has_plain_fields, part.media))
    return kind is Opaque


def message_fault(place: str, fields: Fields) -> Exception | None:
    """Return the error for the fields of a message that cannot be written; None for valid ones.

    `place` ends with a dot.
    """
    role, parts, by, name, extra = fields
    for key, value in (("role", role), ("by", by), ("name", name)):
        if not isinstance(value, str) and (value is not None or key == "role"):
            return wrong_type(f"{place}{key}", value, "a string")
    for index, part in enumerate(parts):
        if type(part) not in _PART_TYPES:
            return wrong_type(f"{place}parts[{index}]", part, "a Text, Media, ToolCall or another part of cnllm's")
        if (fault := struct_fault(f"{place}parts[{index}]", part)) is not None:
            return fault
    return _json_fault(f"{place}extra", extra)


def struct_fault(place: str, value: msgspec.Struct) -> Exception | None:
    """Return the error for a field of another type, or one that JSON cannot hold; None where all are valid."""
    if type(value) is Media and isinstance(value.data, bytes):
        return wrong_type(f"{place}.data", value.data, "a string in base64")
    config = value.__struct_config__
    tag: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    try:
        msgspec.convert({**fields, **tag}, type(value))
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        return TypeError(f"{place}{path.rstrip('`')}: {problem[:1].lower()}{problem[1:]}")
    except Exception as error:  # noqa: BLE001  a caller's object that raises while it is read
        return unreadable(place, error)
    for name, inner in fields.items():
        if isinstance(inner, msgspec.Struct):
            fault = struct_fault(f"{place}.{name}", inner)
        elif name == "media":
            faults = (struct_fault(f"{place}.media[{index}]", medium) for index, medium in enumerate(inner))
            fault = next(filter(None, faults), None)
        else:
            fault = _json_fault(f"{place}.{name}", inner)
        if fault is not None:
            return fault
    return None


def _json_fault(place: str, value: Any) -> Exception | None:
    """Return the error for a value that JSON cannot hold; None for one that it can."""
    try:
        check_json_value(place, value)
    except (TypeError, ValueError) as error:
        return error
    return None
