"""A level of reasoning does not exist."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", reasoning="hihg")  # type: ignore  # refused
