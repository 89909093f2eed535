"""Apply JSON Schemas with a bound on the work, and match patterns in linear time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnllm.schemas.patterns import Pattern, compile_pattern, ignore_case
    from cnllm.schemas.validators import bounded_validator, undecided_patterns
    from cnllm.schemas.whole import whole_matcher, whole_problem
    from cnllm.schemas.work import WorkBudget, WorkLimitExceeded, depth

__all__ = [
    "Pattern",
    "WorkBudget",
    "WorkLimitExceeded",
    "bounded_validator",
    "compile_pattern",
    "depth",
    "ignore_case",
    "undecided_patterns",
    "whole_matcher",
    "whole_problem",
]

_MODULES = {
    "patterns": ("Pattern", "compile_pattern", "ignore_case"),
    "validators": ("bounded_validator", "undecided_patterns"),
    "whole": ("whole_matcher", "whole_problem"),
    "work": ("WorkBudget", "WorkLimitExceeded", "depth"),
}


def __getattr__(name: str) -> Any:
    """Import a name from its module at first use: patterns do not need jsonschema."""
    for module, names in _MODULES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f"{__name__}.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
