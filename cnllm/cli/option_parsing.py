"""Options of the command line → options of a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cnllm.cli.output.errors import UsageError

__all__ = ["call_options", "parse_json", "parse_json_option", "parse_parameter", "read_json_file", "read_tools"]

_NUMBER = (int, float)
KNOWN: dict[str, tuple[tuple[type, ...], str]] = {
    "temperature": (_NUMBER, "a number"),
    "top_p": (_NUMBER, "a number"),
    "max_tokens": ((int,), "a whole number"),
    "stop": ((str, list), "text, or a list of texts"),
    "seed": ((int,), "a whole number"),
    "parallel_tool_calls": ((bool,), "true or false"),
    "corrections": ((int,), "a whole number"),
    "if_cut": ((str,), "error, again-whole or keep"),
    "on_unsupported": ((str,), "adjust, error or send"),
    "recover_text_calls": ((str,), "recover, strip or keep"),
}
"""What `-p` hands to the call by name, with the types it takes; anything else goes into the body as it is."""

FURTHER = ("presence_penalty", "frequency_penalty", "top_k", "logit_bias", "logprobs")
"""What it hands on too, of whatever type: parameters that an endpoint may not take."""

_WORDS = {
    "if_cut": ("error", "again-whole", "keep"),
    "on_unsupported": ("adjust", "error", "send"),
    "recover_text_calls": ("recover", "strip", "keep"),
}


def call_options(
    parameters: tuple[str, ...],
    extra_body: str | None,
    tools_file: str | None,
    schema_file: str | None,
    **more: Any,
) -> dict[str, Any]:
    """The keyword arguments of a call; what is None is left out."""
    chosen: dict[str, Any] = {}
    extra = _object(parse_json_option(extra_body, "--extra-body"), "--extra-body") if extra_body is not None else {}
    for given in parameters:
        name, value = parse_parameter(given)
        if name in KNOWN:
            chosen[name] = _typed(name, value)
        elif name in FURTHER:
            chosen[name] = value
            extra.pop(name, None)  # -p wins over --extra-body, as for every other name
        else:
            _put(extra, name, value)
    if extra:
        chosen["extra_body"] = extra
    if tools_file is not None:
        chosen["tools"] = read_tools(tools_file)
    if schema_file is not None:
        chosen["schema"] = _object(read_json_file(schema_file, "--schema"), schema_file)
    return chosen | {name: value for name, value in more.items() if value is not None}


def parse_parameter(given: str) -> tuple[str, Any]:
    """NAME=VALUE → its name and value; what is not JSON is text."""
    name, equals, value = given.partition("=")
    if not equals or not all(name.split(".")):
        raise UsageError(f"-p {given!r} is not NAME=VALUE", "for example: -p temperature=0.2")
    try:
        return name, json.loads(value, parse_constant=_refuse)
    except ValueError:
        return name, value


def read_tools(path: str) -> list[dict[str, Any]]:
    """The tools in a JSON file: a list of them, or one."""
    found = read_json_file(path, "--tools")
    if isinstance(found, dict):
        found = found["tools"] if isinstance(found.get("tools"), list) else [found]
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise UsageError(
            f"{path} holds no list of tools",
            'it looks like [{"name": …, "description": …, "parameters": {…}}]',
        )
    return found


def read_json_file(path: str, option: str) -> Any:
    """What a JSON file holds."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}", "name a JSON file that can be read") from error
    return parse_json(data, path)


def parse_json_option(given: str, option: str) -> Any:
    """What an option's JSON says; `@FILE` stands for what is in a file."""
    if given.startswith("@"):
        return read_json_file(given[1:], option)
    return parse_json(given.encode("utf-8", "surrogateescape"), option)


def parse_json(data: bytes, place: str) -> Any:
    """The value of JSON text; `place` is where it stands, for what is said when it is none."""
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise UsageError(f"{place}:{line}:{column}: this is not UTF-8", "save it as UTF-8") from None
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise UsageError(f"{place}:{error.lineno}:{error.colno}: not valid JSON: {reason}", _MEND) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: not valid JSON: {error}", _MEND) from None


_MEND = "correct it there; nothing was sent"


def _refuse(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{place} holds no JSON object", 'it looks like {"name": "value"}')
    return value


def _typed(name: str, value: Any) -> Any:
    kinds, words = KNOWN[name]
    wrong = not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
    wrong = wrong or (isinstance(value, list) and not all(isinstance(item, str) for item in value))
    if wrong or (name in _WORDS and value not in _WORDS[name]):
        raise UsageError(f"-p {name}={value if isinstance(value, str) else json.dumps(value)}: {name} is {words}")
    return value


def _put(body: dict[str, Any], name: str, value: Any) -> None:
    """Sets a dotted path, making the tables on the way."""
    *tables, last = name.split(".")
    for depth, key in enumerate(tables, 1):
        body = body.setdefault(key, {})
        if not isinstance(body, dict):
            raise UsageError(f"-p {name}: {'.'.join(tables[:depth])} already has a value that is no table")
    body[last] = value
