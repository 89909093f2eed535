"""Note at the end of a reply what its parts alone do not show: an unknown price, a missing answer, repeated ids."""

from __future__ import annotations

from collections.abc import Sequence

from cnllm.engine.decode.cost import cost_of, is_off_peak
from cnllm.registry.flags import Price
from cnllm.registry.model import Model
from cnllm.types import Media, Note, Part, Reasoning, Usage

__all__ = ["ids_note", "price_note", "silence_note"]


def price_note(model: Model, price: Price, usage: Usage, created: float | None) -> Note | None:
    """Return a note where the price depends on an unknown time or unknown peak hours."""
    if is_off_peak(price, created) is not None:
        return None
    if cost_of(usage, price) is None:
        return None
    unknown = "the time of the reply" if created is None else "the peak hours"
    flag = "price.off_peak"
    did = f"the cost uses the price of peak hours: {unknown} is not known"
    return Note("price-peak", flag, "cheaper outside the peak hours", did, model.where(flag))


def silence_note(texts: Sequence[str], thoughts: Sequence[str], parts: Sequence[Part]) -> Note | None:
    """Return a note for a reply that ends normally and holds nothing but reasoning."""
    if any(text.strip() for text in texts):
        return None
    kinds = {type(part) for part in parts}
    if not (thoughts or Reasoning in kinds) or Media in kinds:
        return None
    subject, did = "reasoning without text or a call", "the reply is incomplete: ask again, or with less reasoning"
    return Note("answer-missing", "reasoning", subject, did)


def ids_note(ids: Sequence[str]) -> Note:
    """Return a note on the call ids of the wire that an earlier call has."""
    subject = f"{len(ids)} repeated call ids, the first {ids[0]!r}"
    return Note("ids-repeated", "tools.call_id_pattern", subject, "made unique")
