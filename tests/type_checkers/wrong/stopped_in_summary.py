"""A reason for the end of a run does not exist in its summary, either."""

import cnllm


def done(summary: cnllm.RunSummary) -> bool:
    """Whether it is done."""
    return summary.stopped == "finished"  # type: ignore  # refused
