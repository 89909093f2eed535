"""Define a request independently of its wire: messages, tools, choice, the flags of its mode, pieces like tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.jsonpath import contains, get, leaves
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags, ReasoningFlags
from cnllm.registry.model import Model, conditions

__all__ = [
    "ParsedMessage",
    "ParsedRequest",
    "ParsedTool",
    "RequestCall",
    "flags_for",
    "input_tokens",
    "is_cjk",
    "is_thinking",
    "param_path",
    "read_choice",
    "read_tool",
    "shorten",
    "split_pieces",
    "tool_tokens",
    "turn_tokens",
    "turns_reasoning_off",
    "turns_reasoning_on",
]


Form = Literal["absent", "null", "empty", "text", "parts", "other"]

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAS_CJK = re.compile(f"[{_CJK}]")
_PIECE = re.compile(rf"[{_CJK}]{{1,2}}| ?[^\s{_CJK}]{{1,12}}|\s")


class RequestCall(Struct, frozen=True):
    """A tool call of an earlier turn, or one the simulator makes. `arguments` is the value on the wire, of any type."""

    id: Any
    name: Any
    arguments: Any


class ParsedMessage(Struct, frozen=True):
    """One message: its role, the form and text of its content, its calls, and the JSON of the request (`wire`).

    `calls` is None if the message has no list of calls, and empty if the list is. `media` holds the kinds of its
    parts that are not text. `blank` means that a text part is empty. `seals` holds the sealed data of its parts, and
    `keys` the keys of the message where endpoints check their names. `has_other_content`: something that is no text
    may take the place of the content.
    """

    role: Any
    form: Form
    text: str
    wire: dict[str, Any]
    media: tuple[str, ...] = ()
    blank: bool = False
    calls: tuple[RequestCall, ...] | None = None
    result_of: Any = None
    seals: tuple[Any, ...] = ()
    keys: tuple[str, ...] = ()
    has_other_content: bool = False


class ParsedTool(Struct, frozen=True):
    """A tool in the request. The simulator calls only tools of kind `function`; others belong to the endpoint."""

    kind: Any
    name: Any = None
    parameters: Any = None
    strict: bool = False


class ParsedRequest(Struct, frozen=True):
    """A request. `broken` names the first place that does not have the shape of the wire.

    `tools` is None if the request has none. `choice` is auto, none, required, named, or an unknown word of the
    request. `answer` is the kind of structured answer that the request wants, with its `schema`.
    """

    body: dict[str, Any]
    turns: tuple[ParsedMessage, ...]
    tools: tuple[ParsedTool, ...] | None = None
    choice: str | None = None
    named: str | None = None
    parallel: bool = True
    stream: bool = False
    answer: str | None = None
    schema: Any = None
    broken: str | None = None

    @property
    def functions(self) -> list[ParsedTool]:
        """Return the functions that have a name."""
        return [t for t in self.tools or () if t.kind == "function" and isinstance(t.name, str) and t.name]

    @property
    def last(self) -> ParsedMessage | None:
        """Return the last message."""
        return self.turns[-1] if self.turns else None

    @property
    def prompt(self) -> str:
        """Return the text of the user's last message."""
        return next((t.text for t in reversed(self.turns) if t.role == "user"), "")


def read_choice(choice: Any) -> tuple[str | None, str | None]:
    """Return the word of a tool_choice, and the tool that it names."""
    match choice:
        case None:
            return None, None
        case {"type": "function", "function": {"name": str(name)}}:
            return "named", name
        case str():
            return choice, None
        case _:
            return "other", None


def read_tool(tool: Any) -> ParsedTool:
    """Return a tool of a request. One of the endpoint itself has no function."""
    own = tool if isinstance(tool, Mapping) else {}
    function = own.get("function")
    if not isinstance(function, Mapping):
        return ParsedTool(own.get("type"), own.get("name"))
    strict = function.get("strict") is True
    return ParsedTool(own.get("type"), function.get("name"), function.get("parameters"), strict)


