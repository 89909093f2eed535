"""JSON Schemas applied with a bound on the work, whatever a model or a schema writes."""

from cnllm.schemas.patterns import Pattern, compile_pattern
from cnllm.schemas.validators import bounded, unjudged_patterns
from cnllm.schemas.work import TooMuchWork, Work, depth

__all__ = ["Pattern", "TooMuchWork", "Work", "bounded", "compile_pattern", "depth", "unjudged_patterns"]
