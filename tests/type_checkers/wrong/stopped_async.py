"""A reason for the end of an async run does not exist."""

import cnllm


def done(run: cnllm.AsyncRun) -> bool:
    """Whether it is done."""
    return run.stopped == "finished"  # type: ignore  # refused
