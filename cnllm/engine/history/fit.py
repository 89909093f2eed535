"""A conversation as one endpoint will take it: messages in, messages out, each change noted.

Only the copy for the wire changes. What is decided here is the same on every wire; how it is spelt is the wire's.
"""

from __future__ import annotations

from collections.abc import Sequence

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history import call_ids, media, prompted_tools, reasoning, repair, roles
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
    pictured: bool,
) -> list[Message]:
    """The messages to write: reasoning as declared, calls and results in pairs, roles and ids as they are taken.

    `tools` are those offered with the request; their schemas tell which arguments were encoded twice. `pictured`: is
    there a picture or a sound in any message?
    """
    rules = flags.messages or Messages()
    spoken_by = wire(model.protocol)
    if _is_plain(messages, fills=_fills(flags)):
        turns = list(enumerate(messages))
    else:
        turns = _repaired(messages, model, flags, tools, ledger, pictured)
    if rules.system in ("first", "user"):
        turns = roles.gather_system(turns, rules.system, ledger)
    if rules.consecutive_roles == "join":
        turns = roles.join_neighbours(turns, ledger)
    beside = rules.system in spoken_by.separate_system and all(
        message.role in ("system", "developer") for _, message in turns
    )
    if rules.first_user or beside:  # a request needs a turn
        turns = roles.ensure_first_user(turns, ledger)
    return [message for _, message in turns]


def _fills(flags: Flags) -> bool:
    """Whether an assistant's turn without reasoning gets some."""
    rules = flags.reasoning
    return rules is not None and rules.replay == "always" and rules.if_missing not in (None, "omit")


def _is_plain(messages: Sequence[Message], *, fills: bool) -> bool:
    """Whether each message is one text, with nothing in it that could need repair. Most conversations are."""
    for message in messages:
        parts = message.parts
        if len(parts) != 1 or (role := message.role) not in _PLAIN or (fills and role == "assistant"):
            return False
        part = parts[0]
        if type(part) is not Text or part.seal is not None or not part.text or part.text.isspace():
            return False
    return True


def _repaired(
    messages: Sequence[Message],
    model: Model,
    flags: Flags,
    tools: Sequence[Function],
    ledger: Ledger,
    pictured: bool,
) -> list[repair.Turn]:
    """The messages with calls and results in pairs, reasoning as declared, and nothing that is not taken."""
    spoken_by = wire(model.protocol)
    rules = flags.messages or Messages()
    calling = flags.tools or Tools()
    turns = repair.separate_results(list(enumerate(messages)), ledger)
    spoken = {message.role for message in messages}
    if "developer" in spoken and not rules.developer:
        turns = roles.rename_developer(turns, ledger)
    if pictured:
        turns = media.drop_unreadable(turns, flags, spoken_by, ledger)
    if calling.supported is False and ledger.policy != "send":
        words = prompted_tools.WORDS if calling.otherwise == "prompt" else repair.IN_WORDS
        turns = repair.calls_to_text(repair.pair_calls(turns, None, True, ledger), words, ledger)
    else:
        schemas = {t.name: t.parameters for t in tools if t.parameters}
        turns = repair.pair_calls(turns, schemas, False, ledger)
    turns = repair.drop_unheard(reasoning.drop_foreign_seals(turns, model, ledger), ledger)
    turns = reasoning.replay_reasoning(turns, model, flags.reasoning or Reasoning(), ledger)
    turns = repair.drop_empty(turns, ledger)
    if spoken_by.ordered:
        turns = repair.move_calls_last(turns, ledger)
    if not turns:
        said = f"{len(messages)} messages that say nothing"
        ledger.note("nothing-left", "messages", said, "a user message that holds an ellipsis")
        turns = [(0, Message("user", (Text("…"),)))]
    if pictured and not calling.result_media:
        turns = media.move_result_media(turns, ledger)
    return call_ids.rename_ids(turns, calling.call_id_pattern, ledger)
