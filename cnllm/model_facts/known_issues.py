"""Say in sentences where an endpoint differs from its protocol, and what cnllm does about it.

Every sentence comes from one flag and has that flag's line and source. Flags that only name a path or a switch are left
out: nobody notices them. `cnllm models show M --explain` has them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    elif name == "reasoning.tags" and len(value) > 1:
        if value[0]:
            yield f"may write its reasoning between {value[0].strip()} and {value[1]} in the text; cnllm takes it out"
        else:
            yield f"may write its reasoning before {value[1]} in the text; cnllm takes it out"
    elif name == "schema.methods" and "json_schema" not in value:
        yield _schema_methods(value)
    elif name in _IF_SET and value:
        yield _IF_SET[name]
    elif isinstance(value, str | bool) and (text := _BY_VALUE.get(name, {}).get(value)):
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
    if methods[:1] == ["tool"]:
        return "has no JSON Schema for answers; cnllm asks for a tool call with the schema"
    if "json_object" in methods:
        return (
            "has no JSON Schema for answers; "
            "cnllm uses its JSON mode and the schema in the prompt, and checks the answer"
        )
    return "has no JSON Schema for answers; cnllm uses the schema in the prompt, and checks the answer"


_IF_SET = {
    "leaks": "may write tool calls as text; cnllm makes calls of those that were offered",
    "messages.after_results": (
        "may refuse a user message right behind a tool's result; cnllm puts a short answer between them"
    ),
    "messages.first_user": "refuses a conversation that the assistant begins; cnllm puts a user message first",
    "messages.last_user": "refuses a conversation that the assistant ends; cnllm puts a user message last",
}
"""The meaning of a flag for a caller, where it has a value."""

_BY_VALUE: dict[str, dict[str | bool, str]] = {
    "reasoning.mode": {"always": "always reasons; a request without reasoning gets it all the same, and a note"},
    "reasoning.replay": {
        "never": "takes no reasoning of earlier turns; cnllm leaves it out",
        "tool-turns": "wants the reasoning of turns with tool calls back; cnllm sends it",
        "since-user": "wants the reasoning since the last message of the user back; cnllm sends it",
        "always": "wants the reasoning of every earlier turn back; cnllm sends it",
    },
    "reasoning.if_missing": {
        "empty": "refuses earlier turns without reasoning; cnllm sends an empty text where there is none",
        "space": "refuses earlier turns without reasoning; cnllm sends a space where there is none",
        "reasoning-off": "refuses earlier turns without reasoning; where one has none, cnllm asks without reasoning",
    },
    "tools.supported": {False: "takes no tools; cnllm describes them in the prompt"},
    "tools.parallel": {False: "makes one tool call at a time"},
    "tools.result_media": {False: "takes no pictures in a tool's result"},
    "stream.tools": {False: "does not stream tool calls; cnllm asks for the whole reply"},
    "stream.terminator": {"done": "ends a stream with [DONE] alone; one without it was cut"},
    "messages.developer": {False: "refuses the role developer; cnllm sends system"},
    "messages.system": {
        "first": "takes system messages at the beginning only; cnllm moves or joins them",
        "user": "has no role for system messages; cnllm sends them as the user's",
    },
    "messages.consecutive_roles": {"join": "refuses two messages of one role in a row; cnllm joins them"},
    "messages.content": {"string": "takes no list of text parts; cnllm sends one string"},
    "status.is": {"retired": "is retired"},
}
"""The meaning of a flag for a caller, by its value; other values say nothing."""
