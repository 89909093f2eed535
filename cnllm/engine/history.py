"""A conversation as one endpoint will take it: messages in, messages out, each change noted.

Only the copy for the wire changes. What is decided here is the same on every wire; how it is spelt is the wire's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from cnllm.engine.ledger import Ledger
from cnllm.flags import Flags, Messages
from cnllm.flags import Reasoning as ReasoningFlags
from cnllm.model import Model
from cnllm.types import Message, Opaque, Part, Reasoning, Seal, Text, ToolCall, ToolResult

__all__ = ["fit"]


def fit(
    messages: Sequence[Message], model: Model, flags: Flags, thinking: bool | None, ledger: Ledger
) -> list[Message]:
    """The messages to write: foreign seals and reasoning gone, replay as declared, roles and ids as they are taken."""
    rules = flags.messages or Messages()
    turns = list(messages)
    for index, message in enumerate(turns):
        if message.role == "assistant":
            turns[index] = _assistant(message, index, messages, model, flags, ledger)
        elif message.role == "developer" and not rules.developer:
            turns[index] = _as_system(message, index, ledger)
    if any(m.role == "tool" and any(type(p) is ToolResult and not p.id for p in m.parts) for m in turns):
        turns = _paired(turns, ledger)
    if rules.system in ("first", "user"):
        turns = _gather_system(turns, rules.system, ledger)
    if flags.tools is not None and flags.tools.ids:
        turns = _rename_ids(turns, flags.tools.ids, ledger)
    if rules.runs == "join":
        turns = _join_runs(turns, ledger)
    if rules.first_user:
        turns = _first_user(turns, ledger)
    return turns


# ── reasoning ────────────────────────────────────────────────────────────────


def _assistant(
    message: Message, index: int, messages: Sequence[Message], model: Model, flags: Flags, ledger: Ledger
) -> Message:
    """An assistant turn with just the reasoning and seals that this endpoint is to see."""
    reasoning = flags.reasoning or ReasoningFlags()
    own = message.by is None or message.by.partition("/")[0] == model.provider
    parts: list[Part] = []
    carries = _carries(message, index, messages, reasoning)
    for part in message.parts:
        kept = _sealed(part, model)
        if type(kept) is not Reasoning:
            if type(kept) is Opaque and part.seal is not None and kept.seal is None:
                continue  # a block only its origin understands
            parts.append(kept)
        elif not own:
            _foreign(kept, index, reasoning, parts, ledger)
        elif carries:
            parts.append(kept)
    has = any(type(p) is Reasoning for p in parts)
    if carries and not has:
        missing = _missing(message, index, messages, reasoning, ledger)
        if missing is not None:
            parts.insert(0, Reasoning(missing))
    return replace(message, parts=tuple(parts))


def _carries(message: Message, index: int, messages: Sequence[Message], reasoning: ReasoningFlags) -> bool:
    """Does the declared scope ask this turn to carry its reasoning back?"""
    match reasoning.replay:
        case "always":
            return True
        case "tool-turns":
            return any(type(p) is ToolCall for p in message.parts)
        case "since-user":
            return not any(m.role == "user" for m in messages[index + 1 :])
        case _:
            return False


def _foreign(part: Reasoning, index: int, reasoning: ReasoningFlags, parts: list[Part], ledger: Ledger) -> None:
    """Reasoning that another endpoint's model wrote."""
    if reasoning.foreign == "text" and part.text:
        parts.append(Text(part.text))
        ledger.note(
            "reasoning-foreign",
            "reasoning.foreign",
            f"messages[{index}]: another model's reasoning",
            "sent as text",
        )
    elif part.text:
        ledger.note(
            "reasoning-foreign",
            "reasoning.foreign",
            f"messages[{index}]: another model's reasoning",
            "left out",
        )


def _missing(
    message: Message, index: int, messages: Sequence[Message], reasoning: ReasoningFlags, ledger: Ledger
) -> str | None:
    """What stands in for reasoning that must be there and is not."""
    if reasoning.replay == "since-user" and not message.tool_calls:
        return None
    match reasoning.if_missing:
        case "empty":
            filler = ""
        case "space":
            filler = " "
        case "error":
            ledger.cannot(
                "reasoning-missing",
                "reasoning.if_missing",
                f"messages[{index}] has no reasoning",
                "the endpoint demands it",
            )
            return None
        case _:
            return None
    ledger.note(
        "reasoning-filled",
        "reasoning.if_missing",
        f"messages[{index}] has no reasoning",
        f"sent as {filler!r}",
    )
    return filler


def _sealed(part: Part, model: Model) -> Part:
    """A part, without a seal that belongs to another origin."""
    seal: Seal | None = part.seal
    if seal is None or (seal.protocol, seal.provider, seal.model) == (
        model.protocol,
        model.provider,
        model.id,
    ):
        return part
    return replace(part, seal=None)


# ── roles ────────────────────────────────────────────────────────────────────


def _as_system(message: Message, index: int, ledger: Ledger) -> Message:
    """`developer` is OpenAI's word for system; elsewhere, and where nobody knows, system it is."""
    ledger.note("role-developer", "messages.developer", f"messages[{index}] is by developer", "sent as system")
    return replace(message, role="system")


