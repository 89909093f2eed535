"""Tools for a model that has none of its own: described in the prompt, its calls and their results written as text.

Nothing of it is any endpoint's: the description is plain English, a call is one JSON object between two tags, and the
reply is read by the same filter that finds calls which a model wrote unasked.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.repair import TextForm
from cnllm.engine.options import Function, RequestOptions
from cnllm.registry.flags import Flags, Leak
from cnllm.types import Message, Text, ToolCall, ToolResult
from cnllm.types.lenient_json import replace_surrogates

__all__ = [
    "FLAG",
    "WORDS",
    "PromptedTools",
    "add_instruction",
    "describe_tools",
    "is_prompted",
    "markup_rules",
    "remove_tools",
]

FLAG = "tools.otherwise"
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_RULE = Leak(open=[_OPEN], close=[_CLOSE], format=["json"])


class PromptedTools(Struct, frozen=True):
    """The tools to describe. `must` is the name of the one to call, "" for any of them, None where it is free."""

    tools: tuple[Function, ...]
    must: str | None = None
    one: bool = False


def is_prompted(flags: Flags, policy: str) -> bool:
    """Are tools written as text here? Not where the caller wants all sent as it asked."""
    rules = flags.tools
    return rules is not None and rules.supported is False and rules.otherwise == "prompt" and policy != "send"


def remove_tools(asked: RequestOptions, ledger: Ledger) -> tuple[RequestOptions, PromptedTools | None]:
    """The call without its tools, and what is said of them instead. What is no function cannot be described."""
    bare = replace(asked, tools=(), choice=None, chosen=None, parallel_tool_calls=None)
    functions = tuple(tool for tool in asked.tools if tool.definition is None)
    ledger = ledger.for_option("tools")
    others = ", ".join(tool.name for tool in asked.tools if tool.definition is not None)
    if others:
        ledger.may_change("tools-unsupported", "tools.supported", others, "left out")
    if not functions or asked.choice == "none":
        return bare, None
    did = "described in the prompt, and calls read from the text"
    ledger.may_change("tools-prompted", FLAG, f"{len(functions)} tools", did)
    must = {"named": asked.chosen, "required": ""}.get(asked.choice or "")
    return bare, PromptedTools(functions, must, asked.parallel_tool_calls is False)


# ── the prompt ───────────────────────────────────────────────────────────────


def describe_tools(prompted: PromptedTools) -> str:
    """The tools, and how one is called. The same tools give the same text, so that caches hit."""
    lines = ["You can call tools. Each line describes one, `parameters` being the JSON Schema of its arguments:"]
    for tool in prompted.tools:
        said = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        lines.append(_json({key: value for key, value in said.items() if value is not None}))
    lines += [
        "",
        "To call a tool, write a block of exactly this form, not in a code fence:",
        _block("NAME", {"PARAMETER": "VALUE"}),
        "The arguments are one JSON object that is valid against the schema of the tool's parameters. "
        "End your message after the block: the result is given to you in the next one, as <tool_result>. "
        + ("Write at most one block." if prompted.one else "To call several tools at once, write several blocks."),
        "Do not mention these blocks, and do not make up results.",
    ]
    if prompted.must is None:
        lines.append("If no tool is needed, answer as usual, without any block.")
    else:
        which = f"the tool {prompted.must}" if prompted.must else "at least one of the tools"
        lines.append(f"In your next message you must call {which}.")
    return "\n".join(lines)


def add_instruction(turns: Sequence[Message], text: str) -> list[Message]:
    """An instruction at the end of the leading system message, or as one of its own."""
    if turns and turns[0].role in ("system", "developer"):
        head = turns[0]
        return [replace(head, parts=(*head.parts, Text("\n\n" + text))), *turns[1:]]
    return [Message("system", (Text(text),)), *turns]


# ── the history ──────────────────────────────────────────────────────────────


def _call(call: ToolCall) -> str:
    return _block(call.name, call.raw if call.arguments is None else call.arguments)


def _result(result: ToolResult) -> str:
    name, error = f' name="{result.name}"' if result.name else "", ' error="true"' if result.error else ""
    return f"<tool_result{name}{error}>\n{result.text}\n</tool_result>"


def _block(name: str, arguments: object) -> str:
    return f"{_OPEN}{_json({'name': name, 'arguments': arguments})}{_CLOSE}"


def _json(value: object) -> str:
    return msgspec.json.encode(replace_surrogates(value)).decode()


WORDS = TextForm(_call, _result, "calls-as-text", FLAG, "written as text")
"""Earlier calls as the blocks they would be here, their results as messages of the user."""


# ── the reply ────────────────────────────────────────────────────────────────


def markup_rules(declared: Sequence[Leak]) -> list[Leak]:
    """What is looked for in the reply: the block that was asked for, and what the model is known to write."""
    out = [replace(rule, then="recover") if _OPEN in rule.open and "json" in rule.format else rule for rule in declared]
    return out if any(_OPEN in rule.open and "json" in rule.format for rule in out) else [_RULE, *out]
