"""A tool choice is a word or an object."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", tool_choice=1)  # type: ignore  # refused
