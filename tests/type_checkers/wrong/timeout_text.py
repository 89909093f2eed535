"""A timeout is a number of seconds."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", timeout="10")  # type: ignore  # refused
