"""A message has no role."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", [{"content": "Hi"}])  # type: ignore  # refused
