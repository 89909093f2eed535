"""Support tools for a model without them: the prompt describes them, and calls and results are text.

Nothing in it belongs to any endpoint. The description is plain English, and a call is one JSON object between two tags.
The filter that finds calls in any text also reads these replies.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.calls_as_text import TextForm
from cnllm.engine.options import RequestOptions
from cnllm.leaks.rules import Markup
from cnllm.registry.flags import Flags
from cnllm.types import Message, Text, ToolCall, ToolResult
from cnllm.types.checks import plural
from cnllm.types.lenient_json import replace_surrogates
from cnllm.types.tools import Function

__all__ = [
    "FLAG",
    "TEXT_FORM",
    "PromptedTools",
    "add_instruction",
    "describe_tools",
    "is_prompted",
    "markup_rules",
    "remove_tools",
]

FLAG = "tools.otherwise"
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_RULE = Markup(open=[_OPEN], close=[_CLOSE], format=["json"])


class PromptedTools(Struct, frozen=True):
    """The tools to describe.

    `must` is the name of the tool to call, "" for any of them, None where none must be called. `single` allows one call
    only.
    """

    tools: tuple[Function, ...]
    must: str | None = None
    single: bool = False


def is_prompted(flags: Flags, policy: str | None) -> bool:
    """Whether tools are described in the prompt; not where the caller wants the request sent unchanged."""
    rules = flags.tools
    return rules.supported is False and rules.otherwise == "prompt" and policy != "send"


def remove_tools(options: RequestOptions, ledger: Ledger) -> tuple[RequestOptions, PromptedTools | None]:
    """Return the options without tools, and the tools to describe instead.

    Only functions can be described; other tools are left out, with a note.
    """
    without_tools = replace(options, tools=(), choice=None, tool_name=None, parallel_tool_calls=None)
    functions = tuple(tool for tool in options.tools if tool.definition is None)
    ledger = ledger.for_option("tools")
    others = ", ".join(tool.name for tool in options.tools if tool.definition is not None)
    if others:
        ledger.may_change("tools-unsupported", "tools.supported", others, "left out")
    if not functions or options.choice == "none":
        return without_tools, None
    did = "described in the prompt, and calls read from the text"
    ledger.may_change("tools-prompted", FLAG, f"{len(functions)} tool{plural(len(functions))}", did)
    must = {"named": options.tool_name, "required": ""}.get(options.choice or "")
    return without_tools, PromptedTools(functions, must, options.parallel_tool_calls is False)


# ── the prompt ───────────────────────────────────────────────────────────────


def describe_tools(prompted: PromptedTools) -> str:
    """Return the description of the tools and of a call. Equal tools give equal text, so that caches hit."""
    lines = ["You can call tools. Each line describes one, `parameters` being the JSON Schema of its arguments:"]
    for tool in prompted.tools:
        fields = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        lines.append(_json({key: value for key, value in fields.items() if value is not None}))
    lines += [
        "",
        "To call a tool, write a block of exactly this form, not in a code fence:",
        _block("NAME", {"PARAMETER": "VALUE"}),
        "The arguments are one JSON object that is valid against the schema of the tool's parameters. "
        "End your message after the block: the result is given to you in the next one, as <tool_result>. "
        + ("Write at most one block." if prompted.single else "To call several tools at once, write several blocks."),
        "Do not mention these blocks, and do not make up results.",
    ]
    if prompted.must is None:
        lines.append("If no tool is needed, answer as usual, without any block.")
    else:
        subject = f"the tool {prompted.must}" if prompted.must else "at least one of the tools"
        lines.append(f"In your next message you must call {subject}.")
    return "\n".join(lines)


def add_instruction(turns: Sequence[Message], text: str) -> list[Message]:
    """Return the turns with an instruction at the end of the leading system message, or in a new one."""
    if turns and turns[0].role in ("system", "developer"):
        head = turns[0]
        return [replace(head, parts=(*head.parts, Text("\n\n" + text))), *turns[1:]]
    return [Message("system", (Text(text),)), *turns]


# ── the history ──────────────────────────────────────────────────────────────


def _call(call: ToolCall) -> str:
    """Return a call as a block."""
    return _block(call.name, call.raw if call.arguments is None else call.arguments)


def _result(result: ToolResult) -> str:
    """Return a result as a block."""
    name, error = f' name="{result.name}"' if result.name else "", ' error="true"' if result.error else ""
    return f"<tool_result{name}{error}>\n{result.text}\n</tool_result>"


def _block(name: str, arguments: object) -> str:
    return f"{_OPEN}{_json({'name': name, 'arguments': arguments})}{_CLOSE}"


def _json(value: object) -> str:
    return msgspec.json.encode(replace_surrogates(value)).decode()


TEXT_FORM = TextForm(_call, _result, "calls-as-text", FLAG, "written as text")
"""Earlier calls as blocks in the text, and their results as messages of the user."""


# ── the reply ────────────────────────────────────────────────────────────────


def markup_rules(declared: Sequence[Markup]) -> list[Markup]:
    """Return the rules for calls in the reply: the described block, and what the model is known to write."""
    out = [replace(rule, then="recover") if _OPEN in rule.open and "json" in rule.format else rule for rule in declared]
    return out if any(_OPEN in rule.open and "json" in rule.format for rule in out) else [_RULE, *out]
