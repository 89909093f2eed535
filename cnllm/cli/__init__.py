"""Provide the command `cnllm`: one file per command, imported when the command runs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from cnllm.config import distribution

__all__ = ["main", "program"]

_GC_THRESHOLD = 100_000  # new objects between two collections; a start creates half as many, and none is garbage


def program() -> int:
    """Run `main` in a process of its own, for `cnllm` and `python -m cnllm`.

    Collecting garbage among all imported objects would take a fifth of a short call, half of it at the exit, where the
    process gives the memory back anyway.
    """
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
    try:
        return main()
    finally:
        gc.freeze()


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. Raises nothing."""
    try:
        from cnllm.cli import app  # this imports click, and Ctrl-C may arrive during the import

        return app.run(args)
    except KeyboardInterrupt:
        return 130
    except ImportError as error:  # `app` reports those of its own run
        for line in distribution.import_failure(error) or ():
            sys.stderr.write(f"cnllm: {line}\n")
        return 2
