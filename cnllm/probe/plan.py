"""Show the questions of a probe and what they may cost, before anything is sent."""

from __future__ import annotations

from cnllm.probe.questions import QUESTIONS

__all__ = ["estimate", "plan_text"]

_FIRST = 3
_INPUT, _OUTPUT = 250, 150
"""The tokens of an ordinary question, roughly."""


def estimate(requests: int, price: tuple[float, float]) -> float:
    """Return what so many requests may cost, roughly."""
    return requests * (_INPUT * price[0] + _OUTPUT * price[1]) / 1_000_000


def plan_text(max_requests: int, price: tuple[float, float] | None) -> str:
    """Return the plan of a probe as lines of text."""
    lines = ["Questions in their order, and the most requests of each (twice, if it finds something):", ""]
    lines.append(f"{_FIRST:>4}  the list of models, a first request, the same without the key")
    lines += [f"{question.requests:>4}  {question.name}" for question in QUESTIONS]
    lines += ["", f"It ends after {max_requests} requests (--max-requests)."]
    if price is not None:
        lines.append(f"About {estimate(max_requests, price):.3g} at this price, without the prompt that is too long.")
    else:
        lines.append("The price is not known: --assume-price P shows the cost.")
    return "\n".join(lines)