def flags_for(model: Model, request: ParsedRequest) -> tuple[Flags, bool | None]:
    """Return the flags for the mode of a request, and whether the model thinks in it (None: unknown)."""
    atoms: dict[str, bool | None] = {
        "tools": bool(request.tools),
        "stream": request.stream,
        "forced": request.choice not in (None, "auto", "none"),
        "schema": request.answer is not None,
        "strict": any(t.strict for t in request.tools or ()),
        "images": any("image" in t.media for t in request.turns),
    }
    # The parameters of reasoning may depend on the rest of the mode, so reasoning is decided first.
    thinks = is_thinking(model.flags_for(conditions(**atoms)).reasoning, request.body)
    return model.flags_for(conditions(reasoning=thinks, **atoms)), thinks


def is_thinking(reasoning: ReasoningFlags, body: dict[str, Any]) -> bool | None:
    """Whether the model thinks, by the body and the model's default. None if neither decides it."""
    if reasoning.mode in ("never", "always"):
        return reasoning.mode == "always"
    if turns_reasoning_off(reasoning, body):
        return False
    if turns_reasoning_on(reasoning, body):
        return True
    return None if reasoning.default is None else reasoning.default == "on"


def turns_reasoning_off(reasoning: ReasoningFlags, body: dict[str, Any]) -> bool:
    """Whether the body turns reasoning off: by its patch, or by an effort or a budget of nothing.

    If the flags declare no patch for off, another value at a path of the patch for on counts too, unless levels or
    numbers of tokens stand there.
    """
    on, off = (patch.set or {} if patch is not None else {} for patch in (reasoning.on, reasoning.off))
    effort, budget = (place.at if place is not None else None for place in (reasoning.effort, reasoning.budget))
    if off and contains(body, off):
        return True
    switches = {} if off else leaves(on)
    if any(get(body, path) not in (None, value) for path, value in switches.items() if path not in (effort, budget)):
        return True
    if effort and get(body, effort) == "none":
        return True
    tokens = get(body, budget) if budget else None
    return type(tokens) is int and tokens == 0


def turns_reasoning_on(reasoning: ReasoningFlags, body: dict[str, Any]) -> bool:
    """Whether the body turns reasoning on: by its patch, an effort or a budget."""
    if reasoning.on is not None and reasoning.on.set and contains(body, reasoning.on.set):
        return True
    paths = [reasoning.effort and reasoning.effort.at, reasoning.budget and reasoning.budget.at]
    return any(path and get(body, path) is not None for path in paths)


def param_path(flags: Flags, name: str) -> str | None:
    """Return the path of a parameter in a body, or None if the endpoint refuses or ignores it."""
    rule = (flags.params or {}).get(name)
    return None if param_rules.state(rule) in ("refused", "ignored") else param_rules.path(name, rule)


def input_tokens(request: ParsedRequest) -> int:
    """Count the tokens of a request. A token is a piece of text; each message and each tool adds a little."""
    return sum(turn_tokens(request)) + tool_tokens(request)


def turn_tokens(request: ParsedRequest) -> list[int]:
    """Count the tokens of each message."""
    return [
        len(split_pieces(t.text)) + 4 + sum(len(split_pieces(str(c.arguments))) for c in t.calls or ())
        for t in request.turns
    ]


def tool_tokens(request: ParsedRequest) -> int:
    """Count the tokens of the tools."""
    return len(msgspec.json.encode([t.parameters for t in request.tools or ()])) // 4 if request.tools else 0


# ── pieces like tokens ───────────────────────────────────────────────────────


def is_cjk(text: str) -> bool:
    """Whether the text holds a Chinese, Japanese or Korean character."""
    return _HAS_CJK.search(text) is not None


def split_pieces(text: str) -> list[str]:
    """Split text into words, or one or two Chinese characters, as models stream it. No character is lost."""
    return _PIECE.findall(text)


def shorten(text: str, length: int) -> str:
    """Return the text on one line, with an ellipsis if it is cut."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[:length] + "…"
