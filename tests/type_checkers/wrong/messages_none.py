"""There are no messages."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", None)  # type: ignore  # refused
