"""Read the data of a file: JSON, TOML, YAML, SQLite, and the literals of Python and JavaScript."""

from __future__ import annotations

import ast
import json
import operator
import sqlite3
import tomllib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from maintenance.sources import javascript

__all__ = ["data", "is_data"]

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
}
_SCRIPTS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx")
_SUFFIXES = (".json", ".toml", ".yaml", ".yml", ".py", ".sqlite", *_SCRIPTS)


def is_data(path: str) -> bool:
    """Whether a file is of a kind that `data` reads."""
    return path.endswith(_SUFFIXES)


def data(path: str, content: bytes, start: str = "") -> list[Any]:
    """Return the values of a file; `start` is the pattern before each one in a program. Raises `ValueError`."""
    suffix = PurePosixPath(path).suffix
    if suffix == ".sqlite":
        return [_tables(content)]
    if start:  # a program, which may hold a script among bytes that are no text
        return list(javascript.literals(content.decode("latin-1"), start))
    text = content.decode("utf-8", "replace")
    if suffix == ".json":
        return [json.loads(text)]
    if suffix == ".toml":
        return [tomllib.loads(text)]
    if suffix in (".yaml", ".yml"):
        import yaml

        try:
            return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is no YAML: {error}") from error
    if suffix == ".py":
        return list(_python(text))
    if suffix in _SCRIPTS:
        return list(javascript.literals(text))
    raise ValueError(f"{path} is of no kind that can be read")


def _python(text: str) -> Iterator[Any]:
    """Yield the dicts, lists and calls with named arguments that a module assigns. Nothing runs."""
    tree = ast.parse(text)
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value = _constant(node.value, constants)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    constants[target.id] = value
            if isinstance(value, dict | list):
                yield value


def _constant(node: ast.expr, constants: dict[str, Any]) -> Any:
    """Return the value of an expression, None where it is not a literal. A call is the dict of its named arguments."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return constants.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _constant(operand, constants)
            return -value if isinstance(value, int | float) else None
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _constant(left, constants), _constant(right, constants)
            both = isinstance(a, int | float) and isinstance(b, int | float) and not (type(op) is ast.Div and not b)
            return _BINARY[type(op)](a, b) if both else None
        case ast.Dict(keys=keys, values=values):
            pairs = [(_constant(k, constants), v) for k, v in zip(keys, values, strict=True) if k is not None]
            return {k: _constant(v, constants) for k, v in pairs if isinstance(k, str | int | float)}
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_constant(item, constants) for item in items]
        case ast.Call(args=args, keywords=keywords):
            named = {k.arg: _constant(k.value, constants) for k in keywords if k.arg}
            return named or [_constant(a, constants) for a in args]
    return None


def _tables(content: bytes) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every table of a database, in memory."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(content)
        connection.row_factory = sqlite3.Row
        names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        quoted = {name: name.replace('"', '""') for name in names}
        return {name: [dict(row) for row in connection.execute(f'select * from "{quoted[name]}"')] for name in names}
    except sqlite3.Error as error:
        raise ValueError(f"no database: {error}") from error
    finally:
        connection.close()
