"""Reasoning is a level or a whole number."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", reasoning=0.5)  # type: ignore  # refused
