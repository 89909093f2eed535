"""Probe an endpoint: ask it what it takes, and describe it in a registry file, with the exchanges that prove it."""

from cnllm.probe.facts import FlagFact
from cnllm.probe.run import Report, run

__all__ = ["FlagFact", "Report", "run"]
