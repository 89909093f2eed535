"""Fit a conversation to one endpoint: messages in, messages out, with a note on each change.

Only the copy for the wire changes. The decisions are the same on every wire; the wire decides the spelling.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history import calls_as_text, media, prompted_tools, reasoning, repair
from cnllm.engine.history.repair import Turn
from cnllm.protocols import Wire, wire
from cnllm.protocols.identifiers import UniqueIds, accepted_name
from cnllm.registry import flags as registry_flags
from cnllm.registry.flags import Flags, Messages, Tools
from cnllm.registry.model import Model
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.checks import plural
from cnllm.types.client_data import EMPTY
from cnllm.types.message import join_texts
from cnllm.types.parts import CACHE_MARK, CACHE_MARKS, SYSTEM_ROLES, seal_data
from cnllm.types.tools import Function

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["Target", "fit"]

_PLAIN = ("user", "assistant", "system")
_EXCLUDED_NAME, _LONGEST_EXCLUDED = "[A-Za-z_][A-Za-z0-9_-]*", 64  # a name that every endpoint accepts


class Target(Struct, frozen=True, kw_only=True):
    """The endpoint that messages are fitted to, by the flags of a request.

    `tools` are those of the request; their schemas show which arguments were encoded twice. `has_media` says whether
    any message holds an image, a sound or a file, `pdf_text` whether the text of a PDF stands for it.
    """

    model: Model
    flags: Flags
    tools: Sequence[Function] = ()
    has_media: bool = False
    pdf_text: bool = False


def fit(messages: Sequence[Message], target: Target, ledger: Ledger, *, before_user: bool = False) -> list[Message]:
    """Return the messages to write: reasoning as declared, calls and results in pairs, roles and ids in a valid form.

    `before_user`: the messages are part of a conversation, and a turn of the user follows behind them.
    """
    model, flags = target.model, target.flags
    rules = flags.messages
    codec = wire(model.protocol)
    _note_lost_keys(messages, rules, ledger, codec)
    if _is_plain(messages):
        turns = list(enumerate(messages))
        if (filling := _filling(flags)) is not None:
            turns = reasoning.replay_reasoning(turns, model, filling, ledger)
    else:
        turns = _repair(messages, target, ledger, before_user=before_user)
    if rules.system in ("first", "user"):
        turns = _gather_system(turns, rules.system, ledger)
    elif rules.system is None and None not in codec.separate_system and _has_late_system(turns):
        turns = _gather_system(turns, "unknown", ledger)
    if rules.after_results:
        turns = _answer_results(turns, rules.after_results, ledger)
    if rules.consecutive_roles == "join":
        turns = _join_neighbours(turns, ledger)
    has_turn = any(message.role not in SYSTEM_ROLES for _, message in turns)
    if rules.first_user or (rules.system in codec.separate_system and not has_turn):  # a request needs a turn
        turns = _ensure_first_user(turns, ledger)
    if rules.last_user and turns[-1][1].role == "assistant" and not _is_paused(turns[-1][1]):
        index = turns[-1][0]
        subject, did = f"messages[{index}], the last turn, is by assistant", "a user turn is put after it"
        ledger.note("last-user", "messages.last_user", subject, did)
        turns.append((index, Message("user", (Text("…"),))))
    if rules.content == "string" and codec.part_keys is None:
        _note_flattened(turns, ledger)
    return [message for _, message in turns]


def _is_paused(message: Message) -> bool:
    """Whether a turn ends with a block of the endpoint's own: it paused at it, and goes on from nothing else."""
    return type(message.parts[-1]) is Opaque if message.parts else False


def _note_lost_keys(messages: Sequence[Message], rules: Messages, ledger: Ledger, codec: Wire) -> None:
    """Note the keys of messages and of their parts that the endpoint is not known to take."""
    written = codec.part_keys
    for message in messages:
        if message.name is not None and not codec.names:
            _note_lost_key("name", rules, ledger)
        if message.extra is not None:
            for key, value in message.extra.items():
                if value not in EMPTY:
                    _note_lost_key(key, rules, ledger)
        if written is not None:
            for part in message.parts:
                if (type(part) is Text or type(part) is Media) and part.extra:
                    _note_part(part, message.role, written, ledger)


