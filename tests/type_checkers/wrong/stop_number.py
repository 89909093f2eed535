"""A stop text is text."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", stop=3)  # type: ignore  # refused
