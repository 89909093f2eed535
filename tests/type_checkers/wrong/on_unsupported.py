"""A policy does not exist."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", on_unsupported="ajust")  # type: ignore  # refused
