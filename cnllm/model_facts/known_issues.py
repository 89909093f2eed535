"""Say in sentences where an endpoint differs from its protocol, and what cnllm does about it.

Every sentence comes from one flag and has that flag's line and source. Flags that only name a path or a switch are left
out: nobody notices them. `cnllm models show M --explain` has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from cnllm.registry.model import Fact, Model

__all__ = ["KnownIssue", "known_issues"]

_CHOICES = {"auto": "auto", "none": "none", "required": "required", "named": "a named tool"}
_MODES = {
    "reasoning": "while it reasons",
    "no-reasoning": "while it does not reason",
    "tools": "with tools",
    "no-tools": "without tools",
    "stream": "in a stream",
    "no-stream": "in a whole reply",
    "schema": "with a schema",
    "strict": "with strict tools",
    "forced": "with a forced call",
    "images": "with pictures",
    "search": "with a web search",
}


class KnownIssue(Struct, frozen=True):
    """A difference between an endpoint and its protocol.

    `text` says what differs and what cnllm does; `flag` is where that stands in the registry, `where` its "file:line".
    `source`, `seen` and `how` are those of the fact.
    """

    text: str
    flag: str
    where: str
    source: str | None
    seen: str | None
    how: str | None


def known_issues(model: Model, explained: Iterable[Fact] | None = None) -> list[KnownIssue]:
    """List the known issues of a model at its endpoint, in the order of the flags.

    `explained` is what `model.explain()` returns.
    """
    facts = {fact.flag: fact for fact in (model.explain() if explained is None else explained)}
    return list(_issues(facts))


def _issues(facts: dict[str, Fact]) -> Iterator[KnownIssue]:
    for flag, fact in facts.items():
        if fact.layer.partition(".")[0] in ("defaults", "protocols"):
            continue  # the protocol itself
        mode, name = _split_mode(flag)
        for text in _sentences(name, fact.value, facts, flag.removesuffix(name)):
            condition = f"{mode[0].upper()}{mode[1:]}: it {text}" if mode else f"It {text}"
            seen = None if fact.seen is None else str(fact.seen)
            yield KnownIssue(f"{condition}.", flag, fact.where, fact.source, seen, fact.how)


def _split_mode(flag: str) -> tuple[str, str]:
    """Return the words for the mode that a flag is about, "" for none, and the flag without it."""
    if not flag.startswith("when."):
        return "", flag
    mode, _, name = flag.removeprefix("when.").partition(".")
    return " and ".join(_MODES.get(atom, atom) for atom in mode.split("+")), name


def _sentences(name: str, value: Any, facts: dict[str, Fact], prefix: str) -> Iterator[str]:
    """Yield what a flag means for a caller, as the rest of a sentence that begins with "it"."""
    if name.startswith("params."):
        yield from _parameter(name.removeprefix("params."), value, facts, prefix)
    elif name == "tool_choice.allowed":
        otherwise = facts.get(f"{prefix}tool_choice.otherwise") or facts.get("tool_choice.otherwise")
        yield from _tool_choice(value, str(otherwise.value) if otherwise else "auto")
    elif name in _RULES:
        text = _RULES[name](value)
        if text:
            yield text


def _parameter(name: str, value: Any, facts: dict[str, Fact], prefix: str) -> Iterator[str]:
    base, _, part = name.partition(".")
    if value is False and not part:
        yield f"refuses {base}; cnllm leaves it out, with a note"
    elif value == "ignored" and not part:
        yield f"takes {base} and ignores it; a note says so"
    elif part in ("min", "max"):
        low, high = (facts.get(f"{prefix}params.{base}.{bound}") for bound in ("min", "max"))
        if part == "min" or low is None:  # one sentence for both
            yield _bounds(base, low and low.value, high and high.value)
    elif part == "items":
        yield f"takes one value for {base}" if value == 1 else f"takes at most {value} values for {base}"


def _bounds(base: str, low: Any, high: Any) -> str:
    if high is None:
        return f"takes {base} of at least {low} only; cnllm moves other values into the range, or leaves them out"
    if low is None:
        return f"takes {base} up to {high} only; cnllm moves other values into the range, or leaves them out"
    return f"takes {base} from {low} up to {high} only; cnllm moves other values into the range, or leaves them out"


def _tool_choice(allowed: list[str], otherwise: str) -> Iterator[str]:
    missing = ", ".join(words for choice, words in _CHOICES.items() if choice not in allowed)
    if missing:
        yield {
            "narrow": f"refuses tool_choice {missing}; cnllm sends auto, with the named tool alone",
            "reasoning-off": f"refuses tool_choice {missing}; cnllm turns reasoning off instead",
            "error": f"refuses tool_choice {missing}; cnllm raises CannotSend",
        }.get(otherwise, f"refuses tool_choice {missing}; cnllm sends auto")


def _schema_methods(methods: list[str]) -> str:
    if "json_schema" in methods:
        return ""
    if "tool" in methods and methods[0] == "tool":
        return "has no JSON Schema for answers; cnllm asks for a tool call with the schema"
    if "json_object" in methods:
        return (
            "has no JSON Schema for answers; "
            "cnllm uses its JSON mode and the schema in the prompt, and checks the answer"
        )
    return "has no JSON Schema for answers; cnllm uses the schema in the prompt, and checks the answer"


_REPLAY = {
    "never": "takes no reasoning of earlier turns; cnllm leaves it out",
    "tool-turns": "wants the reasoning of turns with tool calls back; cnllm sends it",
    "since-user": "wants the reasoning since the last message of the user back; cnllm sends it",
    "always": "wants the reasoning of every earlier turn back; cnllm sends it",
}
_EMPTY = {
    "empty": "refuses earlier turns without reasoning; cnllm sends an empty text where there is none",
    "space": "refuses earlier turns without reasoning; cnllm sends a space where there is none",
    "reasoning-off": "refuses earlier turns without reasoning; where one has none, cnllm asks without reasoning",
}

_RULES: dict[str, Callable[[Any], str]] = {
    "reasoning.mode": lambda v: {
        "always": "always reasons; a request without reasoning gets it all the same, and a note",
    }.get(v, ""),
    "reasoning.replay": lambda v: _REPLAY.get(v, ""),
    "reasoning.if_missing": lambda v: _EMPTY.get(v, "") if isinstance(v, str) else "",
    "reasoning.tags": lambda v: (
        ""
        if len(v) < 2
        else f"may write its reasoning between {v[0].strip()} and {v[1]} in the text; cnllm takes it out"
        if v[0]
        else f"may write its reasoning before {v[1]} in the text; cnllm takes it out"
    ),
    "leaks": lambda v: "may write tool calls as text; cnllm makes calls of those that were offered" if v else "",
    "tools.supported": lambda v: "takes no tools; cnllm describes them in the prompt" if v is False else "",
    "tools.parallel": lambda v: "makes one tool call at a time" if v is False else "",
    "tools.result_media": lambda v: "takes no pictures in a tool's result" if v is False else "",
    "stream.tools": lambda v: "does not stream tool calls; cnllm asks for the whole reply" if v is False else "",
    "stream.terminator": lambda v: "ends a stream with [DONE] alone; one without it was cut" if v == "done" else "",
    "messages.developer": lambda v: "refuses the role developer; cnllm sends system" if v is False else "",
    "messages.system": lambda v: {
        "first": "takes system messages at the beginning only; cnllm moves or joins them",
        "user": "has no role for system messages; cnllm sends them as the user's",
    }.get(v, ""),
    "messages.consecutive_roles": lambda v: (
        "refuses two messages of one role in a row; cnllm joins them" if v == "join" else ""
    ),
    "messages.after_results": lambda v: (
        "may refuse a user message right behind a tool's result; cnllm puts a short answer between them" if v else ""
    ),
    "messages.first_user": lambda v: (
        "refuses a conversation that the assistant begins; cnllm puts a user message first" if v else ""
    ),
    "messages.last_user": lambda v: (
        "refuses a conversation that the assistant ends; cnllm puts a user message last" if v else ""
    ),
    "messages.content": lambda v: "takes no list of text parts; cnllm sends one string" if v == "string" else "",
    "schema.methods": _schema_methods,
    "status.is": lambda v: "is retired" if v == "retired" else "",
}
"""Flag → what it means for a caller, "" where there is nothing to say."""
