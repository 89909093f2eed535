"""A number is no message."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", 3)  # type: ignore  # refused
