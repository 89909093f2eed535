"""A number of steps is a number."""

import cnllm

cnllm.run("glm-4.7", "Hi", max_steps="3")  # type: ignore  # refused
