"""A cost may be unknown."""

import cnllm

client = cnllm.Client(simulate=True)
print(client.call("glm-4.7", "Hi").cost.amount)  # type: ignore  # refused
