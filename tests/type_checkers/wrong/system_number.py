"""A system message is text."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", system=3)  # type: ignore  # refused
