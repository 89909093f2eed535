"""A temperature is a number."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", temperature="0.5")  # type: ignore  # refused
