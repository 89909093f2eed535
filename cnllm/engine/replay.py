"""Which reasoning goes back with an assistant turn, to whom, and what stands in for it where it must be there."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.engine.ledger import Ledger
from cnllm.flags import Reasoning as Rules
from cnllm.model import Model
from cnllm.types import Message, Opaque, Part, Reasoning, Seal, Text, ToolCall

__all__ = ["lacking", "replayed"]

_FILLERS = {"empty": "", "space": " "}


def replayed(messages: Sequence[Message], model: Model, rules: Rules, ledger: Ledger) -> list[Message]:
    """The messages, each assistant turn with just the reasoning, seals and blocks that this endpoint is to see."""
    since = _last_user(messages) if rules.replay == "since-user" else -1
    owned: dict[str | None, bool] = {}
    out: list[Message] = []
    for index, message in enumerate(messages):
        if message.role == "assistant":
            own = owned.get(message.by)
            if own is None:
                own = owned[message.by] = model.wrote(message.by)
            message = _turn(message, index, own, index > since, model, rules, ledger)
        elif any(part.seal is not None for part in message.parts):
            message = _unsealed(message, index, model, ledger)
        out.append(message)
    return out


def lacking(messages: Sequence[Message], model: Model) -> int | None:
    """Where the running turn begins, if it begins with calls and without sealed reasoning that may go back."""
    for index in range(_last_user(messages) + 1, len(messages)):
        message = messages[index]
        if message.role == "assistant":
            if not any(type(p) is ToolCall for p in message.parts):
                return None
            sealed = (p.seal for p in message.parts if type(p) is Reasoning and p.seal is not None)
            return None if model.wrote(message.by) and any(_home(seal, model) for seal in sealed) else index
    return None


def _last_user(messages: Sequence[Message]) -> int:
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), -1)


def _turn(message: Message, index: int, own: bool, recent: bool, model: Model, rules: Rules, ledger: Ledger) -> Message:
    """One turn; `own`: this endpoint and model family wrote it; `recent`: no user has spoken since."""
    calls = any(type(p) is ToolCall for p in message.parts)
    carries = (
        rules.replay == "always"
        or (rules.replay == "tool-turns" and calls)
        or (rules.replay == "since-user" and recent)
    )
    parts: list[Part] = []
    has = changed = False
    for part in message.parts:
        kept: Part | None = part
        if part.seal is not None and not _home(part.seal, model):
            # A block of another origin means nothing here; anything else goes on without its seal.
            kept = None if type(part) is Opaque else replace(part, seal=None)
        if type(kept) is Reasoning:
            if not own or (rules.replay_as == "seal" and kept.seal is None):
                kept = _foreign(kept, index, own, rules, ledger)
            elif carries and (kept.text or kept.seal is not None):
                has = True
            else:
                kept = None
        elif type(part) is Opaque and (kept is None or (part.seal is None and not own)):
            kept = None
            ledger.note("block-foreign", "messages", f"messages[{index}]: a block of another endpoint's", "left out")
        changed = changed or kept is not part
        if kept is not None:
            parts.append(kept)
    if carries and not has and (rules.replay != "since-user" or calls):
        # An answer ends a turn: where only the running turn counts, nothing is missing in it.
        filler = _filler(index, rules, ledger)
        if filler is not None:
            parts.insert(0, Reasoning(filler))
            changed = True
    return replace(message, parts=tuple(parts)) if changed else message


def _unsealed(message: Message, index: int, model: Model, ledger: Ledger) -> Message:
    """What a user or a tool said, without the seals and blocks that belong to another endpoint."""
    parts: list[Part] = []
    for part in message.parts:
        if part.seal is None or _home(part.seal, model):
            parts.append(part)
        elif type(part) is Opaque:
            ledger.note("block-foreign", "messages", f"messages[{index}]: a block of another endpoint's", "left out")
        else:
            parts.append(replace(part, seal=None))
    return replace(message, parts=tuple(parts))


def _home(seal: Seal, model: Model) -> bool:
    return (seal.protocol, seal.provider, seal.model) == (model.protocol, model.provider, model.id)


def _foreign(part: Reasoning, index: int, own: bool, rules: Rules, ledger: Ledger) -> Text | None:
    """Reasoning that another endpoint's or family's model wrote, or without the seal it must have: text, or nothing."""
    if not part.text:
        return None
    as_text = rules.foreign == "text"
    whose = "reasoning without its seal" if own else "another model's reasoning"
    said = f"messages[{index}]: {whose}"
    ledger.note("reasoning-foreign", "reasoning.foreign", said, "sent as text" if as_text else "left out")
    return Text(part.text + "\n\n") if as_text else None


def _filler(index: int, rules: Rules, ledger: Ledger) -> str | None:
    """What stands in for reasoning that must be there and is not; None: nothing does."""
    said = f"messages[{index}] has no reasoning"
    if rules.if_missing == "error":
        ledger.cannot("reasoning-missing", "reasoning.if_missing", said, "the endpoint demands it")
        return None
    filler = _FILLERS.get(rules.if_missing or "omit")
    if filler is not None:
        ledger.note("reasoning-filled", "reasoning.if_missing", said, f"sent as {filler!r}")
    return filler
