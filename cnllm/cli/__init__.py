"""The command `cnllm`: one file per command, imported when it is invoked."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main", "program"]

_OBJECTS = 50_000  # made between two searches for garbage; a start makes that many, none of them garbage


def program() -> int:
    """What `cnllm` and `python -m cnllm` run: `main`, in a process that is its own.

    Searching all that was imported for garbage would be a fifth of a short call, half of it at the exit, where
    the memory is given back anyway.
    """
    import gc

    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    try:
        return main()
    finally:
        gc.freeze()


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status; nothing is raised."""
    try:
        from cnllm.cli import app  # click comes with it, and Ctrl-C may come meanwhile

        return app.run(args)
    except KeyboardInterrupt:
        return 130