def _note_lost_key(key: str, rules: Messages, ledger: Ledger) -> None:
    """Note a key of a message, unless the endpoint takes it."""
    if key not in [path.partition(".")[0] for path in rules.fields or ()]:
        did = "left out: the endpoint is not known to take it"
        ledger.count("key-foreign", "messages.fields", f"messages[].{key}", did)


def _note_flattened(turns: Sequence[Turn], ledger: Ledger) -> None:
    """Note the keys of texts that are sent as one string, where the endpoint takes no parts."""
    for _, message in turns:
        if all(type(part) not in (Media, Opaque) for part in message.parts):
            for part in message.parts:
                if type(part) is Text and part.extra:
                    _note_part(part, message.role, (), ledger)
                if type(part) is ToolResult and (keys := seal_data(part.seal, "openai-chat")):
                    _note_part(Text("", None, keys), message.role, (), ledger)


def _note_part(part: Text | Media, role: str, written: Collection[str], ledger: Ledger) -> None:
    """Note the keys of a part that the wire does not write. Those of an answer's text are an endpoint's own words."""
    for key, value in (part.extra or {}).items():
        if key not in written and value not in EMPTY and (role != "assistant" or key in CACHE_MARKS):
            code: NoteCode = "cache-mark" if key == CACHE_MARK else "key-foreign"
            subject = CACHE_MARK if key == CACHE_MARK else f"messages[].content[].{key}"
            ledger.count(code, "messages.fields", subject, "left out: the wire has no place for it")


def _filling(flags: Flags) -> registry_flags.ReasoningFlags | None:
    """Return the rules by which reasoning is added to an assistant's turn without it; None where none is added."""
    rules = flags.reasoning
    return rules if rules.replay == "always" and rules.if_missing not in (None, "omit") else None


def _is_plain(messages: Sequence[Message]) -> bool:
    """Whether each message is one text without need of repair, as in most conversations."""
    for message in messages:
        parts = message.parts
        if len(parts) != 1 or message.role not in _PLAIN:
            return False
        part = parts[0]
        if type(part) is not Text or part.seal is not None or not part.text or part.text.isspace():
            return False
    return True


def _repair(messages: Sequence[Message], target: Target, ledger: Ledger, *, before_user: bool) -> list[Turn]:
    """Return the messages with calls and results in pairs, reasoning as declared, and only supported content."""
    model, flags = target.model, target.flags
    codec = wire(model.protocol)
    rules = flags.messages
    tool_rules = flags.tools
    turns = repair.separate_results(list(enumerate(messages)), ledger)
    used_roles = {message.role for message in messages}
    if "developer" in used_roles and not rules.developer:
        turns = [(index, _as_system(message, index, ledger)) for index, message in turns]
    if target.has_media:
        turns = media.drop_unreadable(turns, model, flags, ledger, reads_pdfs=target.pdf_text)
    if tool_rules.supported is False and ledger.policy != "send":
        form = prompted_tools.TEXT_FORM if tool_rules.otherwise == "prompt" else calls_as_text.IN_WORDS
        turns = calls_as_text.calls_to_text(repair.pair_calls(turns, None, ledger, orphans=True), form, ledger)
    else:
        tools = {tool.name: tool for tool in target.tools}
        turns = repair.pair_calls(turns, tools, ledger, orphans=False)
    turns = repair.drop_unheard(reasoning.drop_foreign_seals(turns, model, ledger), ledger)
    turns = repair.drop_pending(turns, codec.block_link, ledger)
    turns = reasoning.replay_reasoning(turns, model, flags.reasoning, ledger, before_user=before_user)
    turns = repair.drop_empty(turns, ledger)
    if codec.ordered:
        turns = repair.move_calls_last(turns, ledger)
    if codec.reasoning_leads:
        turns = reasoning.drop_last_reasoning(turns, ledger)
    if messages and not turns:
        subject = f"{len(messages)} message{plural(len(messages))} without content"
        ledger.note("nothing-left", "messages", subject, "a user message that holds an ellipsis")
        turns = [(0, Message("user", (Text("…"),)))]
    if target.has_media:
        turns = media.move_media(turns, model, ledger, in_results=bool(tool_rules.result_media))
    return _rename_calls(turns, tool_rules, {tool.name for tool in target.tools}, ledger)


