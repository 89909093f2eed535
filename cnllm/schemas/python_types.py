"""Use a type of Python as the schema of an answer: a dataclass, a TypedDict, an enum, `list[str]`, a union.

pydantic reads the type and builds its values. It is imported with the first such schema, not before.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any

from cnllm.schemas.typed_dicts import readable_type

__all__ = ["PythonType", "is_python_type", "python_type"]


class PythonType:
    """A type with the two methods of a pydantic model that an answer needs."""

    def __init__(self, kind: Any) -> None:
        from pydantic import TypeAdapter

        self._adapter: Any = TypeAdapter(readable_type(kind))
        self.__name__ = str(kind.__name__) if isinstance(kind, type) else "answer"
        self.schema: dict[str, Any] = self._adapter.json_schema()

    def model_json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the type."""
        return self.schema

    def model_validate_json(self, text: str) -> Any:
        """Return the value of a JSON text. Raise pydantic's `ValidationError`, which is a `ValueError`."""
        return self._adapter.validate_json(text)


def is_python_type(value: Any) -> bool:
    """Whether a value is a type: a class, or a form such as `list[str]`, `int | None` or `Literal["a"]`."""
    return isinstance(value, type | types.UnionType) or typing.get_origin(value) is not None


def python_type(kind: Any) -> PythonType:
    """Return a type as a schema. Raise any error of pydantic's for one without a JSON Schema."""
    try:
        hash(kind)
    except TypeError:  # `Annotated` with a list, for example
        return PythonType(kind)
    return _cached(kind)


_cached = functools.lru_cache(maxsize=256)(PythonType)
