"""A callback for steps has one argument."""

import cnllm


def seen(number: int, step: cnllm.Step) -> None:
    """Print it."""
    print(number, step)


cnllm.run("glm-4.7", "Hi", on_step=seen)  # type: ignore  # refused
