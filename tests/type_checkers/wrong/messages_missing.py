"""The messages are missing."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7")  # type: ignore  # refused
