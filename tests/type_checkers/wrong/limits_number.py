"""Limits are a Limits."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", limits=1000)  # type: ignore  # refused
