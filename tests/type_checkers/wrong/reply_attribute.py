"""A reply has no such attribute."""

import cnllm

client = cnllm.Client(simulate=True)
print(client.call("glm-4.7", "Hi").content)  # type: ignore  # refused
