"""A call has no steps."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", max_steps=3)  # type: ignore  # refused
