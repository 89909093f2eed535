"""A callback for approval gets a call."""

import cnllm


def approve(name: str) -> bool:
    """Whether it may run."""
    return name == "weather"


cnllm.run("glm-4.7", "Hi", approve=approve)  # type: ignore  # refused
