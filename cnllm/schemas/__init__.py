"""JSON Schemas applied with a bound on the work, whatever a model or a schema writes; and patterns in linear time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cnllm.schemas.patterns import Pattern, compile_pattern, ignore_case

if TYPE_CHECKING:
    from cnllm.schemas.validators import bounded, unjudged_patterns
    from cnllm.schemas.work import TooMuchWork, Work, depth

__all__ = [
    "Pattern",
    "TooMuchWork",
    "Work",
    "bounded",
    "compile_pattern",
    "depth",
    "ignore_case",
    "unjudged_patterns",
]


def __getattr__(name: str) -> Any:
    """Return what validates when it is first used: patterns alone need no jsonschema."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cnllm.schemas.validators import bounded, unjudged_patterns
    from cnllm.schemas.work import TooMuchWork, Work, depth

    late = {"bounded": bounded, "depth": depth, "unjudged_patterns": unjudged_patterns}
    globals().update(late, TooMuchWork=TooMuchWork, Work=Work)
    return globals()[name]
