"""The page and the plot of `python -m benchmarks`, made of a small run: who is missing is named, and has no zero."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.utils import canonicalize_name

from benchmarks import cases
from benchmarks.bench import Rounds
from benchmarks.compare import compare, read_base
from benchmarks.describe import ABOUT
from benchmarks.goals import Goal, goals
from benchmarks.payloads import Got, Setting
from benchmarks.peers import ANY_LLM, CNLLM, ENGINE, FAST, FRAMEWORKS, HAND, LITELLM, MAIN, OPENAI, PEERS, RAW
from benchmarks.plot import PANELS, svg
from benchmarks.processes import Broken
from benchmarks.report import PLOT, report, suite
from benchmarks.results import Results, Row, Sample
from benchmarks.suites import SUITES
from benchmarks.venvs import PINS, WANTED
from benchmarks.worker import check
from cnllm.config.distribution import NAME

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "benchmarks"
NO_ENVIRONMENT = "there is no environment any-llm"
WENT_WRONG = "wrong result: got nothing"
COST = dict(zip((*MAIN, *FRAMEWORKS), (2.0, 3.0, 12.0, 12.0, 10.0, 90.0, 130.0, 95.0, 550.0), strict=True))
"""Microseconds of a chunk."""


def row(kind: str, case: str, peer: str, scale: float = 1) -> Row:
    """Three rounds of 100 calls of ten units; any-llm is not installed, litellm went wrong."""
    if peer == ANY_LLM:
        return Row(kind, case, peer, 10, missing=NO_ENVIRONMENT)
    if peer == LITELLM:
        return Row(kind, case, peer, 10, failed=WENT_WRONG)
    seconds = [COST[peer] * scale * 1e-3 * factor for factor in (0.9, 1.0, 1.2)]
    return Row(kind, case, peer, 10, tuple(Sample(100, 2 * s, s, peak=50_000_000) for s in seconds))


@pytest.fixture
def results() -> Results:
    """A run of two suites."""
    kinds = (("stream", cases.EACH, 1.0), ("request", cases.REQUEST, 30.0))
    rows = [row(kind, case, peer, scale) for kind, case, scale in kinds for peer in COST]
    return Results("A quick run", "a machine", (("base", ("cnllm 1", "orjson 2")),), tuple(rows))


def goal(results: Results, what: str) -> Goal:
    return next(one for one in goals(results) if one.what == what)


def test_a_table_has_a_row_for_everyone_measured_and_a_reason_for_everyone_else(results: Results) -> None:
    said = suite(results, "stream")
    for peer in set(COST) - {ANY_LLM, LITELLM}:
        assert f"| {cases.EACH} | {peer} | " in said
    assert f"| {cases.EACH} | {FAST} | 3.00 (2.70–3.60) | 6.00 (5.40–7.20) | 1.50 (1.50–1.50) | 0.30 " in said
    assert f"- {cases.EACH}: {ANY_LLM}: not measured: {NO_ENVIRONMENT}" in said
    assert f"- {cases.EACH}: {LITELLM}: not measured: failed: {WENT_WRONG}" in said
    for missing in (ANY_LLM, LITELLM):
        assert f"| {missing} |" not in said


def test_the_page_names_every_suite_the_versions_and_the_plot(results: Results) -> None:
    page = report(results)
    for about in ABOUT.values():
        assert f"\n## {about.title}\n" in page
    assert page.count("Not part of this run.") == len(ABOUT) - 2
    assert "| base | cnllm 1, orjson 2 |" in page
    assert f"]({PLOT})" in page
    assert "A quick run: a machine." in page


def test_a_goal_is_met_by_the_median_of_the_rounds(results: Results) -> None:
    good = goal(results, "a chunk, cnllm[fast]: CPU against a raw socket")
    assert good.row() == (good.what, "1.50 (1.50–1.50) x", "≤ 2 x", "yes")
    bad = goal(results, "a chunk, cnllm over httpx: CPU against httpx + orjson")
    assert bad.met, "1.2 is under 1.25"
    far = goal(results, "a chunk, cnllm[fast]: how far below the openai SDK (CPU)")
    assert far.row()[1:] == ("30.0 (30.0–30.0) x", "≥ 18 x", "yes")
    over = goal(results, "a request, cnllm over httpx: CPU against httpx + orjson")
    assert over.row()[2:] == ("≤ 1.1 x", "**no**")


def test_a_goal_without_figures_is_neither_met_nor_zero(results: Results) -> None:
    unknown = goal(results, "import cnllm: wall beyond `python -c pass`")
    assert unknown.measured is None
    assert unknown.met is None
    assert "not measured (cnllm: not part of this run" in str(unknown.row()[1])


def test_a_goal_of_who_failed_is_not_met(results: Results) -> None:
    failed = Row("concurrent", cases.STREAMS[1000], FAST, failed="connection refused")
    tried = Results(results.how, results.machine, results.versions, (*results.rows, failed))
    found = goal(tried, "1,000 streams, cnllm[fast]: answered whole and right")
    assert found.met is False
    assert "failed: connection refused" in str(found.row()[1])


def test_the_plot_is_well_formed_and_names_everyone(results: Results) -> None:
    picture = ElementTree.fromstring(svg(results))
    space = "{http://www.w3.org/2000/svg}"
    said = [text.text for text in picture.iter(f"{space}text")]
    for panel in PANELS:
        assert panel.title in said
    for peer in (
        "cnllm[fast]",
        CNLLM,
        OPENAI,
        "pydantic-ai",
        ANY_LLM,
        LITELLM,
        "raw socket + orjson",
        "httpx + orjson",
    ):
        assert peer in said
    assert "3 µs · 1.5×" in said
    bars = {str(bar[0].text).partition(":")[0]: bar for bar in picture.iter(f"{space}rect") if len(bar)}
    assert set(bars) == set(COST) - {ANY_LLM, LITELLM}
    raw, hand, sdk = (float(bars[peer].get("width", "0")) for peer in (RAW, HAND, OPENAI))
    steps = math.log10(COST[OPENAI] / COST[HAND]) / math.log10(COST[HAND] / COST[RAW])
    assert (sdk - hand) / (hand - raw) == pytest.approx(steps, rel=0.01)
    assert 0 < raw < hand
    named = sum(len(panel.peers) for panel in PANELS)
    assert said.count("not measured") == named - 2 * len(bars)
    assert "NaN" not in svg(results)
    assert "prefers-color-scheme: dark" in svg(results)


def test_a_run_of_nothing_still_makes_a_page_and_a_plot() -> None:
    nothing = Results("A quick run", "a machine", (), ())
    assert "Not part of this run." in report(nothing)
    ElementTree.fromstring(svg(nothing))


def test_results_come_back_from_json_as_they_went(results: Results) -> None:
    third = Row("parse", cases.CUT["whole"], ENGINE, 1024, (Sample(3, 1 / 3, 2 / 3e9, 1, 0, None),))
    results = Results(results.how, results.machine, results.versions, (*results.rows, third))
    assert Results.from_json(results.to_json()) == results
    with pytest.raises(ValueError, match="make them with `python -m benchmarks`"):
        Results.from_json('{"rows": []}')


def test_the_page_and_the_plot_are_what_the_kept_results_say() -> None:
    kept = Results.from_json((PAGES / "results.json").read_text(encoding="utf-8"))
    again = "run `python -m benchmarks report`"
    assert (PAGES / "README.md").read_text(encoding="utf-8") == report(kept), again
    assert (PAGES / PLOT).read_text(encoding="utf-8") == svg(kept), again
    assert {r.suite for r in kept.rows} == set(SUITES)


def test_every_suite_is_described_and_every_peer_can_be_installed_and_run() -> None:
    assert set(SUITES) == set(ABOUT)
    for name, peer in PEERS.items():
        assert importlib.util.find_spec(f"benchmarks.runners.{peer.runner}"), name
        assert peer.env in WANTED, name
    for env, wanted in WANTED.items():
        pinned = {canonicalize_name(line.partition("==")[0]) for line in (PINS / f"{env}.txt").read_text().splitlines()}
        assert {name.partition("[")[0] for name in wanted} - {NAME} <= pinned, env


def test_who_drops_something_is_wrong_and_not_fast() -> None:
    setting = Setting(0, "m", 200)
    check([setting.expected], setting)
    with pytest.raises(SystemExit, match="wrong result"):
        check([Got(setting.expected.reasoning, setting.expected.text - 1, setting.expected.arguments)], setting)


def test_who_fails_on_the_way_has_no_figures() -> None:
    def broken() -> Sample:
        raise Broken("it said\nno more")

    rounds = Rounds({who: Row("stream", cases.EACH, who) for who in (ENGINE, HAND)})
    for who in (ENGINE, HAND):
        rounds.round(who, lambda: Sample(1, 1.0, 1.0))
    rounds.round(HAND, broken)
    rounds.round(HAND, lambda: Sample(1, 1.0, 1.0))
    fine, failed = rounds.done()
    assert len(fine.rounds) == 1
    assert (failed.rounds, failed.failed) == ((), "no more")


def test_a_worse_run_is_told_from_a_slower_machine(results: Results) -> None:
    slower_machine = replace(results, rows=tuple(map(_twice, results.rows)))
    assert compare(results, slower_machine)[1] is False
    only_ours = replace(results, rows=tuple(_twice(one) if one.peer == FAST else one for one in results.rows))
    text, is_worse = compare(results, only_ours)
    assert is_worse
    worse = [line for line in text.splitlines() if "**worse**" in line]
    assert worse
    assert all(f"| {FAST} |" in line for line in worse)
    assert compare(only_ours, results)[1] is False


def test_instructions_are_compared_as_they_are(results: Results) -> None:
    def counted(number: float) -> Results:
        return replace(results, rows=tuple(replace(one, instructions=number) for one in results.rows))

    assert compare(counted(1000), counted(1020))[1] is False
    assert compare(counted(1000), counted(1040))[1] is True
    assert compare(results, counted(9000))[1] is False  # a run from before they were counted
    assert counted(1000).row("stream", cases.EACH, FAST) == Results.from_json(counted(1000).to_json()).row(
        "stream", cases.EACH, FAST
    )


def test_a_larger_process_is_worse(results: Results) -> None:
    larger = tuple(replace(one, rounds=tuple(s._replace(peak=60_000_000) for s in one.rounds)) for one in results.rows)
    assert compare(results, replace(results, rows=larger))[1] is True


def test_a_base_is_a_file_or_a_revision(results: Results, tmp_path: Path) -> None:
    stored = tmp_path / "results.json"
    stored.write_text(results.to_json(), encoding="utf-8")
    assert read_base(str(stored)) == results
    with pytest.raises(ValueError, match="neither a file nor a git revision"):
        read_base("no-such-revision")


def _twice(one: Row) -> Row:
    return replace(one, rounds=tuple(s._replace(wall=2 * s.wall, cpu=2 * s.cpu) for s in one.rounds))
