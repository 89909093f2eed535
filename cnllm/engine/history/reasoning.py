"""Decide which reasoning goes back with an assistant turn, to which endpoint, and what replaces missing reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.media import placeholder_text
from cnllm.engine.history.repair import Turn, has_content
from cnllm.registry.flags import Patch
from cnllm.registry.flags import Reasoning as Rules
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import form
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Seal, Text, ToolCall

__all__ = ["drop_foreign_seals", "reasoning_gap", "replay_reasoning"]

_SEAL = attrgetter("seal")
_FILLERS = {"empty": "", "space": " "}


def replay_reasoning(turns: Sequence[Turn], model: Model, rules: Rules, ledger: Ledger) -> list[Turn]:
    """Return the turns; each of the assistant's has only the reasoning, seals and blocks for this endpoint."""
    since = _last_user([message for _, message in turns]) if rules.replay == "since-user" else -1
    owned: dict[str | None, bool] = {}
    out: list[Turn] = []
    for place, (index, message) in enumerate(turns):
        if message.role == "assistant":
            by = message.by if message.by is not None else _sealed_by(message)
            own = owned.get(by)
            if own is None:
                own = owned[by] = model.is_author(by)
            message = _turn(message, index, own, place > since, model, rules, ledger)
        out.append((index, message))
    return out


def drop_foreign_seals(turns: Sequence[Turn], model: Model, ledger: Ledger) -> list[Turn]:
    """Return the turns without another origin's seals in turns of others than the assistant.

    Blocks are left out; other parts lose their seals.
    """
    out: list[Turn] = []
    for index, message in turns:
        sealed = message.role != "assistant" and any(map(_SEAL, message.parts))
        if sealed and any(_foreign_seal(part, model) for part in message.parts):
            parts: list[Part] = []
            for part in message.parts:
                if not _foreign_seal(part, model):
                    parts.append(part)
                elif type(part) is Opaque:
                    _block_left_out(index, ledger)
                else:
                    parts.append(replace(part, seal=None))
            message = replace(message, parts=tuple(parts))
        out.append((index, message))
    return out


def _last_user(messages: Sequence[Message]) -> int:
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), -1)


def _sealed_by(message: Message) -> str | None:
    """Return the author of a turn without `by`: the origin of a seal in it; None without a seal."""
    seal = next((part.seal for part in message.parts if part.seal is not None), None)
    return None if seal is None else f"{seal.provider}/{seal.model}"


def _foreign_seal(part: Part, model: Model) -> bool:
    """Whether a part of another turn than the assistant's has a seal that this endpoint must not get.

    A seal without a provider holds the caller's own data for any endpoint of the protocol.
    """
    seal = part.seal
    return seal is not None and not _home(seal, model) and (bool(seal.provider) or seal.protocol != model.protocol)


def _block_left_out(index: int, ledger: Ledger) -> None:
    ledger.note("block-foreign", "messages", f"messages[{index}]: a block of another endpoint's", "left out")


def reasoning_gap(messages: Sequence[Message], model: Model) -> int | None:
    """Return the index where the running turn begins with calls and without sealed reasoning that may go back."""
    for index in range(_last_user(messages) + 1, len(messages)):
        message = messages[index]
        if message.role == "assistant":
            if not any(type(p) is ToolCall for p in message.parts):
                return None
            sealed = (p.seal for p in message.parts if type(p) is Reasoning and p.seal is not None)
            return None if any(_home(seal, model) for seal in sealed) else index
    return None


