"""Parse options of the command line into options of a call."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from cnllm.cli.output.errors import UsageError
from cnllm.config.bounded_files import read_bounded
from cnllm.jsonpath import remove

__all__ = ["call_options", "parse_json", "parse_json_option", "parse_parameter", "read_json_file", "read_tools"]

_NUMBER = (int, float)
CALL_OPTIONS: dict[str, tuple[tuple[type, ...], str]] = {
    "temperature": (_NUMBER, "a number"),
    "top_p": (_NUMBER, "a number"),
    "max_tokens": ((int,), "a whole number"),
    "stop": ((str, list), "text, or a list of texts"),
    "seed": ((int,), "a whole number"),
    "top_k": (_NUMBER, "a number"),
    "presence_penalty": (_NUMBER, "a number"),
    "frequency_penalty": (_NUMBER, "a number"),
    "logit_bias": ((dict,), "a JSON object: the bias of each token"),
    "logprobs": ((bool, int), "true or false"),
    "top_logprobs": ((int,), "a whole number"),
    "parallel_tool_calls": ((bool,), "true or false"),
    "corrections": ((int,), "a whole number"),
    "if_cut": ((str,), "error, again-whole or keep"),
    "on_unsupported": ((str,), "adjust, error or send"),
    "recover_text_calls": ((str,), "recover, strip or keep"),
    "pdf_text": ((bool,), "true or false"),
}
"""Options that `-p` passes to the call by name, with their types. Any other name is a parameter of the model."""

_CHOICES = {
    "if_cut": ("error", "again-whole", "keep"),
    "on_unsupported": ("adjust", "error", "send"),
    "recover_text_calls": ("recover", "strip", "keep"),
}


def call_options(
    parameters: tuple[str, ...],
    extra_body: str | None,
    tools_file: str | None,
    schema_file: str | None,
    **others: Any,
) -> dict[str, Any]:
    """Return the keyword arguments of a call, without those that are None."""
    options: dict[str, Any] = {}
    extra = (
        _require_object(parse_json_option(extra_body, "--extra-body"), "--extra-body") if extra_body is not None else {}
    )
    params: dict[str, Any] = {}
    everything = deepcopy(extra)  # a path through a value that is no object is an error
    for parameter in parameters:
        name, value = parse_parameter(parameter)
        if name in CALL_OPTIONS:
            options[name] = _check_value(name, value)
            extra.pop(name, None)  # -p wins over --extra-body
        else:
            _set_path(everything, name, value)
            _set_path(params, name, value)
            remove(extra, name)
    if params:
        options["params"] = params
    if extra:
        options["extra_body"] = extra
    if tools_file is not None:
        options["tools"] = read_tools(tools_file)
    if schema_file is not None:
        from cnllm.cli.schema_option import read_schema

        options["schema"] = read_schema(schema_file)
    return options | {name: value for name, value in others.items() if value is not None}


def parse_parameter(argument: str) -> tuple[str, Any]:
    """Split NAME=VALUE into its name and value. A value that is not JSON is text."""
    name, equals, value = argument.partition("=")
    if not equals or not all(name.split(".")):
        raise UsageError(f"-p {argument!r} is not NAME=VALUE", "for example: -p temperature=0.2")
    try:
        return name, json.loads(value, parse_constant=_reject_constant)
    except ValueError:
        return name, value


def read_tools(path: str) -> list[dict[str, Any]]:
    """Read tools from a JSON file: a list of tools, or one tool."""
    tools = read_json_file(path, "--tools")
    if isinstance(tools, dict):
        tools = tools["tools"] if isinstance(tools.get("tools"), list) else [tools]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise UsageError(
            f"{path} holds no list of tools",
            'it looks like [{"name": …, "description": …, "parameters": {…}}]',
        )
    return tools


def read_json_file(path: str, option: str) -> Any:
    """Read the value in a JSON file. Raises `UsageError`."""
    try:
        data = read_bounded(path)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}", "name a JSON file that can be read") from error
    return parse_json(data, path)


def parse_json_option(value: str, option: str) -> Any:
    """Parse an option's JSON. `@FILE` reads a file."""
    if value.startswith("@"):
        return read_json_file(value[1:], option)
    return parse_json(value.encode("utf-8", "surrogateescape"), option)


def parse_json(data: bytes, source: str) -> Any:
    """Parse JSON text. `source` names the file or option in errors."""
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_reject_constant)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise UsageError(f"{source}:{line}:{column}: this is not UTF-8", "save it as UTF-8") from None
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise UsageError(f"{source}:{error.lineno}:{error.colno}: not valid JSON: {reason}", _JSON_HINT) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}: not valid JSON: {error}", _JSON_HINT) from None


_JSON_HINT = "correct it; nothing was sent"


def _reject_constant(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")


def _require_object(value: Any, source: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{source} holds no JSON object", 'it looks like {"name": "value"}')
    return value


def _check_value(name: str, value: Any) -> Any:
    kinds, expected = CALL_OPTIONS[name]
    invalid = not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
    invalid = invalid or (isinstance(value, list) and not all(isinstance(item, str) for item in value))
    if invalid or (name in _CHOICES and value not in _CHOICES[name]):
        raise UsageError(f"{name}={value if isinstance(value, str) else json.dumps(value)}: {name} is {expected}")
    return value


def _set_path(body: dict[str, Any], name: str, value: Any) -> None:
    """Set the value at a dotted path, and create the objects on the way."""
    *parents, last = name.split(".")
    for depth, key in enumerate(parents, 1):
        body = body.setdefault(key, {})
        if not isinstance(body, dict):
            raise UsageError(f"-p {name}: {'.'.join(parents[:depth])} already has a value that is not an object")
    body[last] = value
