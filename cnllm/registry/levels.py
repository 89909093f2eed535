"""How much a model may be asked to think. Apart, because shells ask for the words without wanting the flags."""

__all__ = ["LEVELS"]

LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""The levels of reasoning a caller may name, weakest first."""
