"""Read every source of `providers.toml` again, and compare what it says with our values.

    python -m maintenance.sources --cache build/sources
    python -m maintenance.sources --only pi-ai --only litellm
    python -m maintenance.sources --limit 10 --timeout 300

Each source is reported as soon as it has been read; the ones with the most values come first. Packages come through
`npm` and `pip`, commits and pages over HTTP. What cannot be had, and what is left out by `--limit` or `--timeout`, is
counted and is no error. Exit status 1: a source does not say what the file says with it, and the file does not explain
it (`rounded = true`, a `?` behind the flag).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cnllm.registry import Registry
from cnllm.registry.read import load_documents
from maintenance.sources import report
from maintenance.sources.claims import Claim, claims, inherited
from maintenance.sources.fetch import Fetcher
from maintenance.sources.judge import Judge, Verdict

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the sources say, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m maintenance.sources", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="the name of a source; may be repeated")
    parser.add_argument(
        "--cache", metavar="DIR", type=Path, default=Path("build/sources"), help="where sources are kept"
    )
    parser.add_argument("--offline", action="store_true", help="read only what is in the cache")
    parser.add_argument("--limit", metavar="N", type=int, help="read the N sources with the most values")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, help="begin no other source after this time")
    parser.add_argument("--json", action="store_true", help="print every verdict as a line of JSON")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    documents = load_documents([])
    registry = Registry(documents)
    own = list(claims(documents[0]))
    wanted = [c for c in (*own, *inherited(registry, own)) if not options.only or c.name in options.only]
    judge = Judge(registry, Fetcher(options.cache, offline=options.offline))
    verdicts: list[Verdict] = []
    for place, group in enumerate(_by_source(wanted)):
        late = options.timeout is not None and time.monotonic() - begin >= options.timeout
        if late or (options.limit is not None and place >= options.limit):
            found = [Verdict(claim, "not-read") for claim in group]
        else:
            found = [judge.judge(claim) for claim in group]
        verdicts += found
        for line in map(report.as_json, found) if options.json else report.source_lines(found):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    if not options.json:
        sys.stdout.write("\n".join([*report.summary_lines(verdicts), ""]))
    return 1 if any(report.is_open(verdict) for verdict in verdicts) else 0


def _by_source(wanted: Sequence[Claim]) -> Iterator[list[Claim]]:
    """Yield the claims of each source, those of the source with the most claims first."""
    groups: dict[str, list[Claim]] = {}
    for claim in wanted:
        groups.setdefault(claim.url, []).append(claim)
    yield from sorted(groups.values(), key=lambda group: (-len(group), group[0].url))


if __name__ == "__main__":
    sys.exit(main())
