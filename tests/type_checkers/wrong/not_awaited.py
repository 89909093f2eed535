"""The async client is awaited."""

import cnllm

client = cnllm.AsyncClient()
print(client.call("glm-4.7", "Hi").text)  # type: ignore  # refused
