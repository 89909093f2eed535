"""Select the reasoning that is sent back with each assistant turn, and replace reasoning that is missing."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.media import note_lost_mark, placeholder_text
from cnllm.engine.history.repair import Turn, has_content
from cnllm.protocols.sealed_keys import lost_keys
from cnllm.registry.flags import Patch, ReasoningFlags
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import form
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Seal, Text, ToolCall
from cnllm.types.documents import block_kind, block_parts, unreadable_line
from cnllm.types.media import media_noun
from cnllm.types.parts import ANY_MODEL, CACHE_MARK

__all__ = ["drop_foreign_seals", "drop_last_reasoning", "last_user_index", "reasoning_gap", "replay_reasoning"]

_SEAL = attrgetter("seal")
_FILLERS = {"empty": "", "space": " "}


def replay_reasoning(
    turns: Sequence[Turn], model: Model, rules: ReasoningFlags, ledger: Ledger, *, before_user: bool = False
) -> list[Turn]:
    """Return the turns; those of the assistant hold only reasoning, seals and blocks that this endpoint accepts.

    `before_user`: a turn of the user follows behind them.
    """
    last_user = -1
    if rules.replay == "since-user":
        last_user = len(turns) if before_user else last_user_index([message for _, message in turns])
    replay = _Replay(model, rules, ledger)
    is_unknown = rules.replay == "unknown" and rules.mode != "never"
    own_authors: dict[str | None, bool] = {}
    out: list[Turn] = []
    for position, (index, message) in enumerate(turns):
        if message.role == "assistant":
            author = message.by if message.by is not None else _seal_origin(message)
            is_own = own_authors.get(author)
            if is_own is None:
                is_own = own_authors[author] = model.is_author(author)
            if is_own and is_unknown and any(type(p) is Reasoning and p.text for p in message.parts):
                did = "left out: whether the endpoint wants it back is unknown"
                ledger.note("reasoning-replay", "reasoning.replay", f"messages[{index}]: reasoning", did)
            message = replay.turn(message, index, is_own=is_own, is_recent=position > last_user)
        out.append((index, message))
    return out


def _note_lost_keys(seal: Seal, model: Model, ledger: Ledger) -> None:
    """Note the keys that another endpoint wrote into its answer, and that this endpoint does not get."""
    for key in lost_keys(seal, model.protocol):
        ledger.count("key-foreign", "messages", key, "left out: only the endpoint that wrote it takes it")


def drop_foreign_seals(turns: Sequence[Turn], model: Model, ledger: Ledger) -> list[Turn]:
    """Return the turns without seals of another origin in turns whose role is not assistant.

    A line stands for a block of the caller's; other parts lose their seals. A mark of the prompt cache stays where the
    endpoint takes such a mark on its own wire.
    """
    takes_marks = CACHE_MARK in (model.flags.messages.fields or ())
    out: list[Turn] = []
    for index, message in turns:
        is_assistant = message.role == "assistant"
        if any(map(_SEAL, message.parts)) and any(is_assistant or _has_foreign_seal(p, model) for p in message.parts):
            parts: list[Part] = []
            for part in message.parts:
                is_foreign = _has_foreign_seal(part, model)
                if is_foreign or is_assistant:
                    part = _move_cache_mark(part, ledger, is_foreign=is_foreign, takes_marks=takes_marks)
                if is_assistant or not is_foreign:
                    parts.append(part)  # `replay_reasoning` decides about seals of the assistant
                    continue
                if type(part) is Opaque:
                    _note_dropped_block(index, part, ledger)
                    if part.seal is None or part.seal.provider:
                        continue
                    parts.append(Text(unreadable_line(block_kind(part.data))))  # the caller's own block
                    continue
                if part.seal is not None:
                    _note_lost_keys(part.seal, model, ledger)
                parts.append(replace(part, seal=None))
            message = replace(message, parts=tuple(parts))
        out.append((index, message))
    return out


def _move_cache_mark(part: Part, ledger: Ledger, *, is_foreign: bool, takes_marks: bool) -> Part:
    """Return a caller's own part with its cache mark where this endpoint reads it. A note says that one is lost."""
    seal = part.seal
    keys = {} if seal is None or seal.provider or type(seal.data) is not dict else seal.data
    mark = keys.get(CACHE_MARK)
    if mark is not None and (takes_marks or not is_foreign) and (type(part) is Text or type(part) is Media):
        return replace(part, extra={**(part.extra or {}), CACHE_MARK: mark})
    if is_foreign:
        note_lost_mark(keys, ledger)
    return part