# ── roles ─────────────────────────────────────────────────────────────────────


def _as_system(message: Message, index: int, ledger: Ledger) -> Message:
    """Return a message with `developer`, OpenAI's name for the role, as `system`."""
    if message.role != "developer":
        return message
    ledger.note("role-developer", "messages.developer", f"messages[{index}] is by developer", "sent as system")
    return replace(message, role="system")


def _has_late_system(turns: Sequence[Turn]) -> bool:
    """Whether a system message stands behind a turn of the conversation."""
    roles = [message.role in SYSTEM_ROLES for _, message in turns]
    return any(roles[roles.index(False) :]) if False in roles else False


def _gather_system(turns: list[Turn], place: Literal["first", "user", "unknown"], ledger: Ledger) -> list[Turn]:
    """Return the turns with all system text in one message at the start.

    Where the endpoint has no such role, the text goes before the first message of the user. `unknown` is `first` where
    nobody knows whether the endpoint takes a system message behind a turn: refusing it would cost the whole call.
    """
    systems = [t for t in turns if t[1].role in SYSTEM_ROLES]
    if not systems or (place != "user" and len(systems) == 1 and turns[0] is systems[0]):
        return turns
    rest = [t for t in turns if t[1].role not in SYSTEM_ROLES]
    index, head = systems[0]
    if place != "user":
        subject = f"{len(systems)} system message{plural(len(systems))}, the last at messages[{systems[-1][0]}]"
        did = "one, at the start"
        if place == "unknown":
            did = (
                "one, at the start, because it is unknown whether the endpoint takes one elsewhere: a cache of prompts "
                "begins anew with each new one"
            )
        elif _has_late_system(turns):
            did = "one, at the start: a cache of prompts begins anew with each new one"
        ledger.note("system-folded", "messages.system", subject, did)
        return [(index, Message(head.role, _system_parts([m for _, m in systems]))), *rest]
    text = _joined([m for _, m in systems])
    ledger.note("system-as-user", "messages.system", f"messages[{index}] is a system message", "sent as the user's")
    if rest and rest[0][1].role == "user":
        position, first = rest[0]
        return [(position, replace(first, parts=(Text(text + "\n\n"), *first.parts))), *rest[1:]]
    return [(index, Message("user", (Text(text),))), *rest]


def _joined(systems: Sequence[Message]) -> str:
    """Return the text of system messages, with a blank line between two."""
    texts = [join_texts(p.text for p in m.parts if type(p) is Text) for m in systems]
    return "\n\n".join(filter(None, texts))


def _system_parts(systems: Sequence[Message]) -> tuple[Part, ...]:
    """Return the parts of system messages: one text, unless a part has keys of its own (cache marks) or is no text."""
    if all(type(p) is Text and p.seal is None and p.extra is None for m in systems for p in m.parts):
        return (Text(_joined(systems)),)
    return _join_content(systems)


