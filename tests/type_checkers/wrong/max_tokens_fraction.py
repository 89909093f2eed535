"""A number of tokens is whole."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", max_tokens=1.5)  # type: ignore  # refused
