"""Who speaks where: system messages in their place, neighbours joined, the user first."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.repair import Turn
from cnllm.types import Message, Part, Reasoning, Text, ToolCall

__all__ = ["ensure_first_user", "gather_system", "join_neighbours", "rename_developer"]

_SYSTEM = ("system", "developer")


def rename_developer(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """`developer` is OpenAI's word for system; elsewhere, and where nobody knows, system it is."""
    out: list[Turn] = []
    for index, message in turns:
        if message.role == "developer":
            said = f"messages[{index}] is by developer"
            ledger.note("role-developer", "messages.developer", said, "sent as system")
            message = replace(message, role="system")
        out.append((index, message))
    return out


def gather_system(turns: list[Turn], place: str, ledger: Ledger) -> list[Turn]:
    """All system text in one leading message, or, where the endpoint knows no such role, before the first user's."""
    systems = [t for t in turns if t[1].role in _SYSTEM]
    if not systems or (place == "first" and len(systems) == 1 and turns[0] is systems[0]):
        return turns
    rest = [t for t in turns if t[1].role not in _SYSTEM]
    text = "\n\n".join(m.text for _, m in systems if m.text)
    index, head = systems[0]
    if place == "first":
        where = f", the last at messages[{systems[-1][0]}]"
        ledger.note("system-folded", "messages.system", f"{len(systems)} system messages{where}", "one, at the start")
        return [(index, Message(head.role, (Text(text),))), *rest]
    ledger.note("system-as-user", "messages.system", f"messages[{index}] is a system message", "sent as the user's")
    if rest and rest[0][1].role == "user":
        at, first = rest[0]
        return [(at, replace(first, parts=(Text(text + "\n\n"), *first.parts))), *rest[1:]]
    return [(index, Message("user", (Text(text),))), *rest]


def join_neighbours(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Neighbours of one role (user, assistant, system) as one message."""
    out: list[Turn] = []
    run: list[Message] = []
    start = 0

    def put_down() -> None:
        if run:
            out.append((start, run[0] if len(run) == 1 else _as_one(run)))
            run.clear()

    for index, message in turns:
        if run and message.role == run[0].role and message.role in ("user", "assistant", "system"):
            said = f"messages[{index}] is by {message.role}, as the one before it"
            ledger.note("turns-joined", "messages.consecutive_roles", said, "joined")
        else:
            put_down()
            start = index
        run.append(message)
    put_down()
    return out


def _as_one(run: Sequence[Message]) -> Message:
    """One message of several; a name that not all have is nobody's, of further keys the last word counts."""
    extra = {key: value for message in run for key, value in (message.extra or {}).items()}
    name = run[0].name if len({message.name for message in run}) == 1 else None
    return replace(run[0], parts=_one(run), name=name, extra=extra or None)


def _one(run: Sequence[Message]) -> tuple[Part, ...]:
    """Reasoning, then content, then calls of all turns; texts and thoughts a line apart."""
    thoughts = [p for m in run for p in m.parts if type(p) is Reasoning]
    calls = [p for m in run for p in m.parts if type(p) is ToolCall]
    said: list[Part] = []
    for message in run:
        theirs = [p for p in message.parts if type(p) not in (Reasoning, ToolCall)]
        if said and theirs and type(theirs[0]) is Text and type(last := said[-1]) is Text:
            said[-1] = replace(last, text=last.text + "\n\n")
        said += theirs
    if len(thoughts) > 1 and all(t.seal is None for t in thoughts):
        thoughts = [Reasoning("\n\n".join(t.text for t in thoughts if t.text.strip()) or thoughts[0].text)]
    return (*thoughts, *said, *calls)


def ensure_first_user(turns: list[Turn], ledger: Ledger) -> list[Turn]:
    """A conversation that the user begins."""
    start = next((i for i, (_, m) in enumerate(turns) if m.role not in _SYSTEM), None)
    if start is None:
        ledger.note("first-user", "messages.first_user", "nobody but system speaks", "a user turn is put after it")
        return [*turns, (turns[-1][0], Message("user", (Text("…"),)))]
    if turns[start][1].role == "user":
        return turns
    index, message = turns[start]
    said = f"messages[{index}], the first turn, is by {message.role}"
    ledger.note("first-user", "messages.first_user", said, "a user turn is put before it")
    return [*turns[:start], (index, Message("user", (Text("…"),))), *turns[start:]]
