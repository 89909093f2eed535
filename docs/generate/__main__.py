"""`python -m docs.generate [--check]`."""

from __future__ import annotations

import sys

from docs.generate import outdated, write


def main() -> int:
    """Write the reference pages, or check them."""
    if sys.argv[1:] not in ([], ["--check"]):
        print("usage: python -m docs.generate [--check]", file=sys.stderr)
        return 2
    check = bool(sys.argv[1:])
    pages = outdated() if check else write()
    for name in pages:
        print(f"{name} {'is out of date: python -m docs.generate' if check else 'written'}")
    return 1 if check and pages else 0


sys.exit(main())