def _gather_system(turns: list[Message], place: str, ledger: Ledger) -> list[Message]:
    """All system text in one leading message, or, where the endpoint knows no such role, before the first user's."""
    systems = [m for m in turns if m.role in ("system", "developer")]
    rest = [m for m in turns if m.role not in ("system", "developer")]
    if not systems or (place == "first" and len(systems) == 1 and turns[0] is systems[0]):
        return turns
    text = "\n\n".join(m.text for m in systems if m.text)
    if place == "first":
        ledger.note("system-folded", "messages.system", f"{len(systems)} system messages", "one, at the start")
        return [Message(systems[0].role, (Text(text),)), *rest]
    ledger.note("system-as-user", "messages.system", "a system message", "sent as the user's")
    if rest and rest[0].role == "user":
        return [replace(rest[0], parts=(Text(text + "\n\n"), *rest[0].parts)), *rest[1:]]
    return [Message("user", (Text(text),)), *rest]


def _join_runs(turns: list[Message], ledger: Ledger) -> list[Message]:
    """Neighbours of one role (user, assistant) as one message."""
    out: list[Message] = []
    for turn in turns:
        last = out[-1] if out else None
        if last is not None and last.role == turn.role and turn.role in ("user", "assistant", "system"):
            ledger.note("turns-joined", "messages.runs", f"two {turn.role} messages in a row", "joined")
            out[-1] = replace(last, parts=_joined(last.parts, turn.parts))
        else:
            out.append(turn)
    return out


def _joined(first: Sequence[Part], second: Sequence[Part]) -> tuple[Part, ...]:
    """Reasoning, then content, then calls of two turns; texts a line apart."""
    both = (*first, *second)
    kinds = [Reasoning, ToolCall]
    thoughts = [p for p in both if type(p) is Reasoning]
    calls = [p for p in both if type(p) is ToolCall]
    ours = [p for p in first if type(p) not in kinds]
    theirs = [p for p in second if type(p) not in kinds]
    if ours and theirs and type(ours[-1]) is Text and type(theirs[0]) is Text:
        ours[-1] = Text(ours[-1].text + "\n\n" + theirs[0].text)
        theirs = theirs[1:]
    thought = [Reasoning("\n\n".join(p.text for p in thoughts if p.text))] if len(thoughts) > 1 else thoughts
    return (*thought, *ours, *theirs, *calls)


def _first_user(turns: list[Message], ledger: Ledger) -> list[Message]:
    start = next((i for i, m in enumerate(turns) if m.role not in ("system", "developer")), None)
    if start is None or turns[start].role == "user":
        return turns
    ledger.note(
        "first-user",
        "messages.first_user",
        f"the first turn is by {turns[start].role}",
        "a user turn is put before it",
    )
    return [*turns[:start], Message("user", (Text("…"),)), *turns[start:]]


def _paired(turns: list[Message], ledger: Ledger) -> list[Message]:
    """Results that do not say whose they are go to the calls that wait, in order."""
    open_ids: list[str] = []
    out: list[Message] = []
    for index, turn in enumerate(turns):
        if turn.role == "assistant":
            open_ids = [p.id for p in turn.parts if type(p) is ToolCall]
        elif turn.role == "tool":
            parts: list[Part] = []
            for part in turn.parts:
                if type(part) is ToolResult and not part.id and open_ids:
                    part = replace(part, id=open_ids.pop(0))
                    ledger.note(
                        "result-paired", "messages", f"messages[{index}] names no call", f"taken for {part.id}'s"
                    )
                elif type(part) is ToolResult and part.id in open_ids:
                    open_ids.remove(part.id)
                parts.append(part)
            turn = replace(turn, parts=tuple(parts))
        out.append(turn)
    return out


# ── ids ──────────────────────────────────────────────────────────────────────


def _rename_ids(turns: list[Message], pattern: str, ledger: Ledger) -> list[Message]:
    """Call ids that the endpoint would refuse, replaced by ids made from them, the same each time."""
    new: dict[str, str] = {}
    for turn in turns:
        for part in turn.parts:
            if type(part) in (ToolCall, ToolResult):
                old: str = part.id  # type: ignore[union-attr]
                if old not in new and not _pattern(pattern).fullmatch(old):
                    new[old] = _id_for(old, pattern)
    if not new:
        return turns
    ledger.note("ids-renamed", "tools.ids", f"{len(new)} call ids", "made to match the endpoint's pattern")
    return [replace(t, parts=tuple(_renamed(p, new) for p in t.parts)) for t in turns]


def _renamed(part: Part, new: dict[str, str]) -> Any:
    return replace(part, id=new[part.id]) if type(part) in (ToolCall, ToolResult) and part.id in new else part  # type: ignore[union-attr]


def _id_for(old: str, pattern: str) -> str:
    """Characters made from the old id, as many and of such a kind as the pattern asks for."""
    digest = int.from_bytes(hashlib.sha256(old.encode("utf-8", "replace")).digest(), "big")
    lower, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"
    for alphabet in (digits + lower.upper() + lower, lower + digits, lower, digits, lower.upper(), digits + "abcdef"):
        number, text = digest, ""
        while number:
            number, place = divmod(number, len(alphabet))
            text += alphabet[place]
        for length in (9, 12, 16, 24, 32, 40):
            for candidate in (text[:length], f"call_{text[:length]}"):
                if _pattern(pattern).fullmatch(candidate):
                    return candidate
    return old  # no such pattern is known


@lru_cache(maxsize=64)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
