"""The values of headers are texts."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", extra_headers={"x-number": 3})  # type: ignore  # refused