def drop_last_reasoning(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns without reasoning that nothing of the assistant follows, in its own turn or in the next one."""
    out: list[Turn] = []
    has_successor = False
    for index, message in reversed(turns):
        parts: list[Part] = []
        for part in reversed(message.parts):
            if type(part) is not Reasoning:
                has_successor = message.role == "assistant" and (has_successor or part != Text(""))
            elif not has_successor:
                did = "left out: the endpoint refuses it there"
                ledger.note("reasoning-misplaced", "messages", f"messages[{index}]: reasoning behind all else", did)
                continue
            parts.append(part)
        if len(parts) < len(message.parts):
            parts.reverse()
            message = replace(message, parts=tuple(parts))
        if message.parts:
            out.append((index, message))
    out.reverse()
    return out


def last_user_index(messages: Sequence[Message]) -> int:
    """Return the index of the last message of the user; -1 without one."""
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), -1)


def _seal_origin(message: Message) -> str | None:
    """Return the author of a turn without `by`: the origin of a seal in it; None without a seal."""
    seals = (part.seal for part in message.parts if part.seal is not None)
    seal = next((seal for seal in seals if seal.provider or seal.model != ANY_MODEL), None)
    return None if seal is None else f"{seal.provider}/{seal.model}"


def _has_foreign_seal(part: Part, model: Model) -> bool:
    """Whether a part of another turn than the assistant's has a seal that this endpoint must not get.

    A seal without a provider holds the caller's own data for any endpoint of the protocol.
    """
    seal = part.seal
    return seal is not None and not _is_origin(seal, model) and (bool(seal.provider) or seal.protocol != model.protocol)


def _text_of_block(index: int, part: Opaque, ledger: Ledger) -> Text | None:
    """Return the text of another endpoint's block, with a note; None for a block without text that a model can read."""
    match block_parts(part.data):
        case [Text() as text]:
            subject = f"messages[{index}] holds {block_kind(part.data)}"
            ledger.note("file-as-text", "input", subject, "its text was sent")
            return text
    _note_dropped_block(index, part, ledger)
    return None


def _note_dropped_block(index: int, part: Opaque, ledger: Ledger) -> None:
    """Note that a block of another endpoint was removed from a message."""
    subject = f"messages[{index}]: a block of another endpoint's"
    ledger.note("block-foreign", "messages", subject, f"left out: {block_kind(part.data)}")


def reasoning_gap(messages: Sequence[Message], model: Model) -> int | None:
    """Return the index of the current turn's first message if it has calls and no sealed reasoning of this model."""
    for index in range(last_user_index(messages) + 1, len(messages)):
        message = messages[index]
        if message.role == "assistant":
            if not any(type(p) is ToolCall for p in message.parts):
                return None
            seals = (p.seal for p in message.parts if type(p) is Reasoning and p.seal is not None)
            return None if any(_is_origin(seal, model) for seal in seals) else index
    return None


class _Replay:
    """Decides what becomes of the assistant's turns of one request, at one endpoint."""

    def __init__(self, model: Model, rules: ReasoningFlags, ledger: Ledger) -> None:
        self._model = model
        self._rules = rules
        self._ledger = ledger
        self._needs_seal = form(rules) == "seal"

    def turn(self, message: Message, index: int, *, is_own: bool, is_recent: bool) -> Message:
        """Return one turn for this endpoint.

        `is_own`: this endpoint and model family wrote it. `is_recent`: no turn of the user follows it.
        """
        model, ledger = self._model, self._ledger
        has_calls = ToolCall in map(type, message.parts)
        wishes = {"always": True, "tool-turns": has_calls, "since-user": is_recent}
        sends_reasoning = wishes.get(self._rules.replay or "", False)
        parts: list[Part] = []
        has_reasoning = is_changed = has_lost_seal = False
        for part in message.parts:
            new: Part | None = part
            if part.seal is not None and not _is_origin(part.seal, model):
                # A block of another origin has no meaning for this endpoint; any other part is sent without its seal.
                new = None if type(part) is Opaque else replace(part, seal=_own_marks(part.seal, model))
                if new is not None and not (type(part) is Reasoning and part.text):  # its text has a note
                    _note_lost_keys(part.seal, model, ledger)
            if type(new) is Reasoning:
                if not is_own or (self._needs_seal and new.seal is None):
                    is_sealed = part.seal is not None and type(part.seal.data) is list and bool(part.seal.data)
                    new = self._foreign_reasoning(new, index, is_own=is_own, is_sealed=is_sealed)
                    has_lost_seal = has_lost_seal or is_own
                elif sends_reasoning and (new.text or new.seal is not None):
                    has_reasoning = True
                else:
                    new = None
            elif type(new) is Media and (not is_own or new is not part):
                subject = f"messages[{index}]: {media_noun(new)} that another model made"
                ledger.note("media-foreign", "messages", subject, "words in its place")
                new = Text(placeholder_text(new))  # wires take pictures from users
            elif type(part) is Opaque and (new is None or (part.seal is None and not is_own)):
                new = _text_of_block(index, part, ledger)
            elif has_lost_seal and new is part and part.seal is not None and type(part) in (Text, ToolCall):
                new = replace(part, seal=None)  # it belongs to reasoning that is not sent
            is_changed = is_changed or new is not part
            if new is not None:
                parts.append(new)
        if sends_reasoning:
            filled = self._fill(parts, index, has_calls=has_calls, has_reasoning=has_reasoning)
            parts, is_changed = filled, is_changed or filled is not parts
        return replace(message, parts=tuple(parts)) if is_changed else message

    def _fill(self, parts: list[Part], index: int, *, has_calls: bool, has_reasoning: bool) -> list[Part]:
        """Return the parts of a turn with what the endpoint accepts in place of reasoning that it requires.

        They are `parts` where nothing is missing. An answer without calls ends a turn: under `since-user` its reasoning
        is not required. A turn without content is not sent, so nothing is missing in it.
        """
        rules = self._rules
        if isinstance(rules.if_missing, Patch):
            needs_seal = has_calls and all(p.seal is None for p in parts if type(p) is ToolCall)
            return self._add_filler_seal(parts, index, rules.if_missing) if needs_seal else parts
        if has_reasoning or (rules.replay == "since-user" and not has_calls) or not any(map(has_content, parts)):
            return parts
        filler = self._filler_text(index)
        return parts if filler is None else [Reasoning(filler), *parts]

    def _add_filler_seal(self, parts: list[Part], index: int, patch: Patch) -> list[Part]:
        """Return the parts; the first call has the seal that the endpoint accepts for calls of another model."""
        model = self._model
        position = next(i for i, part in enumerate(parts) if type(part) is ToolCall)
        seal = Seal(model.protocol, model.provider, model.id, dict(patch.set or {}))
        did = f"sent with {', '.join(map(str, seal.data.values()))}"
        subject = f"messages[{index}] calls tools and has no seal"
        self._ledger.note("reasoning-filled", "reasoning.if_missing", subject, did)
        return [*parts[:position], replace(parts[position], seal=seal), *parts[position + 1 :]]

    def _foreign_reasoning(self, part: Reasoning, index: int, *, is_own: bool, is_sealed: bool) -> Text | None:
        """Return reasoning of another model, or without its required seal, as text; None to remove it.

        `is_sealed`: it had data without names, which no note on lost keys tells.
        """
        if not part.text and not is_sealed:
            return None
        as_text = self._rules.if_foreign == "text" and bool(part.text)
        description = "reasoning without its seal" if is_own else "another model's reasoning"
        subject, did = f"messages[{index}]: {description}", "sent as text" if as_text else "left out"
        self._ledger.note("reasoning-foreign", "reasoning.if_foreign", subject, did)
        return Text(part.text + "\n\n") if as_text else None

    def _filler_text(self, index: int) -> str | None:
        """Return the text that replaces missing reasoning; None where nothing replaces it."""
        subject, word = f"messages[{index}] has no reasoning", str(self._rules.if_missing)
        if word == "error":
            self._ledger.cannot("reasoning-missing", "reasoning.if_missing", subject, "the endpoint demands it")
            return None
        filler = None if self._needs_seal else _FILLERS.get(word)  # a text without a seal is not sent
        if filler is not None:
            self._ledger.note("reasoning-filled", "reasoning.if_missing", subject, f"sent as {filler!r}")
        return filler


def _own_marks(seal: Seal, model: Model) -> Seal | None:
    """Return the seal of a client's own mark of the prompt cache, on the wire that has such marks; None without one."""
    if seal.provider or seal.protocol != model.protocol or type(seal.data) is not dict or CACHE_MARK not in seal.data:
        return None
    return Seal(seal.protocol, "", "", {CACHE_MARK: seal.data[CACHE_MARK]})


def _is_origin(seal: Seal, model: Model) -> bool:
    """Whether a seal comes from this wire, endpoint and model, or is for any model of this wire."""
    origin = (seal.provider, seal.model)
    return seal.protocol == model.protocol and origin in ((model.provider, model.id), ("", ANY_MODEL))
