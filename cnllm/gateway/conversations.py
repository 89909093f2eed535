"""Recognise conversations, and notice that a request does not begin like the one before it: the cache cannot serve it.

The gateway keeps no text of a client here: only hashes and lengths of the parts of each request.
"""

from __future__ import annotations

import secrets
import time

from cnllm.engine.encode.plan import Plan
from cnllm.estimates.cache_loss import loss_cost, loss_text
from cnllm.store.prefix import Fingerprint, PrefixLoss, first_loss, lost_tokens
from cnllm.store.records import PrefixBreak, PrefixRecord
from cnllm.types import Note
from cnllm.types.newest import Newest

__all__ = ["Conversations", "SentPrefix"]

_MOST_FIRST_TURNS = 512  # first messages, each with the conversations that begin with it
_MOST_CONVERSATIONS = 4  # with the same first message: an agent may ask something beside its own conversation
_THOUGHTS = "the model's thoughts go at each new message of the user"


class SentPrefix:
    """The beginning of a conversation with one model: the parts of its last request, and the input tokens of that."""

    def __init__(self, parts: Fingerprint) -> None:
        self.id = secrets.token_hex(5)
        self.parts = parts
        self.tokens: int | None = None


class Conversations:
    """The conversations that a process saw last. Not for several threads at once."""

    def __init__(self) -> None:
        self._conversations: Newest[tuple[str, str, str, int], list[SentPrefix]] = Newest(_MOST_FIRST_TURNS)

    def follow(self, owner: str, plan: Plan, parts: Fingerprint) -> tuple[SentPrefix, PrefixRecord, Note | None]:
        """Return the conversation that a request continues, and the record and the note on its beginning.

        A request that continues none begins a new conversation.
        """
        key = (owner, plan.model.name, plan.url, parts.first_turn)
        self._conversations[key] = known = self._conversations.get(key, [])
        losses: list[tuple[SentPrefix, PrefixLoss]] = []
        for conversation in known:
            if (loss := first_loss(conversation.parts, parts)) is None:
                found = conversation
                break
            losses.append((conversation, loss))
        else:
            near = [(shared, each, loss) for each, loss in losses if (shared := _count_shared_turns(each.parts, parts))]
            if near:
                _, found, loss = max(near, key=lambda each: each[0])
            else:
                found = SentPrefix(parts)
                known[:] = [*known[-(_MOST_CONVERSATIONS - 1) :], found]
                return found, PrefixRecord(), None
        record, note = (PrefixRecord(kept=True), None) if loss is None else _loss(found, loss, plan)
        found.parts = parts
        return found, record, note


def _loss(conversation: SentPrefix, loss: PrefixLoss, plan: Plan) -> tuple[PrefixRecord, Note]:
    """Return the record and the note on a request that does not begin like the one before it."""
    tokens = lost_tokens(conversation.parts.size, conversation.tokens, loss.share)
    is_thought = plan.flags.reasoning.replay == "since-user" and loss.where.endswith("(assistant)")
    cause = _THOUGHTS if is_thought else loss.cause
    cost = loss_cost(tokens, plan.model.flags.price, time.time())  # a simulated request has no price of its own
    broken = PrefixBreak(loss.where, cause, None, None)
    note = Note("prefix-broken", "price.cached", f"{loss.where}: {cause}", loss_text(tokens, cost))
    return PrefixRecord(kept=False, broken=broken, lost=tokens, cost=cost), note


def _count_shared_turns(before: Fingerprint, after: Fingerprint) -> int:
    """Return how many messages two requests have in common at their beginning; 0 if the later one does not continue.

    A client may also ask something beside its conversation, with the same first message. Such a request has no more
    messages than the earlier one.
    """
    old, new = before.turns, after.turns
    if len(new) <= len(old):
        return 0
    return next((number for number, (a, b) in enumerate(zip(old, new, strict=False)) if a[1] != b[1]), len(old))
