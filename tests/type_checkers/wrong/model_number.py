"""A model is a name or a Model."""

import cnllm

client = cnllm.Client(simulate=True)
client.call(4.7, "Hi")  # type: ignore  # refused
