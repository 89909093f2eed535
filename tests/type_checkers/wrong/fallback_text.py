"""The models that take over are a list."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", fallback="kimi-k2.6")  # type: ignore  # refused
