"""Request an answer by a schema: choose the method, and add what it needs to the request."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode.mode import Draft
from cnllm.engine.encode.tools import closing_obstacles, takes_closed_alone
from cnllm.engine.history import prompted_tools
from cnllm.engine.options import DEFAULT_NAME, RequestOptions
from cnllm.protocols import wire
from cnllm.registry.flags import Flags
from cnllm.schemas.subschemas import resolve
from cnllm.schemas.validate import undecided_patterns
from cnllm.types import Message
from cnllm.types.tools import Function

__all__ = ["WRAPPER_KEY", "OutputMethod", "add_answer_tool", "add_instruction", "choose_method"]

WRAPPER_KEY = "answer"
"""The key that holds an answer which is not an object itself."""

_FORCED_CHOICES: tuple[Literal["named", "required"], ...] = ("named", "required")


class OutputMethod(Struct, frozen=True, kw_only=True):
    """The method by which an answer by a schema is requested.

    `schema` is the caller's, `wire_schema` the one on the wire: the same, or an object around it (`wrapped`). `kind` is
    the model class that was given instead of a schema. `choice` is the tool_choice of the method `tool`.
    `with_text_tools` means that the model also calls tools as text.
    """

    method: Literal["json_schema", "json_object", "tool", "prompt"]
    schema: dict[str, Any]
    wire_schema: dict[str, Any]
    name: str
    kind: Any = None
    wrapped: bool = False
    choice: Literal["named", "required", "auto"] | None = None
    with_text_tools: bool = False

    @property
    def lenient(self) -> bool:
        """Whether prose may stand before the JSON: not where the endpoint itself enforces the form."""
        return self.method != "json_schema"


def choose_method(request: Draft, ledger: Ledger, text_tools_flag: str | None) -> OutputMethod | None:
    """Return the first declared method that this call can use; None without a schema.

    `text_tools_flag` is the flag by which tools are called in the text: a reply that is limited to JSON has no room for
    such a call. Raises `ValueError` or `TypeError` for a schema that is no JSON Schema.
    """
    options = request.options
    if options.schema is None:
        return None
    if options.schema_kind is None:
        _require_schema(options.schema)
    method = "prompt" if text_tools_flag is not None else _first_method(options, request.flags, ledger)
    wire_schema, wrapped = (options.schema, False) if method == "prompt" else _as_object_schema(options.schema)
    if method != "json_schema" or not wire(ledger.model.protocol).named_format:
        wire_schema = _with_name(wire_schema, options)
    answer = OutputMethod(
        method=method,
        schema=options.schema,
        wire_schema=wire_schema,
        name=options.schema_name,
        kind=options.schema_kind,
        wrapped=wrapped,
        with_text_tools=text_tools_flag is not None,
    )
    if method == "tool":
        answer = _force_tool(answer, request, ledger)
    elif method != "json_schema":
        flag = text_tools_flag or "schema.methods"
        ledger.note("schema-in-prompt", flag, "a JSON Schema", f"{method}, with the schema in the prompt")
    if wrapped:
        did = f"the schema of an object that holds it as {WRAPPER_KEY!r}"
        ledger.note("schema-wrapped", "schema.methods", "a schema that allows other values than objects", did)
    return answer


def _with_name(schema: dict[str, Any], options: RequestOptions) -> dict[str, Any]:
    """Return a schema with the name and the description that the caller gave the format, as its own."""
    own: dict[str, Any] = {}
    if options.schema_kind is None and options.schema_name != DEFAULT_NAME and "title" not in schema:
        own["title"] = options.schema_name
    if description := options.schema_keys.get("description"):
        texts = [description, schema.get("description")]
        own["description"] = "\n\n".join(dict.fromkeys(text for text in texts if isinstance(text, str) and text))
    return {**schema, **own} if own else schema


def _require_schema(schema: dict[str, Any]) -> None:
    """Raise `ValueError` or `TypeError` for a schema that is no JSON Schema."""
    try:
        undecided_patterns(schema)
    except UnicodeError as error:
        raise ValueError("schema holds half of a character; text that UTF-8 can hold is expected") from error
    except TypeError as error:
        raise TypeError(
            "schema holds a value that JSON cannot hold; dicts, lists, strings and numbers are expected"
        ) from error


def _first_method(
    options: RequestOptions, flags: Flags, ledger: Ledger
) -> Literal["json_schema", "json_object", "tool", "prompt"]:
    """Return the first declared method that this call can use."""
    for method in flags.schema.methods or ["json_schema"]:
        if method == "json_schema" and (obstacle := _obstacle(options.schema or {}, flags)) is not None:
            ledger.note("schema-method", "schema.rules", "json_schema", f"skipped: {obstacle}")
            continue
        if method != "tool":
            return method
        if flags.tools.supported is False:
            ledger.note("schema-method", "tools.supported", "tool", "skipped: this model takes no tools")
        elif options.tools:
            ledger.note("schema-method", "schema.methods", "tool", "skipped: the call has tools of its own")
        else:
            return method
    return "prompt"


def _obstacle(schema: dict[str, Any], flags: Flags) -> str | None:
    """Return why an endpoint that takes closed objects alone cannot take a schema; None where it can."""
    return next(closing_obstacles(schema, flags), None) if takes_closed_alone(flags) else None


def _force_tool(answer: OutputMethod, request: Draft, ledger: Ledger) -> OutputMethod:
    """Force the answer tool where the endpoint allows it in that mode. Reasoning stays on."""
    tool = f"the parameters of a tool, {answer.name}"
    supported = ""
    for choice in _FORCED_CHOICES:
        options = add_answer_tool(request.options, msgspec.structs.replace(answer, choice=choice))
        allowed = request.with_options(options).flags.tool_choice.allowed
        if allowed is None or choice in allowed:
            ledger.note("schema-as-tool", "schema.methods", "a JSON Schema", f"{tool}, which must be called ({choice})")
            return msgspec.structs.replace(answer, choice=choice)
        supported = ", ".join(allowed)
    ledger.note("schema-as-tool", "schema.methods", "a JSON Schema", f"{tool}, which may be called")
    did = f"requested in the prompt: it takes {supported}"
    ledger.note("schema-tool-choice", "tool_choice.allowed", "a forced call", did)
    return msgspec.structs.replace(answer, choice="auto" if "auto" in supported.split(", ") else None)


def add_answer_tool(options: RequestOptions, answer: OutputMethod) -> RequestOptions:
    """Return the options with the tool whose arguments are the answer."""
    description = "Gives the answer. Call it once, with all of it."
    return msgspec.structs.replace(
        options,
        tools=(Function(answer.name, description, answer.wire_schema),),
        choice=answer.choice,
        tool_name=answer.name if answer.choice == "named" else None,
    )


def add_instruction(turns: list[Message], answer: OutputMethod) -> list[Message]:
    """Add the instruction that the method needs to the system message, or as a new one."""
    match answer.method:
        case "tool" if answer.choice not in _FORCED_CHOICES:
            text = f"Give your answer by calling the function {answer.name}, and in no other way."
        case "json_object" | "prompt":  # some endpoints require the word JSON
            form = "object" if answer.method == "json_object" else "value"
            begin = "When you call no tool, answer" if answer.with_text_tools else "Answer"
            text = (
                f"{begin} with one JSON {form} and nothing else, no code fence. "
                "It must be valid against this JSON Schema:\n" + msgspec.json.encode(answer.wire_schema).decode()
            )
        case _:
            return turns
    return prompted_tools.add_instruction(turns, text)


def _as_object_schema(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema of an object, and whether it wraps the caller's: endpoints accept no other type of answer."""
    ref = schema.get("$ref")
    if isinstance(ref, str) and set(schema) <= {"$ref", "$defs", "definitions", "$schema", "title", "description"}:
        target = resolve(ref, schema)
        if isinstance(target, dict) and target.get("type") == "object":  # the form of recursive models
            return {**target, **{k: v for k, v in schema.items() if k != "$ref"}}, False
    if schema.get("type") == "object" or ("type" not in schema and "properties" in schema):
        return schema, False
    inner = _move_references(schema, f"#/properties/{WRAPPER_KEY}")
    return {
        "type": "object",
        "properties": {WRAPPER_KEY: inner},
        "required": [WRAPPER_KEY],
        "additionalProperties": False,
    }, True


def _move_references(node: Any, path: str) -> Any:
    """Return a schema whose references keep their targets at a new path."""
    if isinstance(node, list):
        return [_move_references(item, path) for item in node]
    if not isinstance(node, dict):
        return node
    out = {key: _move_references(value, path) for key, value in node.items()}
    ref = out.get("$ref")
    if isinstance(ref, str) and (ref == "#" or ref.startswith("#/")):
        out["$ref"] = path + ref[1:]
    return out
