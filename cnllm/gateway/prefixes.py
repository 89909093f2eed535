"""Notice that a request of a conversation does not begin as the one before it, so that the endpoint's cache is lost.

No word of a client is kept: of each request the hashes and the lengths of its parts.
"""

from __future__ import annotations

import secrets
import time

from cnllm.engine.encode.plan import Plan
from cnllm.estimates.cache_loss import loss_cost, loss_text
from cnllm.store.prefix import Fingerprint, PrefixBreak, PrefixLoss, first_loss, lost_tokens
from cnllm.store.records import PrefixRecord
from cnllm.types import Note
from cnllm.types.newest import Newest

__all__ = ["Prefixes", "Thread"]

_MOST = 512  # beginnings of conversations
_MOST_THREADS = 4  # that began with the same message: the agent's own, and those beside it
_THOUGHTS = "the model's thoughts go at each new message of the user"


class Thread:
    """The requests of one conversation to one model, as far as the last one. `tokens` is the input that it had."""

    def __init__(self, parts: Fingerprint) -> None:
        self.conversation = secrets.token_hex(5)
        self.parts = parts
        self.tokens: int | None = None


class Prefixes:
    """The last conversations of a process. Not for several threads at once."""

    def __init__(self) -> None:
        self._threads: Newest[tuple[str, str, str, int], list[Thread]] = Newest(_MOST)

    def follow(self, owner: str, plan: Plan, parts: Fingerprint) -> tuple[Thread, PrefixRecord, Note | None]:
        """Return the conversation that a request of a client goes on with, and whether it begins as before."""
        key = (owner, plan.model.name, plan.url, parts.first_turn)
        self._threads[key] = threads = self._threads.get(key, [])
        losses: list[tuple[Thread, PrefixLoss]] = []
        for thread in threads:
            if (loss := first_loss(thread.parts, parts)) is None:
                found = thread
                break
            losses.append((thread, loss))
        else:
            near = [(shared, thread, loss) for thread, loss in losses if (shared := _shared(thread.parts, parts))]
            if near:
                _, found, loss = max(near, key=lambda each: each[0])
            else:
                found = Thread(parts)
                threads[:] = [*threads[-(_MOST_THREADS - 1) :], found]
                return found, PrefixRecord(), None
        record, note = (PrefixRecord(kept=True), None) if loss is None else _loss(found, loss, plan)
        found.parts = parts
        return found, record, note


def _loss(thread: Thread, loss: PrefixLoss, plan: Plan) -> tuple[PrefixRecord, Note]:
    """Return the record and the note on a request that begins in another way."""
    tokens = lost_tokens(thread.parts.size, thread.tokens, loss.share)
    rules = plan.flags.reasoning
    is_thought = rules is not None and rules.replay == "since-user" and loss.where.endswith("(assistant)")
    cause = _THOUGHTS if is_thought else loss.cause
    cost = loss_cost(tokens, plan.model.flags.price, time.time())  # a simulated request has no price of its own
    broken = PrefixBreak(loss.where, cause, None, None)
    note = Note("prefix-broken", "price.cached", f"{loss.where}: {cause}", loss_text(tokens, cost))
    return PrefixRecord(kept=False, broken=broken, lost=tokens, cost=cost), note


def _shared(before: Fingerprint, after: Fingerprint) -> int:
    """Return how many messages two requests begin with alike; 0 where the later one does not go on with the other.

    A client may ask beside its conversation, with the same first message: such a request is no longer than the other.
    """
    old, new = before.turns, after.turns
    if len(new) <= len(old):
        return 0
    return next((number for number, (a, b) in enumerate(zip(old, new, strict=False)) if a[1] != b[1]), len(old))
