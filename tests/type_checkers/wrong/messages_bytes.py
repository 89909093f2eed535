"""Bytes are no message."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", b"Hi")  # type: ignore  # refused