def _turn(message: Message, index: int, own: bool, recent: bool, model: Model, rules: Rules, ledger: Ledger) -> Message:
    """Return one turn of the assistant.

    `own` means that this endpoint and model family wrote it, `recent` that no turn of the user follows it.
    """
    calls = ToolCall in map(type, message.parts)
    carries = (
        rules.replay == "always"
        or (rules.replay == "tool-turns" and calls)
        or (rules.replay == "since-user" and recent)
    )
    parts: list[Part] = []
    sealed = form(rules) == "seal"
    has = changed = broken = False
    for part in message.parts:
        kept: Part | None = part
        if part.seal is not None and not _home(part.seal, model):
            # A block of another origin means nothing here; anything else goes on without its seal.
            kept = None if type(part) is Opaque else replace(part, seal=None)
        if type(kept) is Reasoning:
            if not own or (sealed and kept.seal is None):
                kept = _foreign(kept, index, own, rules, ledger)
                broken = broken or own
            elif carries and (kept.text or kept.seal is not None):
                has = True
            else:
                kept = None
        elif type(kept) is Media and not own:
            said, did = f"messages[{index}]: a picture that another model made", "words in its place"
            ledger.note("media-foreign", "messages", said, did)
            kept = Text(placeholder_text(kept))  # wires take pictures from users
        elif type(part) is Opaque and (kept is None or (part.seal is None and not own)):
            kept = None
            _block_left_out(index, ledger)
        elif broken and kept is part and part.seal is not None and type(part) in (Text, ToolCall):
            kept = replace(part, seal=None)  # it was given together with a thought that does not go along
        changed = changed or kept is not part
        if kept is not None:
            parts.append(kept)
    if isinstance(rules.if_missing, Patch):
        if carries and calls and all(p.seal is None for p in parts if type(p) is ToolCall):
            parts, changed = _stood_in(parts, index, rules.if_missing, model, ledger), True
    elif carries and not has and (rules.replay != "since-user" or calls) and any(map(has_content, parts)):
        # An answer ends a turn: where only the running turn counts, nothing is missing in it. Nor is it in a turn that
        # says nothing, which does not go out.
        filler = _filler(index, rules, ledger)
        if filler is not None:
            parts.insert(0, Reasoning(filler))
            changed = True
    return replace(message, parts=tuple(parts)) if changed else message


def _stood_in(parts: list[Part], index: int, patch: Patch, model: Model, ledger: Ledger) -> list[Part]:
    """Return the parts with the first call sealed by the value that the endpoint accepts for calls of others."""
    place = next(i for i, part in enumerate(parts) if type(part) is ToolCall)
    call = parts[place]
    assert type(call) is ToolCall
    seal = Seal(model.protocol, model.provider, model.id, dict(patch.set or {}))
    said, did = f"messages[{index}] calls tools and has no seal", f"sent with {', '.join(map(str, seal.data.values()))}"
    ledger.note("reasoning-filled", "reasoning.if_missing", said, did)
    return [*parts[:place], replace(call, seal=seal), *parts[place + 1 :]]


def _home(seal: Seal, model: Model) -> bool:
    return (seal.protocol, seal.provider, seal.model) == (model.protocol, model.provider, model.id)


def _foreign(part: Reasoning, index: int, own: bool, rules: Rules, ledger: Ledger) -> Text | None:
    """Return reasoning of another model, or without its required seal, as text; None to leave it out."""
    if not part.text:
        return None
    as_text = rules.if_foreign == "text"
    whose = "reasoning without its seal" if own else "another model's reasoning"
    said = f"messages[{index}]: {whose}"
    ledger.note("reasoning-foreign", "reasoning.if_foreign", said, "sent as text" if as_text else "left out")
    return Text(part.text + "\n\n") if as_text else None


def _filler(index: int, rules: Rules, ledger: Ledger) -> str | None:
    """Return the text that replaces missing reasoning; None where none does."""
    said = f"messages[{index}] has no reasoning"
    if rules.if_missing == "error":
        ledger.cannot("reasoning-missing", "reasoning.if_missing", said, "the endpoint demands it")
        return None
    filler = _FILLERS.get(str(rules.if_missing))
    if filler is not None:
        ledger.note("reasoning-filled", "reasoning.if_missing", said, f"sent as {filler!r}")
    return filler