def _join_neighbours(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns with neighbours of one role (user, assistant, system) joined."""
    runs: list[list[Turn]] = []
    for index, message in turns:
        if runs and message.role == runs[-1][0][1].role and message.role in _PLAIN:
            subject = f"messages[{index}] is by {message.role}, as the one before it"
            ledger.note("turns-joined", "messages.consecutive_roles", subject, "joined")
            runs[-1].append((index, message))
        else:
            runs.append([(index, message)])
    return [run[0] if len(run) == 1 else (run[0][0], _join_messages([m for _, m in run], ledger)) for run in runs]


def _join_messages(run: Sequence[Message], ledger: Ledger) -> Message:
    """Join messages. A name stays where all have it; of equal further keys the last one counts."""
    names = {message.name for message in run}
    if len(names) > 1:
        did, lost = "left out: the messages are joined", sum(message.name is not None for message in run)
        ledger.count("key-foreign", "messages.consecutive_roles", "messages[].name", did, lost)
    extra = {key: value for message in run for key, value in (message.extra or {}).items()}
    name = run[0].name if len(names) == 1 else None
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


def _answer_results(turns: Sequence[Turn], text: str, ledger: Ledger) -> list[Turn]:
    """Return the turns with an answer of the assistant between a tool's result and a message of the user."""
    out: list[Turn] = []
    for index, message in turns:
        if message.role == "user" and out and out[-1][1].role == "tool":
            subject = f"messages[{index}] is by the user, right behind a tool's result"
            ledger.note("results-answered", "messages.after_results", subject, "an assistant's turn is put before it")
            out.append((index, Message("assistant", (Text(text),))))
        out.append((index, message))
    return out


def _ensure_first_user(turns: list[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns with the user first."""
    start = next((i for i, (_, m) in enumerate(turns) if m.role not in SYSTEM_ROLES), None)
    if start is None:
        ledger.note("first-user", "messages.first_user", "only system messages", "a user turn is put after them")
        return [*turns, (turns[-1][0], Message("user", (Text("…"),)))]
    if turns[start][1].role == "user":
        return turns
    index, message = turns[start]
    subject = f"messages[{index}], the first turn, is by {message.role}"
    ledger.note("first-user", "messages.first_user", subject, "a user turn is put before it")
    return [*turns[:start], (index, Message("user", (Text("…"),))), *turns[start:]]


# ── names and ids of calls ────────────────────────────────────────────────────


def _rename_calls(turns: Sequence[Turn], rules: Tools, names: Collection[str], ledger: Ledger) -> list[Turn]:
    """Return the turns with valid names and ids of calls. `names` are names that the wire renames itself.

    In the turns each one with calls is followed by a message for each result, in order. A new id depends on the old one
    and on the messages before it. So it is the same each time, and stays the same when the conversation goes on.
    """
    out: list[Turn] = []
    unique = UniqueIds(rules.call_id_pattern)
    new_calls: list[ToolCall] = []
    for index, message in turns:
        if message.role == "assistant":
            old = [p for p in message.parts if type(p) is ToolCall]
            if old:
                new_calls = []
                for order, call in enumerate(old):
                    id = _valid_id(call.id, unique, ledger, index, order)
                    name = call.name if call.name in names else _valid_name(call, rules, ledger, index)
                    is_same = id == call.id and name == call.name
                    new_calls.append(call if is_same else replace(call, id=id, name=name))
                if any(new is not call for new, call in zip(new_calls, old, strict=True)):
                    calls = iter(new_calls)
                    parts = tuple(next(calls) if type(p) is ToolCall else p for p in message.parts)
                    message = replace(message, parts=parts)
                new_calls.reverse()
        elif message.role == "tool" and new_calls:
            call = new_calls.pop()
            result = message.parts[0]
            if type(result) is ToolResult and (result.id != call.id or result.name != call.name):
                message = replace(message, parts=(replace(result, id=call.id, name=call.name),))
        out.append((index, message))
    return out


def _valid_name(call: ToolCall, rules: Tools, ledger: Ledger, index: int) -> str:
    """Return a valid name for a call of a tool that is not offered.

    That of an excluded call may be any text of the model's, of any length. A call of another type than a function,
    which its endpoint marked so, keeps its name.
    """
    if "type" in seal_data(call.seal):
        return call.name
    if call.excluded:
        length = min(rules.name_max_length or _LONGEST_EXCLUDED, _LONGEST_EXCLUDED)
        rules = replace(rules, name_pattern=_EXCLUDED_NAME, name_max_length=length)
    if (form := accepted_name(call.name, rules)) is None:
        return call.name
    name, flag = form
    subject = f"messages[{index}] has a call of {call.name[:80]!a}"
    ledger.note("call-renamed", flag, subject, name)
    return name


def _valid_id(old: str, unique: UniqueIds, ledger: Ledger, index: int, order: int) -> str:
    """Return a valid id of its own for a call of the message at `index`."""
    fits = bool(old) and unique.matches(old)
    if fits and unique.claim(old):
        return old
    if not old:
        ledger.note("ids-absent", "messages", f"messages[{index}] has a call without an id", "given one")
    elif fits:
        subject = f"messages[{index}] has a call with an id that came before"
        ledger.note("ids-repeated", "messages", subject, "made unique")
    else:
        subject = f"messages[{index}] has a call whose id does not match"
        ledger.note("ids-renamed", "tools.call_id_pattern", subject, "changed to match the endpoint's pattern")
    new = unique.derive(old or f"call_{index}_{order}", differs=fits)
    return old if new is None else new  # no id is known to match the pattern
