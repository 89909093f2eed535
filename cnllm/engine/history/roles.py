"""Arrange the roles: place system messages, join neighbours, and put the user first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.repair import Turn
from cnllm.types import Message, Part, Reasoning, Text, ToolCall

__all__ = ["ensure_first_user", "gather_system", "has_late_system", "join_neighbours", "rename_developer"]

_SYSTEM_ROLES = ("system", "developer")


def rename_developer(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns with `developer`, OpenAI's name for the role, as `system`."""
    out: list[Turn] = []
    for index, message in turns:
        if message.role == "developer":
            subject = f"messages[{index}] is by developer"
            ledger.note("role-developer", "messages.developer", subject, "sent as system")
            message = replace(message, role="system")
        out.append((index, message))
    return out


def has_late_system(turns: Sequence[Turn]) -> bool:
    """Whether a system message stands behind a turn of the conversation."""
    roles = [message.role in _SYSTEM_ROLES for _, message in turns]
    return any(roles[roles.index(False) :]) if False in roles else False


def gather_system(turns: list[Turn], place: Literal["first", "user", "unknown"], ledger: Ledger) -> list[Turn]:
    """Return the turns with all system text in one message at the start.

    Where the endpoint has no such role, the text goes before the first message of the user. `unknown` is `first` where
    nobody knows whether the endpoint takes a system message behind a turn: refusing it would cost the whole call.
    """
    systems = [t for t in turns if t[1].role in _SYSTEM_ROLES]
    if not systems or (place != "user" and len(systems) == 1 and turns[0] is systems[0]):
        return turns
    rest = [t for t in turns if t[1].role not in _SYSTEM_ROLES]
    index, head = systems[0]
    if place != "user":
        subject = f"{len(systems)} system messages, the last at messages[{systems[-1][0]}]"
        did = "one, at the start"
        if place == "unknown":
            did = (
                "one, at the start, because it is unknown whether the endpoint takes one elsewhere: a cache of prompts "
                "begins anew with each new one"
            )
        elif has_late_system(turns):
            did = "one, at the start: a cache of prompts begins anew with each new one"
        ledger.note("system-folded", "messages.system", subject, did)
        return [(index, Message(head.role, _system_parts([m for _, m in systems]))), *rest]
    text = "\n\n".join(m.text for _, m in systems if m.text)
    ledger.note("system-as-user", "messages.system", f"messages[{index}] is a system message", "sent as the user's")
    if rest and rest[0][1].role == "user":
        position, first = rest[0]
        return [(position, replace(first, parts=(Text(text + "\n\n"), *first.parts))), *rest[1:]]
    return [(index, Message("user", (Text(text),))), *rest]


def _system_parts(systems: Sequence[Message]) -> tuple[Part, ...]:
    """Return the parts of system messages: one text, unless a part has keys of its own (cache marks) or is no text."""
    if all(type(p) is Text and p.seal is None and p.extra is None for m in systems for p in m.parts):
        return (Text("\n\n".join(m.text for m in systems if m.text)),)
    return _join_content(systems)


def join_neighbours(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns with neighbours of one role (user, assistant, system) joined."""
    out: list[Turn] = []
    run: list[Message] = []
    start = 0

    def flush() -> None:
        if run:
            out.append((start, run[0] if len(run) == 1 else _join_messages(run)))
            run.clear()

    for index, message in turns:
        if run and message.role == run[0].role and message.role in ("user", "assistant", "system"):
            subject = f"messages[{index}] is by {message.role}, as the one before it"
            ledger.note("turns-joined", "messages.consecutive_roles", subject, "joined")
        else:
            flush()
            start = index
        run.append(message)
    flush()
    return out


def _join_messages(run: Sequence[Message]) -> Message:
    """Join messages. A name stays where all have it; of equal further keys the last one counts."""
    extra = {key: value for message in run for key, value in (message.extra or {}).items()}
    name = run[0].name if len({message.name for message in run}) == 1 else None
    return replace(run[0], parts=_join_parts(run), name=name, extra=extra or None)


def _join_parts(run: Sequence[Message]) -> tuple[Part, ...]:
    """Return the parts of all turns: reasoning, then content, then calls, with a blank line between texts."""
    reasoning = [p for m in run for p in m.parts if type(p) is Reasoning]
    calls = [p for m in run for p in m.parts if type(p) is ToolCall]
    content = _join_content(run)
    if len(reasoning) > 1 and all(t.seal is None for t in reasoning):
        reasoning = [Reasoning("\n\n".join(t.text for t in reasoning if t.text.strip()) or reasoning[0].text)]
    return (*reasoning, *content, *calls)


def _join_content(run: Sequence[Message]) -> tuple[Part, ...]:
    """Return the texts and media of several messages, with a blank line between the texts of two."""
    content: list[Part] = []
    for message in run:
        parts = [p for p in message.parts if type(p) not in (Reasoning, ToolCall)]
        if content and parts and type(parts[0]) is Text and type(last := content[-1]) is Text:
            content[-1] = replace(last, text=last.text + "\n\n")
        content += parts
    return tuple(content)


def ensure_first_user(turns: list[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns with the user first."""
    start = next((i for i, (_, m) in enumerate(turns) if m.role not in _SYSTEM_ROLES), None)
    if start is None:
        ledger.note("first-user", "messages.first_user", "only system messages", "a user turn is put after them")
        return [*turns, (turns[-1][0], Message("user", (Text("…"),)))]
    if turns[start][1].role == "user":
        return turns
    index, message = turns[start]
    subject = f"messages[{index}], the first turn, is by {message.role}"
    ledger.note("first-user", "messages.first_user", subject, "a user turn is put before it")
    return [*turns[:start], (index, Message("user", (Text("…"),))), *turns[start:]]
