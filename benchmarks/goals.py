"""The goals, each looked up in the results: nothing is measured here."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import cases
from benchmarks.payloads import MARKUP, Setting
from benchmarks.peers import (
    AIOHTTP,
    BARE,
    CNLLM,
    CNLLM_BATCH,
    CNLLM_SERVE,
    CODEC,
    DIRECT,
    ENGINE,
    FAST,
    HAND,
    HTTP_CLIENT,
    OFF,
    OPENAI,
    RAW,
    RAW_GATEWAY,
    STDLIB,
    TYPED,
    VENDORS,
)
from benchmarks.results import Results, Row
from benchmarks.stats import Spread, beyond, ratio, spread

MB = 1e6


@dataclass(frozen=True)
class Goal:
    """One target: the measured figure beside its goal."""

    what: str
    measured: Spread | None
    limit: float
    unit: str = "x"
    at_most: bool = True
    why_not: str = ""  # of a figure that is not there
    failed: bool = False  # it was tried, and went wrong

    @property
    def met(self) -> bool | None:
        """None where nobody knows."""
        if self.measured is None:
            return False if self.failed else None
        return self.measured.median <= self.limit if self.at_most else self.measured.median >= self.limit

    def row(self) -> tuple[str | None, ...]:
        """Return the goal as a row of the table."""
        goal = f"{'≤' if self.at_most else '≥'} {self.limit:g} {self.unit}".strip()
        said = f"{self.measured} {self.unit}".strip() if self.measured else f"not measured ({self.why_not})"
        return self.what, said, goal, {True: "yes", False: "**no**", None: None}[self.met]


Figures = Callable[[Row], list[float]]


def _goal(
    what: str,
    find: Callable[..., Spread | None],
    rows: tuple[Row, ...],
    limit: float,
    unit: str = "x",
    *,
    of: Figures = Row.cpu,
    at_most: bool = True,
) -> Goal:
    """Return the figures of the rows, put together by `find`; a row without figures leaves the goal without any."""
    empty = [row for row in rows if row.why_not]
    if empty:
        why = "; ".join(dict.fromkeys(f"{row.peer}: {row.why_not}" for row in empty))
        return Goal(what, None, limit, unit, at_most, why, any(row.failed for row in empty))
    return Goal(what, find(*(of(row) for row in rows)), limit, unit, at_most)


def _milliseconds(row: Row) -> list[float]:
    return row.wall(1e3)


def _peak(row: Row) -> list[float]:
    return [s.peak / MB for s in row.rounds if s.peak is not None]


def _beyond_text(name: str) -> Figures:
    """Return the memory that a long stream takes beside its text: with Chinese, 2 bytes a character."""
    expected = Setting(0, "m", 50_000).expected
    text = 2 * (expected.text + expected.reasoning)

    def figures(row: Row) -> list[float]:
        values = [getattr(s, name) for s in row.rounds]
        return [(value - text) / MB for value in values if value is not None]

    return figures


def _streams(results: Results) -> list[Goal]:
    def row(peer: str) -> Row:
        return results.row("stream", cases.EACH, peer)

    def fed(case: str, peer: str) -> Row:
        return results.row("parse", case, peer)

    fast, over, hand, raw, sdk = map(row, (FAST, CNLLM, HAND, RAW, OPENAI))
    found = [
        _goal("a chunk, cnllm[fast]: CPU against a raw socket", ratio, (fast, raw), 2),
        _goal("a chunk, cnllm[fast]: how far below the openai SDK (CPU)", ratio, (sdk, fast), 18, at_most=False),
        _goal("a chunk, cnllm over httpx: CPU against httpx + orjson", ratio, (over, hand), 1.25),
        _goal("a chunk, cnllm over httpx: how far below the openai SDK (CPU)", ratio, (sdk, over), 7, at_most=False),
    ]
    for case in (cases.CUT["16k"], cases.CUT["whole"]):
        ours, typed, bare = (fed(case, peer) for peer in (ENGINE, TYPED, BARE))
        found += [
            _goal(f"feed, {case}: CPU against split + typed decode", ratio, (ours, typed), 1.5),
            _goal(f"feed, {case}: CPU against split + orjson", ratio, (ours, bare), 1.6),
        ]
    return found


def _requests(results: Results) -> list[Goal]:
    def row(peer: str) -> Row:
        return results.row("request", cases.REQUEST, peer)

    def in_loop(peer: str) -> Row:
        return results.row("request", cases.ASYNC_REQUEST, peer)

    fast, over, hand, raw, sdk = map(row, (FAST, CNLLM, HAND, RAW, OPENAI))
    engine = tuple(results.row("request", cases.IN_MEMORY, peer) for peer in (ENGINE, CODEC))
    return [
        _goal("build_request + parse_response: CPU against orjson of the same bodies", ratio, engine, 5),
        _goal("a request, cnllm[fast]: CPU against http.client by hand", ratio, (fast, row(HTTP_CLIENT)), 1.5),
        _goal("asyncio, cnllm[fast]: CPU against aiohttp by hand", ratio, (in_loop(FAST), in_loop(AIOHTTP)), 1),
        _goal("asyncio, cnllm over httpx: CPU against httpx by hand", ratio, (in_loop(CNLLM), in_loop(HAND)), 1.1),
        _goal("a request, cnllm[fast]: CPU against a raw socket", ratio, (fast, raw), 5),
        _goal("a request, cnllm[fast]: how far below the openai SDK (CPU)", ratio, (sdk, fast), 8, at_most=False),
        _goal("a request, cnllm over httpx: CPU against httpx + orjson", ratio, (over, hand), 1.1),
        _goal("a request, cnllm over httpx: how far below the openai SDK (CPU)", ratio, (sdk, over), 4, at_most=False),
    ]


def _concurrent(results: Results) -> list[Goal]:
    def row(number: int, peer: str) -> Row:
        return results.row("concurrent", cases.STREAMS[number], peer)

    def answered(row: Row) -> list[float]:
        return [float(s.n) for s in row.rounds]

    fast, over, hand, raw = (row(256, peer) for peer in (FAST, CNLLM, HAND, RAW))
    wall = Row.wall
    found = [
        _goal(
            "256 streams, cnllm[fast]: chunks/s against raw sockets", ratio, (raw, fast), 0.5, of=wall, at_most=False
        ),
        _goal(
            "256 streams, cnllm over httpx: chunks/s against httpx", ratio, (hand, over), 0.8, of=wall, at_most=False
        ),
        _goal("256 streams, cnllm[fast]: peak RSS of the process", spread, (fast,), 60, "MB", of=_peak),
        _goal("256 streams, cnllm over httpx: peak RSS of the process", spread, (over,), 60, "MB", of=_peak),
    ]
    for peer in (FAST, CNLLM):
        what = f"1,000 streams, {peer}: answered whole and right"
        found.append(_goal(what, spread, (row(1000, peer),), 1000, "", of=answered, at_most=False))
    return found


def _cold(results: Results) -> list[Goal]:
    def row(case: str, peer: str = ENGINE) -> Row:
        return results.row("cold", case, peer)

    nothing, click = row(cases.NOTHING, "python -c pass"), row(cases.HELP, "a bare click program")
    helped, hand, stdlib = row(cases.HELP), row(cases.ONE_CALL, HAND), row(cases.ONE_CALL, STDLIB)
    fast, over, many = row(cases.ONE_CALL, FAST), row(cases.ONE_CALL, CNLLM), row(cases.LIST_MANY)
    ms = _milliseconds
    return [
        _goal("import cnllm: wall beyond `python -c pass`", beyond, (row(cases.IMPORT), nothing), 15, "ms", of=ms),
        _goal("cnllm --help: wall against a bare click program", ratio, (helped, click), 1.2, of=ms),
        _goal("cnllm call, over httpx: wall against an httpx script", ratio, (over, hand), 1.15, of=ms),
        _goal("cnllm call, [fast]: wall against an httpx script", ratio, (fast, hand), 1.15, of=ms),
        _goal("cnllm call, over httpx: wall against an http.client script", ratio, (over, stdlib), 2, of=ms),
        _goal("cnllm call, [fast]: wall against an http.client script", ratio, (fast, stdlib), 2, of=ms),
        _goal("cnllm models list: wall against cnllm --help", ratio, (row(cases.LIST), helped), 1.5, of=ms),
        _goal("cnllm models list, 5,000 models: wall against cnllm --help", ratio, (many, helped), 1.5, of=ms),
        _goal("a model's name completed: wall", spread, (row(cases.TAB),), 60, "ms", of=ms),
        _goal("a model's name completed, of 5,000: wall", spread, (row(cases.TAB_MANY),), 60, "ms", of=ms),
        _goal(
            "a call kept on disk: wall beyond --no-log", beyond, (row(cases.KEPT), row(cases.UNKEPT)), 15, "ms", of=ms
        ),
    ]


def _rest(results: Results) -> list[Goal]:
    often = tuple(results.row("filters", cases.OFTEN, peer) for peer in (ENGINE, OFF))
    found = [_goal("50,000 plain chunks: CPU against not looking for calls in text", ratio, often, 1.25)]
    plain = results.row("filters", cases.MARKED.format(name="plain"), ENGINE)
    for name in ("html", "code"):
        pair = (results.row("filters", cases.MARKED.format(name=name), ENGINE), plain)
        found.append(_goal(f"{name}, one event a feed: CPU against prose", ratio, pair, 2))
    plain = results.row("filters", cases.MARKUP.format(name="plain"), ENGINE)
    for name in MARKUP:
        if name != "plain":
            case = cases.MARKUP.format(name=name)
            worst = (results.row("filters", case, ENGINE), plain)
            found.append(_goal(f"{case}: CPU against plain text", ratio, worst, 2))
    chat = results.row("wires", cases.FED.format(wire="openai-chat"), ENGINE)
    for wire, sdk in VENDORS.items():
        fed = results.row("wires", cases.FED.format(wire=wire), ENGINE)
        found.append(_goal(f"{wire}: CPU per event fed against the chat wire", ratio, (fed, chat), 1.2))
        for peer in (FAST, CNLLM):
            both = tuple(results.row("wires", cases.STREAMED.format(wire=wire), who) for who in (sdk, peer))
            found.append(_goal(f"{wire}, {peer}: how far below the {sdk} (CPU)", ratio, both, 6, at_most=False))
    for case in (cases.BUILT_IN, cases.UNDESCRIBED, cases.OVERLAY):
        row = results.row("registry", case, ENGINE)
        found.append(_goal(f"registry, {case}: load and resolve (wall)", spread, (row,), 10, "ms", of=_milliseconds))
    for peer in (FAST, CNLLM):
        for name, what in (("growth", "resident memory grew"), ("held", "allocated in Python at most")):
            row = results.row("memory", cases.LONG_STREAM, peer)
            text = f"50,000 chunks, {peer}: {what}, beyond the text"
            found.append(_goal(text, spread, (row,), 2, "MB", of=_beyond_text(name)))
    return found


def _gateway(results: Results) -> list[Goal]:
    def row(case: str, peer: str = CNLLM_SERVE) -> Row:
        return results.row("gateway", case, peer)

    def p99(row: Row) -> list[float]:
        return [1e3 * s.p99 for s in row.rounds if s.p99 is not None]

    found = []
    for case, limit in ((cases.GATEWAY_MANY, 0.5), (cases.GATEWAY_STREAMS, 0.5)):
        both = row(case, RAW_GATEWAY), row(case)
        unit = "chunks" if case == cases.GATEWAY_STREAMS else "requests"
        what = f"{case}, cnllm serve: {unit}/s against raw asyncio"
        found.append(_goal(what, ratio, both, limit, of=Row.wall, at_most=False))
    start, after, half = row(cases.GATEWAY_START), row(cases.GATEWAY_AFTER), row(cases.GATEWAY_HALF)
    alone = row(cases.GATEWAY_HALF, DIRECT)
    return [
        *found,
        _goal("cnllm serve, half load: p99 beyond the stub's own", beyond, (half, alone), 2, "ms", of=p99),
        _goal("cnllm serve: ready after", spread, (start,), 500, "ms", of=_milliseconds),
        _goal("cnllm serve: resident memory at its start", spread, (start,), 60, "MB", of=_peak),
        _goal("cnllm serve: resident memory after all of the load", spread, (after,), 60, "MB", of=_peak),
    ]


def _batch(results: Results) -> list[Goal]:
    rows = tuple(results.row("batch", cases.BATCH, peer) for peer in (CNLLM_BATCH, AIOHTTP))
    return [_goal("a row of a batch: CPU against aiohttp by hand", ratio, rows, 1.5)]


def goals(results: Results) -> list[Goal]:
    """Return all goals, whether measured or not."""
    return [
        part for make in (_streams, _requests, _concurrent, _cold, _rest, _gateway, _batch) for part in make(results)
    ]
