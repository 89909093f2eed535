"""Whole requests that are not streamed, and what it takes to write one."""

from benchmarks.bench import Bench, left_out
from benchmarks.cases import ASYNC_REQUEST, BUILD, IN_MEMORY, REQUEST
from benchmarks.payloads import Setting
from benchmarks.peers import (
    AIOHTTP,
    ANY_LLM,
    CNLLM,
    CODEC,
    ENGINE,
    FAST,
    FRAMEWORKS,
    HAND,
    HTTP_CLIENT,
    LITELLM,
    MAIN,
    OPENAI,
    PLAN,
    PYDANTIC_AI,
    READY,
    SECOND,
)
from benchmarks.results import Row


def request(bench: Bench) -> list[Row]:
    """Measure requests one after another on one connection: send, answer, read; and the engine's share alone."""
    setting = Setting(bench.port, "m", 0)
    peers = [AIOHTTP, FAST, CNLLM, SECOND, HAND]
    return [
        *bench.compare("request", REQUEST, (*MAIN, HTTP_CLIENT, *FRAMEWORKS), "call", setting, counted=200),
        *bench.compare("request", ASYNC_REQUEST, peers, "acall", setting, counted=200),
        *bench.compare("request", IN_MEMORY, [CODEC, ENGINE], "both", setting, counted=200),
    ]


def build(bench: Bench) -> list[Row]:
    """Measure a long conversation to the bytes of a request; nothing is sent."""
    peers = [READY, ENGINE, PLAN, OPENAI, PYDANTIC_AI, LITELLM]
    rows = bench.compare("build", BUILD, peers, "build", Setting(bench.port, "m", 0), counted=40)
    return rows + left_out("build", BUILD, [ANY_LLM], "no HTTP client can be given to it that sends nothing")
