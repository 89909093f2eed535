"""Parse options of the command line into options of a call: `-p`, `--extra-body`, `--tools` and `--schema`."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from typing import Any, get_args

from cnllm.cli.output.errors import CORRECT, UsageError, correcting, read_file
from cnllm.cli.parameters import PARAMETERS, SWITCH, WHOLE, Parameter
from cnllm.jsonpath import remove
from cnllm.schemas.coerce import finite_number, refuse_constant
from cnllm.types.policy import IfCut, OnUnsupported, TextCalls

__all__ = [
    "CALL_OPTIONS",
    "CHOICES",
    "call_options",
    "is_json",
    "is_short_form",
    "parse_json",
    "parse_parameter",
    "read_schema",
    "read_tools",
]


CHOICES = {
    "if_cut": get_args(IfCut),
    "on_unsupported": get_args(OnUnsupported),
    "recover_text_calls": get_args(TextCalls),
}
"""The options of a call that take one word of a few."""

CALL_OPTIONS: dict[str, Parameter] = {
    **PARAMETERS,
    "corrections": Parameter("", *WHOLE, 0),
    "pdf_text": Parameter("", *SWITCH),
    **{name: Parameter("", (str,), f"{', '.join(words[:-1])} or {words[-1]}") for name, words in CHOICES.items()},
}
"""Options that `-p` passes to the call by name. Any other name is a parameter of the model."""
_EXAMPLES: dict[type, str] = {
    float: "0.5",
    int: "1000",
    bool: "true",
    list: "END",
    dict: """'{"50256": -100}'""",
}


def call_options(
    parameters: tuple[str, ...],
    extra_body: str | None = None,
    tools_file: str | None = None,
    schema_file: str | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Return the keyword arguments of a call, without those that are None."""
    options: dict[str, Any] = {}
    extra = _extra_body(extra_body) if extra_body is not None else {}
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
        options["schema"] = read_schema(schema_file)
    return options | {name: value for name, value in others.items() if value is not None}


def read_schema(value: str) -> dict[str, Any]:
    """Return the JSON Schema. Raise `UsageError` with what is wrong."""
    if is_short_form(value):
        from cnllm.schemas.short_form import parse_short_form

        with correcting(f"--schema {value!r}: ", "it looks like 'name, age int, tags [str]'"):
            return parse_short_form(value)
    schema = parse_json(value.encode(), "--schema") if is_json(value) else _read_json_file(value, "--schema")
    return _require_object(schema, value)


def is_short_form(value: str) -> bool:
    """Whether a value is neither JSON nor the path of a file."""
    name = value.strip()
    is_path = os.path.exists(value) or (" " not in name and ("/" in name or "." in name))
    return not is_path and not is_json(value)


def is_json(value: str) -> bool:
    """Whether a value begins as a JSON object does."""
    rest = value.lstrip()
    return rest.startswith("{") and rest[1:].lstrip()[:1] in ('"', "}")


def parse_parameter(argument: str) -> tuple[str, Any]:
    """Split NAME=VALUE into its name and value. A value that is not JSON is text."""
    name, equals, value = argument.partition("=")
    if not equals or not all(name.split(".")):
        raise UsageError(f"-p {argument!r} is not NAME=VALUE", "for example: -p temperature=0.2")
    try:
        return name, json.loads(value, parse_constant=refuse_constant, parse_float=finite_number)
    except ValueError:
        return name, value


def read_tools(path: str) -> list[dict[str, Any]]:
    """Read tools from a JSON file: a list of tools, or one tool."""
    if path.endswith(".py"):
        raise UsageError(f"--tools {path}: a JSON file is expected", f"a function of Python: --tool {path}:FUNCTION")
    tools = _read_json_file(path, "--tools")
    if isinstance(tools, dict):
        tools = tools["tools"] if isinstance(tools.get("tools"), list) else [tools]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        form = 'it looks like [{"name": …, "description": …, "parameters": {…}}]'
        raise UsageError(f"{path} holds no list of tools", form)
    return tools


def _read_json_file(path: str, option: str) -> Any:
    """Read the value in a JSON file. Raises `UsageError`."""
    return parse_json(read_file(path, f"{option} {path}", "name a JSON file that can be read"), path)


def _extra_body(value: str) -> dict[str, Any]:
    """Parse the JSON of `--extra-body`. `@FILE` reads a file."""
    if value.startswith("@"):
        body = _read_json_file(value[1:], "--extra-body")
    else:
        body = parse_json(value.encode("utf-8", "surrogateescape"), "--extra-body")
    return _require_object(body, "--extra-body")


def parse_json(data: bytes, source: str) -> Any:
    """Parse JSON text. `source` names the file or option in errors."""
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=refuse_constant, parse_float=finite_number)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise UsageError(f"{source}:{line}:{column}: this is not UTF-8", "save it as UTF-8") from None
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise UsageError(f"{source}:{error.lineno}:{error.colno}: not valid JSON: {reason}", CORRECT) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}: not valid JSON: {error}", CORRECT) from None


def _require_object(value: Any, source: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{source} holds no JSON object", 'it looks like {"name": "value"}')
    return value


def _check_value(name: str, value: Any) -> Any:
    option = CALL_OPTIONS[name]
    invalid = not isinstance(value, option.types) or (isinstance(value, bool) and bool not in option.types)
    invalid = invalid or (isinstance(value, list) and not all(isinstance(item, str) for item in value))
    if invalid or (name in CHOICES and value not in CHOICES[name]):
        text = value if isinstance(value, str) else json.dumps(value)
        example = CHOICES[name][0] if name in CHOICES else _EXAMPLES[option.types[-1]]
        option_text = f"--{name.replace('_', '-')} {example}" if name in PARAMETERS else f"-p {name}={example}"
        raise UsageError(f"the parameter {name}={text}: {option.form} is expected", f"for example: {option_text}")
    least, most = option.least, option.most
    if (least is not None and value < least) or (most is not None and value > most):
        form = f"a number of at least {least}" if most is None else f"a number from {least} to {most}"
        hint = "most endpoints refuse it; nothing was sent. --extra-body sends any value as it is"
        raise UsageError(f"the parameter {name}={json.dumps(value)}: {form} is expected", hint)
    return value


def _set_path(body: dict[str, Any], name: str, value: Any) -> None:
    """Set the value at a dotted path, and create the objects on the way."""
    *parents, last = name.split(".")
    for depth, key in enumerate(parents, 1):
        body = body.setdefault(key, {})
        if not isinstance(body, dict):
            raise UsageError(f"-p {name}: {'.'.join(parents[:depth])} already has a value that is not an object")
    body[last] = value
