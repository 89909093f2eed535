"""A number among the messages is no message."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", ["Hi", 3])  # type: ignore  # refused
