"""An answer by a schema: which way it is asked for, and what that puts into the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history import prompted_tools
from cnllm.engine.options import Function, RequestOptions
from cnllm.registry.flags import Flags
from cnllm.schemas.validate import check_schema
from cnllm.types import Message

__all__ = ["WRAPPED", "OutputMethod", "add_answer_tool", "add_instruction", "choose_method"]

WRAPPED = "answer"
"""The key under which an answer goes that is no object itself."""

_FORCED: tuple[Literal["named", "required"], ...] = ("named", "required")


class OutputMethod(Struct, frozen=True, kw_only=True):
    """How an answer by a schema is asked for.

    `schema` is the caller's, `sent` what goes over the wire: the same, or an object around it (`wrapped`). `kind` is
    the model class that was given instead of a schema; `choice` is the tool_choice of the method `tool`; `beside`:
    tools are called in the text, too.
    """

    method: Literal["json_schema", "json_object", "tool", "prompt"]
    schema: dict[str, Any]
    sent: dict[str, Any]
    name: str
    kind: Any = None
    wrapped: bool = False
    choice: Literal["named", "required", "auto"] | None = None
    beside: bool = False

    @property
    def lenient(self) -> bool:
        """May prose stand before the JSON? Not where the endpoint itself sees to the form."""
        return self.method != "json_schema"


def choose_method(
    asked: RequestOptions,
    flags: Flags,
    ledger: Ledger,
    under: Callable[[RequestOptions], Flags],
    beside: str | None = None,
) -> OutputMethod | None:
    """The first declared method that this call can have; None where no schema is asked for.

    `under` gives the flags of the mode that a changed call is in; `beside` is the flag by which tools are called in the
    text: a reply that is held to JSON has no room for a call. Raises `ValueError` for what is no JSON Schema.
    """
    if asked.schema is None:
        return None
    if asked.schema_kind is None:
        _demand_schema(asked.schema)
    method = "prompt" if beside is not None else _method(asked, flags, ledger)
    sent, wrapped = (asked.schema, False) if method == "prompt" else _rooted(asked.schema)
    answer = OutputMethod(
        method=method,
        schema=asked.schema,
        sent=sent,
        name=asked.schema_name,
        kind=asked.schema_kind,
        wrapped=wrapped,
        beside=beside is not None,
    )
    if method == "tool":
        answer = _chosen(answer, asked, ledger, under)
    elif method != "json_schema":
        flag = beside or "schema.methods"
        ledger.note("schema-in-prompt", flag, "a JSON Schema", f"{method}, with the schema in the prompt")
    if wrapped:
        did = f"the schema of an object that holds it as {WRAPPED!r}"
        ledger.note("schema-wrapped", "schema.methods", "the schema of what may be no object", did)
    return answer


def _demand_schema(schema: dict[str, Any]) -> None:
    """Raise `ValueError` for what is no JSON Schema."""
    try:
        check_schema(schema)
    except UnicodeError as error:
        raise ValueError("schema holds half of a character; text that UTF-8 can hold is expected") from error
    except TypeError as error:
        raise TypeError(
            "schema holds what is of no type of JSON's; dicts, lists, strings and numbers are expected"
        ) from error


def _method(
    asked: RequestOptions, flags: Flags, ledger: Ledger
) -> Literal["json_schema", "json_object", "tool", "prompt"]:
    for method in (flags.schema.methods if flags.schema else None) or ["json_schema"]:
        if method != "tool":
            return method
        if flags.tools is not None and flags.tools.supported is False:
            ledger.note("schema-method", "tools.supported", "tool", "passed over: this model takes no tools")
        elif asked.tools:
            ledger.note("schema-method", "schema.methods", "tool", "passed over: the call has tools of its own")
        else:
            return method
    return "prompt"


def _chosen(
    answer: OutputMethod, asked: RequestOptions, ledger: Ledger, under: Callable[[RequestOptions], Flags]
) -> OutputMethod:
    """Force the tool where the endpoint allows it in that mode; reasoning is never given up for it."""
    tool = f"the parameters of a tool, {answer.name}"
    refused = ""
    for choice in _FORCED:
        rules = under(add_answer_tool(asked, msgspec.structs.replace(answer, choice=choice))).tool_choice
        allowed = rules.allowed if rules else None
        if allowed is None or choice in allowed:
            ledger.note("schema-as-tool", "schema.methods", "a JSON Schema", f"{tool}, which must be called ({choice})")
            return msgspec.structs.replace(answer, choice=choice)
        refused = ", ".join(allowed)
    ledger.note("schema-as-tool", "schema.methods", "a JSON Schema", f"{tool}, which may be called")
    ledger.note("schema-tool-choice", "tool_choice.allowed", "a forced call", f"asked for in words: it takes {refused}")
    return msgspec.structs.replace(answer, choice="auto" if "auto" in refused.split(", ") else None)


def add_answer_tool(asked: RequestOptions, answer: OutputMethod) -> RequestOptions:
    """The call with the tool whose arguments are to be the answer."""
    description = "Gives the answer. Call it once, with all of it."
    return msgspec.structs.replace(
        asked,
        tools=(Function(answer.name, description, answer.sent),),
        choice=answer.choice,
        chosen=answer.name if answer.choice == "named" else None,
    )


def add_instruction(turns: list[Message], answer: OutputMethod) -> list[Message]:
    """What has to be said in words, as a system message or at the end of the leading one."""
    match answer.method:
        case "tool" if answer.choice not in _FORCED:
            text = f"Give your answer by calling the function {answer.name}, and in no other way."
        case "json_object" | "prompt":  # some endpoints demand the word JSON
            what = "object" if answer.method == "json_object" else "value"
            begin = "When you call no tool, answer" if answer.beside else "Answer"
            text = (
                f"{begin} with one JSON {what} and nothing else, no code fence. "
                "It must be valid against this JSON Schema:\n" + msgspec.json.encode(answer.sent).decode()
            )
        case _:
            return turns
    return prompted_tools.add_instruction(turns, text)


def _rooted(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """A schema of an object, for endpoints know no other answer; was an object put around it?"""
    ref = schema.get("$ref")
    if isinstance(ref, str) and set(schema) <= {"$ref", "$defs", "definitions", "$schema", "title", "description"}:
        _, _, path = ref.partition("#/")
        table, _, name = path.partition("/")
        target = schema.get(table, {}).get(name) if table in ("$defs", "definitions") else None
        if isinstance(target, dict) and target.get("type") == "object":  # recursive models are written so
            return {**target, **{k: v for k, v in schema.items() if k != "$ref"}}, False
    if schema.get("type") == "object" or ("type" not in schema and "properties" in schema):
        return schema, False
    inner = _moved(schema, f"#/properties/{WRAPPED}")
    return {
        "type": "object",
        "properties": {WRAPPED: inner},
        "required": [WRAPPED],
        "additionalProperties": False,
    }, True


def _moved(node: Any, to: str) -> Any:
    """References keep their targets when a schema goes into another one."""
    if isinstance(node, list):
        return [_moved(item, to) for item in node]
    if not isinstance(node, dict):
        return node
    out = {key: _moved(value, to) for key, value in node.items()}
    ref = out.get("$ref")
    if isinstance(ref, str) and (ref == "#" or ref.startswith("#/")):
        out["$ref"] = to + ref[1:]
    return out
