"""Run the table and print what fails in a way that it may not."""

from __future__ import annotations

import argparse
import collections
import sys
import time

from .judge import fault
from .table import alone, inputs, share


def main() -> int:
    """Return 1 when an input fails in a way that it may not."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.odd", description=__doc__)
    parser.add_argument("--only", default="", help="the inputs whose name holds this")
    parser.add_argument("--share", type=int, default=1, help="one input of so many")
    parser.add_argument("--each", type=int, default=3, help="how many of each kind are printed")
    args = parser.parse_args()
    alone()
    found: dict[str, list[str]] = collections.defaultdict(list)
    count = failed = 0
    slow: list[tuple[float, str]] = []
    for one in share(args.share) if args.share > 1 else inputs():
        if args.only not in one.name:
            continue
        count += 1
        begun = time.perf_counter()
        wrong = fault(one)
        slow.append((time.perf_counter() - begun, one.name))
        if wrong is not None:
            failed += 1
            found[one.name.partition("=")[0]].append(f"{one.name}: {wrong}")
    for head, lines in sorted(found.items()):
        print(f"{head}: {len(lines)}")
        for line in lines[: args.each]:
            print(f"    {line}")
    for seconds, name in sorted(slow, reverse=True)[:5]:
        print(f"slow: {seconds:.2f} s {name}")
    print(f"{failed} of {count} odd inputs fail in another way than they may")
    return 1 if failed else 0


sys.exit(main())
