"""Gateways under load: requests and streams of clients, over a wire of the endpoint and over another one."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import cases
from benchmarks.bench import HURRIED, Bench, Rounds, left_out, turned
from benchmarks.gateways import Gateway, check, cpu_seconds, request_body, resident_bytes, running, settle
from benchmarks.load import run_load
from benchmarks.payloads import BESIDE_TEXT
from benchmarks.peers import CNLLM_SERVE, CNLLM_SQLITE, DIRECT, LITELLM_PROXY, PORTKEY, RAW_GATEWAY
from benchmarks.results import Row, Sample

_CHAT, _MESSAGES = "openai-chat", "anthropic-messages"
_OTHERS = (CNLLM_SQLITE, PORTKEY, LITELLM_PROXY)
_CHUNKS = 200 + BESIDE_TEXT


class _Case(NamedTuple):
    """A load of one kind."""

    name: str
    wire: str = _CHAT
    connections: int = 32
    stream: bool = False
    turns: int | None = None


_LOADS = (
    _Case(cases.GATEWAY_ONE, connections=1),
    _Case(cases.GATEWAY_MANY),
    _Case(cases.GATEWAY_LONG, turns=402),
    _Case(cases.GATEWAY_STREAMS, stream=True),
    _Case(cases.MESSAGES_MANY, _MESSAGES),
    _Case(cases.MESSAGES_STREAMS, _MESSAGES, stream=True),
)


def gateway(bench: Bench) -> list[Row]:
    """Start every gateway, load each in turn, and look at its memory before and after."""
    quick = bench.effort.quick
    peers = [RAW_GATEWAY, CNLLM_SERVE, *(() if quick else _OTHERS)]
    with ExitStack() as stack:
        starts = Rounds({peer: Row("gateway", cases.GATEWAY_START, peer) for peer in peers})
        gateways: dict[str, Gateway] = {}
        for turn in range(bench.effort.fresh):
            for peer in turned(peers, turn):
                home = bench.home / f"gateway-{peers.index(peer)}-{turn}"
                starts.round(peer, partial(_start, peer, bench.port, home))
        for peer in peers:
            home = bench.home / f"gateway-{peers.index(peer)}"
            if started := starts.attempt(peer, partial(_enter, stack, peer, bench.port, home)):
                gateways[peer] = started
        rows = starts.done()
        for case in _LOADS:
            rows += _loaded(bench, case, gateways)
        rows += _half_load(bench, gateways, rows)
        rows += [_memory(peer, started) for peer, started in gateways.items()]
    for case_name in (*(case.name for case in _LOADS), cases.GATEWAY_HALF, cases.GATEWAY_AFTER):
        rows += [replace(row, case=case_name) for row in rows[: len(peers)] if row.why_not]
    names = (cases.GATEWAY_START, *(case.name for case in _LOADS), cases.GATEWAY_HALF, cases.GATEWAY_AFTER)
    return rows + [row for name in names if quick for row in left_out("gateway", name, _OTHERS, HURRIED)]


def _start(peer: str, port: int, home: Path) -> Sample:
    """Start a gateway and end it. Return the time until it answers, and its memory then."""
    home.mkdir()
    with running(peer, port, home) as started:
        return Sample(1, started.ready, cpu_seconds(started.pid), peak=resident_bytes(started.pid))


def _enter(stack: ExitStack, peer: str, port: int, home: Path) -> Gateway:
    """Start a gateway that runs as long as the suite."""
    home.mkdir()
    return stack.enter_context(running(peer, port, home))


def _loaded(bench: Bench, case: _Case, gateways: dict[str, Gateway]) -> list[Row]:
    """Load every gateway that speaks the wire, in turns."""
    peers = [peer for peer in gateways if case.wire == _CHAT or peer != RAW_GATEWAY]
    units = _CHUNKS if case.stream else 1
    found = Rounds({peer: Row("gateway", case.name, peer, units) for peer in peers})
    for peer in peers:
        found.attempt(peer, partial(_warm, bench, case, gateways[peer]))
    for turn in range(_rounds(bench)):
        for peer in turned(peers, turn):
            found.round(peer, partial(_sample, bench, case, gateways[peer]))
    return found.done()


def _half_load(bench: Bench, gateways: dict[str, Gateway], rows: list[Row]) -> list[Row]:
    """Load every gateway with half of the requests that it can answer, and the stub with those of cnllm's half."""
    rates: dict[str, float] = {}
    for row in rows:
        if row.case == cases.GATEWAY_MANY and row.rounds:
            rates[row.peer] = 0.5 / min(sample.wall / sample.n for sample in row.rounds)
    if CNLLM_SERVE in rates:
        rates[DIRECT] = rates[CNLLM_SERVE]
    case = _Case(cases.GATEWAY_HALF)
    found = Rounds({peer: Row("gateway", case.name, peer) for peer in rates})
    with running(DIRECT, bench.port, bench.home) as stub:
        every = {**gateways, DIRECT: stub}
        for turn in range(_rounds(bench)):
            for peer in turned(list(rates), turn):
                found.round(peer, partial(_sample, bench, case, every[peer], rates[peer]))
    return found.done()


def _warm(bench: Bench, case: _Case, started: Gateway) -> bool:
    """Check an answer, and load the gateway for a moment."""
    check(started, case.wire, case.stream)
    _sample(bench, case, started, seconds=1)
    return True


def _sample(bench: Bench, case: _Case, started: Gateway, rate: float = 0, seconds: float = 0) -> Sample:
    """Load a gateway once, and check an answer after it."""
    cpu = cpu_seconds(started.pid) if started.pid else 0.0
    body = request_body(case.wire, case.stream, case.turns)
    seconds = seconds or _seconds(bench)
    url = started.address(case.wire)
    try:
        load = run_load(url, started.headers, body, case.connections, seconds, bench.home, rate)
    finally:
        if started.pid:
            settle(started.pid)
    cpu = cpu_seconds(started.pid) - cpu if started.pid else 0.0
    check(started, case.wire, case.stream)
    return Sample(load.n, load.wall, cpu, p50=load.p50, p99=load.p99)


def _memory(peer: str, started: Gateway) -> Row:
    """Look at the memory of a gateway after all of its load."""
    sample = Sample(1, 0.0, cpu_seconds(started.pid), peak=resident_bytes(started.pid))
    return Row("gateway", cases.GATEWAY_AFTER, peer, rounds=(sample,))


def _rounds(bench: Bench) -> int:
    return 1 if bench.effort.quick else 3


def _seconds(bench: Bench) -> float:
    return 1 if bench.effort.quick else 3
