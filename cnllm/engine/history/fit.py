"""Fit a conversation to one endpoint: messages in, messages out, with a note on each change.

Only the copy for the wire changes. The decisions are the same on every wire; the wire decides the spelling.
"""

from __future__ import annotations

from collections.abc import Sequence

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history import call_ids, calls_as_text, media, prompted_tools, reasoning, repair, roles
from cnllm.engine.options import Function
from cnllm.protocols import wire
from cnllm.registry.flags import Flags, Messages, Reasoning, Tools
from cnllm.registry.model import Model
from cnllm.types import Message, Text

__all__ = ["fit"]

_PLAIN = ("user", "assistant", "system")


def fit(
    messages: Sequence[Message],
    model: Model,
    flags: Flags,
    tools: Sequence[Function],
    ledger: Ledger,
    has_media: bool,
    pdf_text: bool = False,
) -> list[Message]:
    """Return the messages to write: reasoning as declared, calls and results in pairs, roles and ids in a valid form.

    `tools` are those of the request; their schemas show which arguments were encoded twice. `has_media` says whether
    any message holds an image, a sound or a file, `pdf_text` whether the text of a PDF stands for it.
    """
    rules = flags.messages or Messages()
    codec = wire(model.protocol)
    if _is_plain(messages):
        turns = list(enumerate(messages))
        if (filling := _filling(flags)) is not None:
            turns = reasoning.replay_reasoning(turns, model, filling, ledger)
    else:
        turns = _repair(messages, model, flags, tools, ledger, has_media, pdf_text)
    if rules.system in ("first", "user"):
        turns = roles.gather_system(turns, rules.system, ledger)
    elif rules.system is None and None not in codec.separate_system and roles.has_late_system(turns):
        turns = roles.gather_system(turns, "unknown", ledger)
    if rules.consecutive_roles == "join":
        turns = roles.join_neighbours(turns, ledger)
    is_system_apart = rules.system in codec.separate_system and all(
        message.role in ("system", "developer") for _, message in turns
    )
    if rules.first_user or is_system_apart:  # a request needs a turn
        turns = roles.ensure_first_user(turns, ledger)
    return [message for _, message in turns]


def _filling(flags: Flags) -> Reasoning | None:
    """Return the rules by which reasoning is added to an assistant's turn without it; None where none is added."""
    rules = flags.reasoning
    return rules if rules is not None and rules.replay == "always" and rules.if_missing not in (None, "omit") else None


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


def _repair(
    messages: Sequence[Message],
    model: Model,
    flags: Flags,
    tools: Sequence[Function],
    ledger: Ledger,
    has_media: bool,
    pdf_text: bool = False,
) -> list[repair.Turn]:
    """Return the messages with calls and results in pairs, reasoning as declared, and only supported content."""
    codec = wire(model.protocol)
    rules = flags.messages or Messages()
    tool_rules = flags.tools or Tools()
    turns = repair.separate_results(list(enumerate(messages)), ledger)
    used_roles = {message.role for message in messages}
    if "developer" in used_roles and not rules.developer:
        turns = roles.rename_developer(turns, ledger)
    if has_media:
        turns = media.drop_unreadable(turns, model, flags, ledger, reads_pdfs=pdf_text)
    if tool_rules.supported is False and ledger.policy != "send":
        form = prompted_tools.TEXT_FORM if tool_rules.otherwise == "prompt" else calls_as_text.IN_WORDS
        turns = calls_as_text.calls_to_text(repair.pair_calls(turns, None, True, ledger), form, ledger)
    else:
        schemas = {t.name: t.parameters for t in tools if t.parameters}
        turns = repair.pair_calls(turns, schemas, False, ledger)
    turns = repair.drop_unheard(reasoning.drop_foreign_seals(turns, model, ledger), ledger)
    turns = reasoning.replay_reasoning(turns, model, flags.reasoning or Reasoning(), ledger)
    turns = repair.drop_empty(turns, ledger)
    if codec.ordered:
        turns = repair.move_calls_last(turns, ledger)
    if not turns:
        subject = f"{len(messages)} messages without content"
        ledger.note("nothing-left", "messages", subject, "a user message that holds an ellipsis")
        turns = [(0, Message("user", (Text("…"),)))]
    if has_media and not tool_rules.result_media:
        turns = media.move_result_media(turns, ledger)
    return call_ids.rename_ids(turns, tool_rules.call_id_pattern, ledger)
