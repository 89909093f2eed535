"""Write the answer to a schema as JSON can hold it, whatever type it was built as."""

from __future__ import annotations

from typing import Any

__all__ = ["json_form"]

_PLAIN = (str, int, float, bool, type(None))


def json_form(value: Any) -> Any:
    """Return a value in a form that JSON can hold; the value itself where it is in that form."""
    if type(value) in _PLAIN:
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True)
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(value, by_alias=True)
    return value if type(value) in (dict, list) and plain == value else plain
