"""Whole requests that are not streamed, and what it takes to write one."""

from benchmarks.bench import Bench, left_out
from benchmarks.cases import BUILD, REQUEST
from benchmarks.payloads import Setting
from benchmarks.peers import ANY_LLM, ENGINE, FRAMEWORKS, LITELLM, MAIN, OPENAI, PLAN, PYDANTIC_AI, READY
from benchmarks.results import Row


def request(bench: Bench) -> list[Row]:
    """Sent, answered, read: one after another on one connection."""
    return bench.compare("request", REQUEST, (*MAIN, *FRAMEWORKS), "call", Setting(bench.port, "m", 0))


def build(bench: Bench) -> list[Row]:
    """A long conversation to the bytes of a request; nothing is sent."""
    peers = [READY, ENGINE, PLAN, OPENAI, PYDANTIC_AI, LITELLM]
    rows = bench.compare("build", BUILD, peers, "build", Setting(bench.port, "m", 0))
    return rows + left_out("build", BUILD, [ANY_LLM], "no HTTP client can be given to it that sends nothing")
