"""A name is no schema."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", schema="City")  # type: ignore  # refused
