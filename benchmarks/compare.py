"""Compare a run with a stored one: is anything of cnllm slower or larger than it was?

Instructions are compared as they are. Times of two runs are not comparable, because the machine is not as busy: what is
compared is the ratio to a peer that was measured in the same rounds.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.describe import ABOUT, Form
from benchmarks.goals import MB
from benchmarks.peers import CNLLM, CNLLM_BATCH, CNLLM_SERVE, CNLLM_SQLITE, ENGINE, FAST, PLAN, SECOND
from benchmarks.results import Results, Row
from benchmarks.stats import Spread, ratio, spread, table
from benchmarks.venvs import ROOT

OURS = (FAST, CNLLM, SECOND, ENGINE, PLAN, CNLLM_SERVE, CNLLM_SQLITE, CNLLM_BATCH)
TOLERANCE = 1.03
"""Instructions of the same code vary by less than 1 in 100, those of code that waits for a socket by 2."""
_TIMES = 1.10  # medians that differ by less are no loss, even where the spreads do not touch
_SIZE = 1.05


class Figure(NamedTuple):
    """One figure in both runs. `loss` is whether it became worse by more than chance explains."""

    what: str
    before: Spread
    after: Spread
    loss: bool

    def row(self, of: Row) -> tuple[str, ...]:
        """Return the cells of the table."""
        change = self.after.median / self.before.median if self.before.median else 1.0
        verdict = "**worse**" if self.loss else ""
        return of.suite, of.case, of.peer, self.what, str(self.before), str(self.after), f"{change:.2f}", verdict


def read_base(base: str) -> Results:
    """Return a stored run: of a file, or of `benchmarks/results.json` at a git revision.

    Raises `ValueError` where there is none.
    """
    if Path(base).is_file():
        return Results.from_json(Path(base).read_text(encoding="utf-8"))
    shown = subprocess.run(
        ["git", "show", f"{base}:benchmarks/results.json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shown.returncode:
        raise ValueError(f"{base} is neither a file nor a git revision with benchmarks/results.json")
    return Results.from_json(shown.stdout)


def compare(base: Results, now: Results) -> tuple[str, bool]:
    """Return the table, and whether something of cnllm became worse."""
    rows: list[Sequence[object]] = []
    losses = absent = 0
    for row in now.rows:
        if row.peer not in OURS or row.why_not:
            continue
        old = base.row(row.suite, row.case, row.peer)
        if old.why_not:
            absent += 1
            continue
        for figure in _figures(base, old, now, row):
            losses += figure.loss
            rows.append(figure.row(row))
    head = "suite | case | peer | figure | before | now | now / before |  "
    told = f"{losses} of {len(rows)} figures are worse than in {base.how.lower()} of {base.machine}"
    more = f"; {absent} cases are not in that run" if absent else ""
    return f"{table(head, rows)}\n\n{told}{more}.", losses > 0


def _figures(base: Results, old: Row, now: Results, new: Row) -> Iterator[Figure]:
    if old.instructions and new.instructions:
        before, after = (row.instructions / row.units / 1e3 for row in (old, new) if row.instructions)
        loss = after > before * TOLERANCE
        yield Figure("instructions, k", Spread(before, before, before), Spread(after, after, after), loss)
    form = ABOUT[old.suite].form
    was, became = _relative(base, old), _relative(now, new)
    if was and became:
        clock = "wall" if form in (Form.PROCESS, Form.LOAD) else "CPU"
        yield Figure(f"{clock}, x {_reference(old)}", was, became, _slower(was, became))
    name = "growth" if form is Form.MEMORY else "peak"
    sizes = [spread(getattr(s, name) / MB for s in row.rounds if getattr(s, name) is not None) for row in (old, new)]
    if sizes[0] and sizes[1] and form is not Form.PROCESS:
        yield Figure(
            "growth, MB" if name == "growth" else "peak RSS, MB", sizes[0], sizes[1], _larger(sizes[0], sizes[1])
        )


def _slower(before: Spread, after: Spread) -> bool:
    return after.low > before.high and after.median > before.median * _TIMES


def _larger(before: Spread, after: Spread) -> bool:
    return after.low > before.high and after.median > max(before.median * _SIZE, before.median + 1)


def _reference(row: Row) -> str:
    """Return the peer that a row's times are divided by: the first one that its suite is held against."""
    against = ABOUT[row.suite].against
    return against[0] if against else ""


def _relative(results: Results, row: Row) -> Spread | None:
    """Return the ratio to the reference of the suite, round by round; None where it has none."""
    name, form = _reference(row), ABOUT[row.suite].form
    if form is Form.PROCESS:  # the reference stands in a case of its own
        found = next((one for one in results.of(row.suite) if one.peer == name), None)
        return ratio(row.wall(), found.wall()) if found else None
    found = results.row(row.suite, row.case, name)
    if found.why_not or found is row:
        return None
    return ratio(row.wall(), found.wall()) if form is Form.LOAD else ratio(row.cpu(), found.cpu())
