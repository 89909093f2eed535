"""A stream is no reply."""

import cnllm

client = cnllm.Client(simulate=True)
print(client.stream("glm-4.7", "Hi").text)  # type: ignore  # refused
