"""A step has no such attribute."""

import cnllm

client = cnllm.Client(simulate=True)
for step in client.run("glm-4.7", "Hi").steps:
    print(step.duration)  # type: ignore  # refused
