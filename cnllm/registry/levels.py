"""Name the levels of reasoning. A file of its own, because shell completion needs them without the flags."""

__all__ = ["LEVELS"]

LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""The levels of reasoning, weakest first."""
