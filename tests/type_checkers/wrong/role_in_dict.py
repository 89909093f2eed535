"""The role of a dict has a typing error."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", [{"role": "usr", "content": "Hi"}])  # type: ignore  # refused
