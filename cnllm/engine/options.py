"""Read the caller's options into one shape, whatever their spelling."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict

from cnllm.engine.similar_names import similar_name
from cnllm.jsonpath import leaves, merge_patch, remove
from cnllm.registry.flags import LEVELS
from cnllm.types import checks
from cnllm.types.client_data import ClientData
from cnllm.types.policy import IfCut, OnUnsupported, Recovery, TextCalls
from cnllm.types.tools import Function, WebSearch, check_names

if TYPE_CHECKING:
    from cnllm.tools.values import Tool

__all__ = [
    "CLIENT_OPTIONS",
    "DEFAULT_NAME",
    "EXTRA_PARAMS",
    "OPTION_NAMES",
    "PARAMS",
    "RequestOptions",
    "option_fault",
    "read_options",
    "read_tool_choice",
]

_PARAMS = ("temperature", "top_p", "max_tokens", "stop", "seed")
EXTRA_PARAMS = ("presence_penalty", "frequency_penalty", "top_k", "logit_bias", "logprobs", "top_logprobs")
"""Parameters that a registry may name, and that are sent under their own name where it does not."""
PARAMS = frozenset((*_PARAMS, *EXTRA_PARAMS, "parallel_tool_calls"))
"""The parameters that are options of a call, whatever the model's registry says."""
DEFAULT_NAME = "answer"
"""The name of the format of an answer that has no other."""
CLIENT_OPTIONS = ("api_key", "fallback", "limits", "tag", "timeout")
"""Options for the client; accepted so that one set of options serves both."""


_TEXT_OR_NONE = (str, type(None))
_SEARCH = attrgetter("search")


class RequestOptions(Struct, frozen=True, kw_only=True):
    """The options of one call. `choice` is auto, none, required or named, with `tool_name` the named tool.

    `on_unsupported` is None where nobody set it.

    `schema_kind` is the model class that the caller gave as the schema, `schema_keys` what stands beside the schema in
    OpenAI's wrapper (`strict`, `description`). `defaults` are the names of the options that come from the model's own
    defaults. `other_params` are parameters that no rule of the registry is about. `search` is the web search that the
    caller wants, which is not among the `tools`.
    """

    reasoning: str | int | None = None
    tools: tuple[Function, ...] = ()
    search: WebSearch | None = None
    choice: Literal["auto", "none", "required", "named"] | None = None
    tool_name: str | None = None
    parallel_tool_calls: bool | None = None
    params: dict[str, Any] = {}
    other_params: dict[str, Any] = {}
    schema: dict[str, Any] | None = None
    schema_name: str = DEFAULT_NAME
    schema_keys: dict[str, Any] = {}
    schema_kind: Any = None
    corrections: int | None = None
    extra_body: dict[str, Any] = {}
    extra_headers: dict[str, str] = {}
    on_unsupported: OnUnsupported | None = None
    if_cut: IfCut | None = None
    recover_text_calls: TextCalls | None = None
    recovery: Recovery | None = None
    prefill: bool | None = None
    pdf_text: bool = False
    defaults: frozenset[str] = frozenset()


def read_options(
    options: Mapping[str, Any], call: Mapping[str, Any] | None = None, declared: Collection[str] = ()
) -> RequestOptions:
    """Read options by name; `call` holds the model's own defaults, `declared` the parameters of its registry.

    An option that is None counts as not given, so that wrappers can pass on an option they did not get. Raises
    `TypeError` or `ValueError` naming the option.
    """
    values = {name: value for name, value in options.items() if value is not None}
    fields: dict[str, Any] = {}
    if "params" in values:
        fields["other_params"] = _split_params(values, declared)
    if call:
        call = _without(call, fields.get("other_params"))
        defaults = _defaults(call, values)
        for name in ("extra_body", "extra_headers"):
            if name in call and name in values:
                merged = _merge(call[name], checks.as_dict(name, values[name]))
                data = values[name]
                values[name] = ClientData(data.protocol, merged) if type(data) is ClientData else merged
        values = {**defaults, **values}
        fields["defaults"] = frozenset(defaults)
    fields["params"] = {name: _typed_param(name, values[name]) for name in _PARAMS if name in values}
    extra_params = sorted(name for name in values if name not in _KNOWN and (name in EXTRA_PARAMS or name in declared))
    for name in extra_params:
        fields["params"][name] = _typed_param(name, values[name])
    for name, value in values.items():
        if name in _READERS:
            fields[name] = _READERS[name](value)
        elif name == "tool_choice":
            fields["choice"], fields["tool_name"] = read_tool_choice(value)
        elif name == "schema":
            fields |= _schema(value)
            checks.check_finite("schema", fields["schema"])
        elif name not in _KNOWN and name not in extra_params:
            similar, _ = similar_name(name, {*OPTION_NAMES, *declared})
            question = f". Did you mean {similar!r}?" if similar else ""
            label = checks.short_text(name)
            raise TypeError(
                f"unknown option {label}{question}; what only the endpoint knows is for params or extra_body"
            )
    if "tools" in fields and any(map(_SEARCH, fields["tools"])):
        fields["search"] = next(filter(None, map(_SEARCH, fields["tools"])))
        fields["tools"] = tuple(tool for tool in fields["tools"] if tool.search is None)
    return RequestOptions(**fields)


