"""The command `cnllm`: one file per command, imported when it is invoked."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status; nothing is raised."""
    try:
        from cnllm.cli import app  # click comes with it, and Ctrl-C may come meanwhile

        return app.run(args)
    except KeyboardInterrupt:
        return 130
