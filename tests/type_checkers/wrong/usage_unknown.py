"""A count may be unknown."""

import cnllm

client = cnllm.Client(simulate=True)
print(client.call("glm-4.7", "Hi").usage.input + 1)  # type: ignore  # refused
