"""A stream comes by sentence or as it arrives."""

import cnllm

client = cnllm.Client(simulate=True)
client.stream("glm-4.7", "Hi", by="word")  # type: ignore  # refused
