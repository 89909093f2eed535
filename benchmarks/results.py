"""The results of a run: the rounds of every case and peer, as values that go to JSON and come back the same."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

ABSENT = "not part of this run"


class Sample(NamedTuple):
    """One timing: `n` calls took `wall` and `cpu` seconds; sizes are bytes, None where they were not looked at."""

    n: int
    wall: float
    cpu: float
    peak: int | None = None  # resident memory at its highest, since the process began
    growth: int | None = None  # the same while the calls ran, beyond what there was before
    held: int | None = None  # allocated by Python at its highest, in one more call
    p50: float | None = None  # seconds within which half of the requests of a load were answered
    p99: float | None = None  # the same of 99 in 100


@dataclass(frozen=True)
class Row:
    """The rounds of one peer in one case, in order; or why there are none."""

    suite: str
    case: str
    peer: str
    units: float = 1  # of one call: what a figure is divided by
    rounds: tuple[Sample, ...] = ()
    missing: str = ""  # it was not tried, and why
    failed: str = ""  # it was tried, and this went wrong
    instructions: float | None = None  # of one call, or of the process; None: not counted

    def cpu(self, scale: float = 1e6) -> list[float]:
        """Return user and system time per unit, in microseconds unless another scale is asked for."""
        return [scale * s.cpu / s.n / self.units for s in self.rounds]

    def wall(self, scale: float = 1e6) -> list[float]:
        """Return the elapsed time per unit, in microseconds unless another scale is asked for."""
        return [scale * s.wall / s.n / self.units for s in self.rounds]

    @property
    def why_not(self) -> str:
        """The reason for no figures; empty where there are some."""
        if self.rounds:
            return ""
        return f"failed: {self.failed}" if self.failed else self.missing or ABSENT


@dataclass(frozen=True)
class Results:
    """A whole run."""

    how: str  # "A full run", "A quick run"
    machine: str
    versions: tuple[tuple[str, tuple[str, ...]], ...]  # environment → "package version", …
    rows: tuple[Row, ...]

    def row(self, suite: str, case: str, peer: str) -> Row:
        """Return that row, or one that says that it was not part of the run."""
        for row in self.rows:
            if (row.suite, row.case, row.peer) == (suite, case, peer):
                return row
        return Row(suite, case, peer, missing=ABSENT)

    def of(self, suite: str) -> list[Row]:
        """Return the rows of one suite, in the order in which they were measured."""
        return [row for row in self.rows if row.suite == suite]

    def to_json(self) -> str:
        """Return JSON with one row a line, so that two runs can be compared line by line."""
        head = {"how": self.how, "machine": self.machine, "versions": {env: list(seen) for env, seen in self.versions}}
        rows = ",\n".join("  " + json.dumps(_packed(row), ensure_ascii=False) for row in self.rows)
        return f'{json.dumps(head, ensure_ascii=False)[:-1]},\n"rows": [\n{rows}\n]}}\n'

    @classmethod
    def from_json(cls, text: str) -> "Results":
        """Return the results that `to_json` wrote. Raises `ValueError` for anything else."""
        try:
            found = json.loads(text)
            versions = tuple((env, tuple(seen)) for env, seen in found["versions"].items())
            return cls(found["how"], found["machine"], versions, tuple(map(_unpacked, found["rows"])))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"these are no results of a run ({error!r}); make them with `python -m benchmarks`"
            ) from error


def _packed(row: Row) -> dict[str, Any]:
    kept: dict[str, Any] = {"suite": row.suite, "case": row.case, "peer": row.peer, "units": row.units}
    kept |= {name: said for name, said in (("missing", row.missing), ("failed", row.failed)) if said}
    if row.instructions is not None:
        kept["instructions"] = row.instructions
    return kept | {"rounds": [_short(sample) for sample in row.rounds]}


def _short(sample: Sample) -> dict[str, Any]:
    """Return the data that were measured; times keep all digits, so that the same page is made of them again."""
    return {name: value for name, value in sample._asdict().items() if value is not None}


def _unpacked(kept: dict[str, Any]) -> Row:
    return Row(**{**kept, "rounds": tuple(Sample(**sample) for sample in kept["rounds"])})
