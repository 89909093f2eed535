"""Measure the work on bytes and values already received: parsing, looking for leaks, checking arguments."""

from benchmarks.bench import Bench
from benchmarks.cases import CUT, MARKED, MARKUP, OFTEN, VALIDATE
from benchmarks.payloads import MARKUP as TEXTS
from benchmarks.payloads import Setting
from benchmarks.peers import ANEW, BARE, ENGINE, KEPT, OFF, PYDANTIC, TYPED
from benchmarks.results import Row

_LONG = 10_000_000  # characters
_CHUNKS = 20_000


def parse(bench: Bench) -> list[Row]:
    """Measure StreamParser.feed, with the bytes cut in three ways."""
    rows = []
    for mode, case in CUT.items():
        rows += bench.compare(
            "parse", case, [TYPED, BARE, ENGINE], "parse", Setting(bench.port, mode, 1000), counted=20
        )
    return rows


def filters(bench: Bench) -> list[Row]:
    """Measure the search for calls: in plain chunks, in HTML and code, and in long texts that are pieces of markup."""
    rows = bench.compare("filters", OFTEN, [OFF, ENGINE], "parse", Setting(bench.port, "event", 50_000))
    for name in ("plain", "html", "code"):
        setting = Setting(bench.port, name, _CHUNKS)
        rows += bench.compare("filters", MARKED.format(name=name), [ENGINE], "marked", setting, units=_CHUNKS)
    for name in TEXTS:
        case, setting = MARKUP.format(name=name), Setting(bench.port, name, _LONG)
        rows += bench.compare("filters", case, [ENGINE], "markup", setting, units=_LONG / 1000)
    return rows


def validate(bench: Bench) -> list[Row]:
    """Measure the check of a tool call's arguments against the tool's schema."""
    return bench.compare("validate", VALIDATE, [PYDANTIC, ENGINE, KEPT, ANEW], "validate", Setting(bench.port, "m", 0))
