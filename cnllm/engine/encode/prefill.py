"""Continue a reply that was cut: the beginning of the reply is sent as the last message of the conversation."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.registry.flags import Flags
from cnllm.types import Message, Part, Reply, Text
from cnllm.types.totals import total_usage, with_costs

__all__ = ["apply_prefill", "join_halves", "prefill_turn"]


def apply_prefill(turns: list[dict[str, Any]], flags: Flags, ledger: Ledger) -> Flags:
    """Mark the last turn as the beginning of the reply, and return the flags of such a request."""
    rules = flags.messages.prefill
    if rules is None or not turns or turns[-1].get("role") != "assistant":
        subject, reason = "a reply that continues a text", "the endpoint is not known to support this"
        ledger.refuse("prefill", "messages.prefill", subject, reason)
    else:
        turns[-1].update(rules.set or {})
        if rules.path is not None:
            flags = replace(flags, path=rules.path, stream_path=None)
    return flags


def prefill_turn(reply: Reply | None) -> Message | None:
    """Return the turn with the beginning of a cut reply; None where the reply cannot be continued.

    Only plain text can be: no call that had begun, no reasoning, no text with a part removed.
    """
    if reply is None or reply.tool_calls or reply.incomplete or not reply.text.strip():
        return None
    if any(type(part) is not Text or part.seal is not None for part in reply.message.parts):
        return None
    if any(note.code.startswith("text-call") for note in reply.notes):
        return None
    return Message("assistant", (Text(reply.text),), by=reply.message.by)


def join_halves(old: Reply, new: Reply) -> Reply:
    """Join both halves of a reply. Both requests were paid for: usage and cost are their sums."""
    text = old.text + new.text
    parts: list[Part] = [p for p in new.message.parts if type(p) is not Text]
    usage = total_usage([old, new])
    reply = replace(new, text=text, message=replace(new.message, parts=(Text(text), *parts)), usage=usage)
    return with_costs(reply, [old.cost])
