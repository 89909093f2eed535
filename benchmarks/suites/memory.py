"""Memory that stays and memory at the peak: over many requests, and over a stream that does not end soon."""

from benchmarks.bench import HURRIED, Bench, left_out
from benchmarks.cases import LONG_STREAM, MANY_REQUESTS
from benchmarks.payloads import Setting
from benchmarks.peers import CNLLM, FAST, FRAMEWORKS, HAND, MAIN, RAW
from benchmarks.results import Row


def memory(bench: Bench) -> list[Row]:
    """Measure the streams of the light ones also by what Python allocates; that takes the others too long."""
    light, slow = [RAW, FAST, CNLLM, HAND], FRAMEWORKS if bench.effort.quick else ()
    peers = [peer for peer in (*MAIN, *FRAMEWORKS) if peer not in slow]
    long, fresh = Setting(bench.port, "m", 50_000), 1 if bench.effort.quick else 0
    rows = bench.compare(
        "memory", MANY_REQUESTS, peers, "requests", Setting(bench.port, "m", 0), once=2000, fresh=fresh
    )
    rows += left_out("memory", MANY_REQUESTS, slow, HURRIED)
    rows += bench.compare("memory", LONG_STREAM, light, "memory", long, once=1)
    heavy = [peer for peer in peers if peer not in light]
    rows += bench.compare("memory", LONG_STREAM, heavy, "growth", long, once=1, fresh=fresh)
    return rows + left_out("memory", LONG_STREAM, slow, HURRIED)
