"""The key of a message has a typing error."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", [{"role": "user", "contents": "Hi"}])  # type: ignore  # refused
