"""Read every source of `providers.toml` again, and compare what it says with our values.

    python -m maintenance.sources --cache build/sources
    python -m maintenance.sources --only pi-ai --only litellm

Packages come through `npm` and `pip`, commits and pages over HTTP; what cannot be had is counted and is no error. Exit
status 1: a source does not say what the file says with it, and the file does not explain it (`rounded = true`,
a `?` behind the flag).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cnllm.registry import Registry
from cnllm.registry_files import sources
from maintenance.sources import report
from maintenance.sources.claims import claims, inherited
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
    parser.add_argument("--json", action="store_true", help="print every verdict as JSON")
    options = parser.parse_args(arguments)
    documents = sources.load_documents([])
    registry = Registry(documents)
    own = list(claims(documents[0]))
    wanted = [c for c in (*own, *inherited(registry, own)) if not options.only or c.name in options.only]
    judge = Judge(registry, Fetcher(options.cache, offline=options.offline))
    verdicts: list[Verdict] = []
    for claim in sorted(wanted, key=lambda c: c.url):
        verdicts.append(judge.judge(claim))
    text = report.as_json(verdicts) if options.json else "\n".join(report.lines(verdicts))
    sys.stdout.write(text + "\n")
    return 1 if any(v.state in ("differs", "not-found") and not v.explained for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
