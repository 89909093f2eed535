"""Streams: one after another, over the other wires, and many at once."""

from benchmarks.bench import HURRIED, Bench, left_out
from benchmarks.cases import FED, FRAMED, STREAMED, STREAMS
from benchmarks.payloads import Setting
from benchmarks.peers import CNLLM, ENGINE, FAST, FRAMEWORKS, HAND, MAIN, RAW, VENDORS
from benchmarks.results import Row


def stream(bench: Bench) -> list[Row]:
    """Measure streams of 1,024 chunks, one after another, framed as servers and proxies frame them."""
    rows = []
    for mode, case in FRAMED.items():
        peers = (*MAIN, *FRAMEWORKS) if mode == "m" or not bench.effort.quick else MAIN
        if mode == "o" and bench.effort.quick:
            rows += left_out("stream", case, MAIN, HURRIED)
        else:
            counted = 10 if mode == "m" else 0
            rows += bench.compare("stream", case, peers, "stream", Setting(bench.port, mode, 1000), counted=counted)
        if bench.effort.quick and mode != "m":
            rows += left_out("stream", case, FRAMEWORKS, HURRIED)
    return rows


def wires(bench: Bench) -> list[Row]:
    """Measure the other wire protocols: bytes fed to the parser, and streams beside the vendor's SDK."""
    chat = Setting(bench.port, "event", 1000)
    rows = bench.compare("wires", FED.format(wire="openai-chat"), [ENGINE], "parse", chat, counted=20)
    for wire, sdk in VENDORS.items():
        fed = Setting(bench.port, "event", 1000, wire)
        rows += bench.compare("wires", FED.format(wire=wire), [ENGINE], "parse", fed, counted=20)
        case, setting = STREAMED.format(wire=wire), Setting(bench.port, "m", 1000, wire)
        rows += bench.compare("wires", case, [FAST, CNLLM, sdk], "stream", setting)
    return rows


def concurrent(bench: Bench) -> list[Row]:
    """Measure that many streams of 224 chunks at once in one process, connecting included."""
    rows = []
    for number, case in STREAMS.items():
        peers, why = [*MAIN, *FRAMEWORKS], ""
        fresh = 1 if bench.effort.quick and number == 1000 else bench.effort.fresh
        if number == 1000:
            peers, why = [RAW, FAST, CNLLM, HAND], "not tried: at its pace with 256 a round would take too long"
        elif bench.effort.quick:
            peers, why = [*MAIN], HURRIED
        setting = Setting(bench.port, "m", 200)
        rows += bench.compare("concurrent", case, peers, "astream", setting, once=number, fresh=fresh)
        rows += left_out("concurrent", case, (peer for peer in (*MAIN, *FRAMEWORKS) if peer not in peers), why)
    return rows