def _split_params(values: dict[str, Any], declared: Collection[str]) -> dict[str, Any]:
    """Move `params` to the options of the same names, and return those without one. An option by name wins."""
    params = checks.as_dict("params", values.pop("params"))
    checks.check_json_value("params", params)
    rest: dict[str, Any] = {}
    for name, value in params.items():
        if name not in PARAMS and name not in declared:
            rest[name] = value
        elif value is not None:
            values.setdefault(name, value)
    return rest


def _without(call: Mapping[str, Any], params: dict[str, Any] | None) -> Mapping[str, Any]:
    """Return the model's defaults without those keys of the body that the caller gives as parameters."""
    if not params or "extra_body" not in call:
        return call
    body = _merge(call["extra_body"], {})
    for path in leaves(params):
        remove(body, path)
    return {**call, "extra_body": body}


def _defaults(call: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's defaults for options that the caller sets neither by name nor in the body."""
    body = options.get("extra_body")
    names = {"stream", *options, *(body if isinstance(body, Mapping) else ())}
    return {name: value for name, value in call.items() if name not in names}


def _merge(default: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """Return a default table with the caller's table merged over it."""
    out: dict[str, Any] = {}
    merge_patch(out, default)
    merge_patch(out, override)
    return out


def _param(name: str, value: Any) -> Any:
    """Return a parameter as a JSON value.

    Raises `TypeError` or `ValueError`, naming the parameter, for a value that JSON cannot hold, and for NaN.
    """
    kind = type(value)
    if kind is str or kind is bool:
        return value
    if kind is float:
        if value - value != 0:  # NaN and infinity
            raise checks.wrong_value(name, value, "a finite number")
        return value
    if kind is int:
        if value.bit_length() > 64:
            raise checks.wrong_value(name, value, "a number of at most 64 bits")
        return value
    if isinstance(value, numbers.Real | Decimal):
        try:
            return _param(name, float(value))
        except (OverflowError, ValueError) as error:
            raise checks.wrong_type(name, value, "a number") from error
    if isinstance(value, str):
        return str.__str__(value)
    if kind is tuple:
        value = list(value)
    checks.check_json_value(name, value)
    return value


def _typed_param(name: str, value: Any) -> Any:
    """Return a parameter as a JSON value of its own type, where it has one; 12.0 is the whole number 12.

    Raises `TypeError` or `ValueError`: an endpoint would ignore a value of another type, or refuse it after the prompt
    was sent. `extra_body` takes any value.
    """
    value = _param(name, value)
    kind = type(value)
    if name in _WHOLE_NUMBERS and kind is not int:
        if kind is not float:
            raise checks.wrong_type(name, value, "a whole number")
        if not value.is_integer():
            raise checks.wrong_value(name, value, "a whole number")
        return int(value)
    if name in _NUMBERS and kind is not float and kind is not int:
        raise checks.wrong_type(name, value, "a number")
    if name == "logprobs" and kind is not bool and kind is not int:
        raise checks.wrong_type(name, value, "True or False")
    if name == "stop" and kind is not str:
        if not isinstance(value, Sequence):
            raise checks.wrong_type(name, value, "a string or a list of strings")
        for text in value:
            checks.require_text("stop: one of them", text)
    if name == "logit_bias":
        table = checks.as_dict(name, value, "a dict of numbers")
        for token, bias in table.items():
            if isinstance(bias, bool) or not isinstance(bias, numbers.Real | Decimal):
                raise checks.wrong_type(f"logit_bias[{checks.short_text(token)}]", bias, "a number")
    return value


_WHOLE_NUMBERS = frozenset(("max_tokens", "seed", "top_k", "top_logprobs"))
_NUMBERS = frozenset(("temperature", "top_p", "presence_penalty", "frequency_penalty"))


def _reasoning(value: Any) -> str | int:
    """Read the option `reasoning`: a word, a number of tokens, or a boolean."""
    if type(value) is int and 0 <= value < 2**63:
        return value
    if value is True or value is False:
        return "on" if value else "off"
    if isinstance(value, str):
        word = str.__str__(value)
        if word in ("off", "on", *LEVELS):
            return word
        if word == "none":
            return "off"
        if word.isascii() and word.isdigit() and len(word) < 19:
            return int(word)
    raise checks.wrong_value("reasoning", value, f"one of off, on, {', '.join(LEVELS)}, or a number of tokens")


_CHOICES = ("auto", "none", "required", "any")
_ONE_TOOL = "an object that names one tool, or has the type auto, none or required (for some of them pass tools=[…])"


def read_tool_choice(value: Any) -> tuple[Literal["auto", "none", "required", "named"] | None, str | None]:
    """Read a tool choice: a word, or an object in the shape of OpenAI or Anthropic. Raises `ValueError`."""
    original = value
    if isinstance(value, Mapping):
        value = checks.as_dict("tool_choice", value)
        kind = value.get("type")
        inner = next((value[key] for key in ("function", "custom") if isinstance(value.get(key), Mapping)), value)
        name = checks.as_dict("tool_choice", inner).get("name")
        if isinstance(name, str) and name:
            return "named", name
        if kind not in _CHOICES:
            raise checks.wrong_value("tool_choice", original, _ONE_TOOL)
        value = kind
    match str.__str__(value) if isinstance(value, str) else None:
        case "auto":
            return "auto", None
        case "none":
            return "none", None
        case "required" | "any":
            return "required", None
        case str() as name if name:
            return "named", name
        case _:
            raise checks.wrong_value("tool_choice", original, "auto, none, required, or a tool's name")


def _tools(value: Any) -> tuple[Function, ...]:
    """Read a list of tools."""
    if type(value) is not list:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise TypeError(f"tools is {type(value).__name__}, a list is expected")
        value = checks.as_list("tools", value, "a list")
    tools = tuple([function for tool in value if (function := _plain_function(tool)) is not None])
    if len(tools) < len(value):
        from cnllm.tools.values import as_tool, expand_sets  # tools in the usual form do not load it

        pairs = enumerate(expand_sets(value))
        tools = tuple([_plain_function(tool) or _function(as_tool(tool, f"tools[{index}]")) for index, tool in pairs])
    for tool in tools:
        checks.check_finite(f"tools ({checks.short_text(tool.name)})", tool.parameters)
    check_names(tools)
    return tools


def _function(tool: Tool) -> Function:
    return Function(*(getattr(tool, name) for name in Function.__struct_fields__))


def _plain_function(tool: Any) -> Function | None:
    """Return a tool in the usual form: `type` and a `function` of name, description and parameters; else None."""
    if type(tool) is not dict:
        return tool if type(tool) is Function else None
    function = tool.get("function")
    if len(tool) != 2 or type(function) is not dict or tool.get("type") != "function":
        return None
    name, description, parameters = function.get("name"), function.get("description"), function.get("parameters")
    if type(name) is not str or type(parameters) is not dict or type(description) not in _TEXT_OR_NONE:
        return None
    strict = function.get("strict")
    if strict is not None and type(strict) is not bool:
        return None
    return Function(name, description, dict(parameters), strict)


def _corrections(value: Any) -> int:
    """Read the option `corrections`."""
    if type(value) is int and value >= 0:
        return value
    raise checks.wrong_value("corrections", value, "how often an invalid answer is sent back, 0 or more,")


def _schema(value: Any) -> dict[str, Any]:
    """Read a JSON Schema, OpenAI's wrapper of one, or a type of Python. Return its fields of `RequestOptions`."""
    if isinstance(value, Mapping):
        value = checks.as_dict("schema", value)
        inner = value.get("json_schema", value)
        if isinstance(inner, Mapping):
            inner = checks.as_dict("schema", inner)
            if isinstance(inner.get("schema"), Mapping):
                kinds = _BESIDE_SCHEMA if "json_schema" in value else {}
                keys = {key: inner[key] for key, kind in kinds.items() if isinstance(inner.get(key), kind)}
                schema = checks.as_dict("schema", inner["schema"])
                return {"schema": schema, "schema_name": _name(inner.get("name")), "schema_keys": keys}
        return {"schema": value, "schema_name": _name(value.get("title"))}
    from cnllm.schemas.python_types import is_python_type, python_type, remove_odd_defaults  # most calls have none

    kind: Any = value if isinstance(value, type) and callable(getattr(value, "model_json_schema", None)) else None
    if kind is None and not is_python_type(value):
        raise TypeError(f"schema is {type(value).__name__}; {_SCHEMAS} is expected")
    try:
        kind = python_type(value) if kind is None else kind
        schema = remove_odd_defaults(dict(kind.model_json_schema()))
        return {"schema": schema, "schema_name": _name(getattr(kind, "__name__", None)), "schema_kind": kind}
    except Exception as error:  # raised by a type that has no JSON Schema
        reason = str(error).strip().partition("\n")[0]
        label = checks.kind_of(value) if isinstance(value, type) else str(value)
        raise TypeError(f"schema is {label}, which has no JSON Schema: {reason}; {_SCHEMAS} is expected") from error


_BESIDE_SCHEMA: dict[str, type] = {"description": str, "strict": bool}
"""Keys beside the schema in OpenAI's wrapper, and the type of each."""

_SCHEMAS = "a type (a pydantic model, a dataclass, list[str], …) or a JSON Schema (dict)"


def _name(title: Any) -> str:
    """Return a title as the name of a schema, which may hold only letters, digits, - and _."""
    text = str.__str__(title) if isinstance(title, str) else ""
    cleaned = "".join(c if (c.isalnum() and c.isascii()) or c in "-_" else "_" for c in text)
    return cleaned.strip("_")[:64] or DEFAULT_NAME


def _extra_body(value: Any) -> dict[str, Any]:
    """Read the option `extra_body`."""
    table = checks.as_dict("extra_body", value)
    checks.check_json_value("extra_body", table)
    return ClientData(value.protocol, table) if type(value) is ClientData else table


def _extra_headers(value: Any) -> dict[str, str]:
    """Read the option `extra_headers`."""
    items = checks.as_dict("extra_headers", value).items()
    return {
        _header("a name in extra_headers", k): _header(f"extra_headers[{checks.short_text(k)}]", v) for k, v in items
    }


def _header(place: str, value: Any) -> str:
    """Return the name or value of a header as a string. Numbers and ids have a text, None and lists have none."""
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or isinstance(value, Iterable):
        raise checks.wrong_type(place, value, "a string")
    return checks.as_text(place, value)


def _switch(name: str, value: Any) -> bool:
    """Read a boolean option."""
    if not isinstance(value, bool):
        raise checks.wrong_type(name, value, "True or False")
    return value


def option_fault(options: Mapping[str, Any]) -> Exception | None:
    """Return the error for an option that holds a value JSON cannot hold; None where there is none."""
    for name, value in options.items():
        if value is None:  # not given
            continue
        try:
            if name == "tools":
                for tool in _tools(value):
                    checks.check_json_value(f"tools ({checks.short_text(tool.name)})", asdict(tool))
            elif name == "schema":
                checks.check_json_value(name, _schema(value)["schema"])
            elif name not in (*CLIENT_OPTIONS, "recovery"):
                checks.check_json_value(name, value)
        except (TypeError, ValueError) as error:
            return error
    return None


_READERS: dict[str, Callable[[Any], Any]] = {
    "reasoning": _reasoning,
    "tools": _tools,
    "parallel_tool_calls": partial(_switch, "parallel_tool_calls"),
    "corrections": _corrections,
    "extra_body": _extra_body,
    "extra_headers": _extra_headers,
    "on_unsupported": partial(checks.as_word, "on_unsupported", words=get_args(OnUnsupported)),
    "if_cut": partial(checks.as_word, "if_cut", words=get_args(IfCut)),
    "recover_text_calls": partial(checks.as_word, "recover_text_calls", words=get_args(TextCalls)),
    "recovery": Recovery.of,
    "prefill": partial(_switch, "prefill"),
    "pdf_text": partial(_switch, "pdf_text"),
}
"""The readers of options that are one field of `RequestOptions` each, with the same name."""
_KNOWN = {*_READERS, *_PARAMS, *CLIENT_OPTIONS, "tool_choice", "schema"}
OPTION_NAMES = frozenset({*_KNOWN, *PARAMS, "params", "stream", "system"})
"""The names of all options of a call, without those that only a registry declares."""
