"""A reason for the end of a run does not exist."""

import cnllm

run = cnllm.run("glm-4.7", "Hi")
print(run.stopped == "finishd")  # type: ignore  # refused
